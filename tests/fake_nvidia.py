"""A stand-in for the driver's own tool, for machines without an accelerator."""

import os
import sys
from pathlib import Path

import pytest

SAYS = """\
import sys
said = dict({told})
name = next(word for word in sys.argv if word.startswith("--query-gpu=")).partition("=")[2]
chosen = [word.partition("=")[2].split(",") for word in sys.argv if word.startswith("--id=")]
if "." in name and name not in said:
    sys.exit(2)
for number in range({count}):
    if not chosen or str(number) in chosen[0]:
        print(said[name][number] if name in said else number)
"""


def nvidia_smi(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    watts: float = 100.0,
    told: dict[str, list[str]] | None = None,
) -> None:
    """From now on `nvidia-smi` lists so many accelerators, each of which draws so much; none is hidden. It
    knows no other figure than those that it is `told`, one of each."""
    tool = folder / "nvidia-smi"
    known = {"power.draw": [str(watts)] * count} | (told or {})
    tool.write_text(f"#!{sys.executable}\n{SAYS.format(count=count, told=known)}")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
