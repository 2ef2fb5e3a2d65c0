"""A stand-in for the driver's own tool, for machines without an accelerator."""

import os
import sys
from pathlib import Path

import pytest

SAYS = """\
import sys
for number in range({count}):
    print({watts} if "power.draw" in sys.argv[1] else number)
"""


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, watts: float = 100.0) -> None:
    """From now on `nvidia-smi` lists so many accelerators, each of which draws so much; none is hidden."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!{sys.executable}\n{SAYS.format(count=count, watts=watts)}")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
