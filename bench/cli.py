"""Whole commands from a cold start, beside starting Python alone, and what the core install weighs."""

import os
import statistics
import subprocess
import sys
import time
from importlib.metadata import distribution, requires
from pathlib import Path
from tempfile import TemporaryDirectory

from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Accelerator, Model

RUNS = 5
TWOFOLD = (sys.executable, "-m", "twofold")
SHAPE = ("--input", "1155", "--output", "211", "--concurrency", "64")
COMMANDS = (
    ("python, nothing else", [sys.executable, "-c", "pass"]),
    ("twofold --help", [*TWOFOLD, "--help"]),
    ("twofold check", [*TWOFOLD, "check", "examples/assistant"]),
    (
        "twofold estimate train",
        [*TWOFOLD, "estimate", "train", "llama-3.1-70b", "--on", "64x8xH100-SXM", "--batch", "512 seq"],
    ),
    (
        "twofold estimate serve",
        [*TWOFOLD, "estimate", "serve", "llama-3.1-70b", "--on", "4xH200", *SHAPE],
    ),
    ("twofold plan", [*TWOFOLD, "plan", "examples/assistant"]),
    ("  in full", [*TWOFOLD, "plan", "examples/assistant", "--full"]),
    ("  as data", [*TWOFOLD, "plan", "examples/assistant", "--json"]),
    ("  of a portfolio", [*TWOFOLD, "plan", "examples/portfolio"]),
    ("  at 10⁷ requests/s", [*TWOFOLD, "plan", "crowd.yaml"]),
    ("  rehearsed", [*TWOFOLD, "plan", "examples/assistant", "--rehearse"]),
)
CROWD = """
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  classes:
    chat:
      traffic: {rate: 1e7 /s, peak: 2x, input: {mean: 600 tok, p95: 1800 tok}, output: 120 tok}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
"""


def times_s(command: list[str], folder: str) -> tuple[float, float]:
    """Median wall and least processor time of a command; the first run compiles, and is not counted."""
    walls, busy, command = [], [], [f"{folder}/{each}" if each == "crowd.yaml" else each for each in command]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(2 if "--rehearse" in command else RUNS + 1):
        start, before = time.perf_counter(), os.times().children_user
        subprocess.run(command, check=True, capture_output=True, env=environment)
        walls.append(time.perf_counter() - start)
        busy.append(os.times().children_user - before)
    return statistics.median(walls[1:]), min(busy[1:])


def installed_bytes() -> dict[str, int]:
    """Bytes on disk of the package and of everything that it needs, by distribution."""
    sizes: dict[str, int] = {}
    waiting = ["twofold"]
    while waiting:
        name = (
            waiting.pop()
            .split(";")[0]
            .split("[")[0]
            .split("<")[0]
            .split(">")[0]
            .split("=")[0]
            .split("!")[0]
            .strip()
        )
        if name in sizes:
            continue
        files = distribution(name).files or []
        sizes[name] = sum(
            Path(str(file.locate())).stat().st_size for file in files if file.locate().is_file()
        )
        waiting += [
            need for need in requires(name) or [] if "extra ==" not in need and "platform_system" not in need
        ]
    source = Path(__file__).parents[1] / "src" / "twofold"
    sizes["twofold"] = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    return sizes


def main() -> None:
    """Print the table."""
    print(f"{'command, cold':24}{'s':>8}{'× python':>10}{'user s':>8}")
    baseline_s = 0.0
    with TemporaryDirectory() as folder:
        (Path(folder) / "crowd.yaml").write_text(CROWD, "utf-8")
        for name, command in COMMANDS:
            seconds, busy_s = times_s(command, folder)
            baseline_s = baseline_s or seconds
            print(f"{name:24}{seconds:8.3f}{seconds / baseline_s:10.1f}{busy_s:8.2f}")
    start = time.perf_counter()
    catalog = load_catalog()
    for name in catalog.table_names():
        catalog.table(name)
    catalog.prices(), catalog.rows(Model), catalog.rows(Accelerator)
    seconds = time.perf_counter() - start
    print(f"{'the whole catalogue':24}{seconds:8.3f}{seconds / baseline_s:10.1f}")
    sizes = installed_bytes()
    parts = ", ".join(
        f"{name} {size / 1e6:.1f}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])
    )
    print(f"core install: {sum(sizes.values()) / 1e6:.0f} MB ({parts})")
