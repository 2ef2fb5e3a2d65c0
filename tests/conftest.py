"""Runs a command line of `twofold` in this process, once per session: its output never changes."""

import contextlib
import hashlib
import io
import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from twofold.cli import main

# The same examples in every run, without a clock: what passed here passes there. New ones are sought with
# HYPOTHESIS_PROFILE=explore; what that finds becomes an @example.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

ROOT = Path(__file__).parents[1]
DAY = "1795219200"  # 2026-11-21: prices do not age in tests


@dataclass(frozen=True, slots=True)
class Asked:
    """One command line, run from the root of the repository, and what came of it."""

    line: str
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def data(self) -> Any:
        """What `--json` printed."""
        return json.loads(self.out)


@pytest.fixture(scope="session")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Asked]:
    """`ask("twofold plan examples/assistant")`; the same line again costs nothing, in no process."""
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def known(line: str) -> Asked:
        kept = shared / f"{hashlib.sha256(line.encode()).hexdigest()}.json"
        if not kept.exists():
            answer = _run(line)
            whole = kept.with_suffix(f".{os.getpid()}")
            whole.write_text(json.dumps([answer.code, answer.out, answer.err]), "utf-8")
            whole.replace(kept)  # another process sees all of it or nothing
        return Asked(line, *json.loads(kept.read_text("utf-8")))

    return cache(known)


def _run(line: str) -> Asked:
    program, *words = shlex.split(line)
    assert program == "twofold"
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(ROOT):
        patch.setenv("SOURCE_DATE_EPOCH", DAY)
        patch.delenv("TWOFOLD_DEBUG", raising=False)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    return Asked(line, code, out.getvalue(), err.getvalue())
