"""The compiled package answers as the sources do, to the last bit (INV-5)."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
COMPILED = ROOT / ".fast" / "bin" / "python"
DAY = "1795219200"  # 2026-11-21, as `ask` has it
pytestmark = pytest.mark.skipif(
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


def test_what_a_request_goes_through_is_compiled() -> None:
    files = "import twofold.policy.gate as g, twofold.twin.engine as e; print(g.__file__, e.__file__)"
    assert all(name.endswith((".so", ".pyd")) for name in compiled("-c", files).split())


@pytest.mark.parametrize("scenario", ["zone-loss", "bad-canary"])
def test_a_compiled_run_is_the_same_run(scenario: str, ask: Callable[[str], Any]) -> None:
    line = f"simulate tests/requirements/specs/chat.yaml --scenario {scenario} --json"
    assert compiled("-m", "twofold", *line.split()) == ask(f"twofold {line}").out
