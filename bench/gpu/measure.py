"""`python -m bench.gpu.measure OUT.json [kernels|training|steps …]`: run the cases on the GPU that is here.

It needs torch and, for training, transformers; nothing of this package. The file is written after every case,
so that what was measured stays when time runs out.
"""

import json
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

from bench.gpu.measure_kernels import kernels
from bench.gpu.measure_steps import steps
from bench.gpu.measure_training import training

ASKED = "name,driver_version,power.limit,clocks.max.sm,clocks.max.mem,power.draw,temperature.gpu"


def main() -> None:
    """Measure the parts that are named, all by default, and write them as one file."""
    path, parts = Path(sys.argv[1]), sys.argv[2:] or ["kernels", "steps", "training"]
    found: dict[str, Any] = {
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "machine": _machine(),
    }
    began_s = time.monotonic()

    def write() -> None:
        path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")

    for part in parts:
        rows: dict[str, Any] = found.setdefault(part, {})

        def note(name: str, row: dict[str, Any], rows: dict[str, Any] = rows) -> None:
            rows[name] = row
            shown = {key: value for key, value in row.items() if key != "kernels"}
            print(f"{time.monotonic() - began_s:6.1f}", name, shown, flush=True)
            write()

        if part == "kernels":
            rows.update(kernels())
            write()
        elif part == "steps":
            steps(note)
        else:
            training(note)
        print(f"{time.monotonic() - began_s:6.1f} s: {part} done", flush=True)


def _machine() -> list[str]:
    try:
        command = ["nvidia-smi", f"--query-gpu={ASKED}", "--format=csv"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


if __name__ == "__main__":
    main()
