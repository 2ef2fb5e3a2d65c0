"""The compiled package answers as the sources do, to the last bit (INV-5)."""

import dataclasses
import os
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from twofold.live.gateway.replays import entry_from_line, first_difference, read_gate_log
from twofold.policy.gate.gate import Gate
from twofold.twin.serving.fleet_types import FleetResult, FleetWorld, RequestRecord

ROOT = Path(__file__).parents[1]
COMPILED = ROOT / ".fast" / "bin" / "python"
DAY = "1795219200"  # 2026-11-21, as `ask` has it
built = pytest.mark.skipif(
    not COMPILED.exists(), reason="it is not built: `make fast`, which needs a C compiler"
)


def compiled(*words: str) -> str:
    """What the interpreter that has the compiled package prints."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": DAY}
    done = subprocess.run(
        [COMPILED, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


def values_of(kind: Any, known: set[type]) -> Iterator[type]:
    """Every class of ours whose values a value of this kind may hold."""
    for part in get_args(kind):
        yield from values_of(part, known)
    if isinstance(kind, type) and kind not in known and kind.__module__.startswith("twofold."):
        known.add(kind)
        yield kind
        if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
            for part in get_type_hints(kind).values():
                yield from values_of(part, known)


@pytest.mark.parametrize("sent", [FleetWorld, FleetResult, RequestRecord])
def test_what_processes_send_each_other_is_not_compiled(sent: type) -> None:
    """A compiled class cannot be pickled."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    modules = wheel["hooks"]["custom"]["modules"]
    names = {kind.__module__.replace(".", "/") + ".py" for kind in values_of(sent, set())}
    assert names and not names & set(modules)


@built
def test_what_a_request_goes_through_is_compiled() -> None:
    modules = "twofold.policy.gate.gate as g, twofold.twin.serving.engine as e"
    files = compiled("-c", f"import {modules}; print(g.__file__, e.__file__)").split()
    assert all(name.endswith((".so", ".pyd")) for name in files)


@built
@pytest.mark.parametrize("scenario", ["zone-loss", "bad-canary"])
def test_a_compiled_run_is_the_same_run(scenario: str, ask: Callable[[str], Any]) -> None:
    line = f"simulate tests/requirements/specs/chat.yaml --scenario {scenario} --json"
    assert compiled("-m", "twofold", *line.split()) == ask(f"twofold {line}").out


@built
def test_a_compiled_gateway_decides_as_the_sources_do(tmp_path: Path) -> None:
    """What it wrote of its events and decisions under load, replayed (INV-5)."""
    log = tmp_path / "events.jsonl"
    script = f"from bench.gateway import *; print(answered_count(Path({str(log)!r}), 0.5))"
    answered = int(compiled("-c", script))
    (run,) = read_gate_log(log).runs
    entries = [entry_from_line(line) for line in run.entries]
    assert answered > 20 and len(entries) >= 3 * answered
    assert first_difference(Gate(run.settings, run.beliefs), entries) is None
