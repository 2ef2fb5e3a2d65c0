"""How far step times are off on half of the runs of this machine, by factors that the other half gave.

The laptop's model in short runs of several batches and lengths, on one rank; every second run, by tokens a
step, calibrates, the others are predicted. The machine's own noise is printed beside: p90 over p10 of each
run's steps. On a shared machine it bounds what any model can reach. Takes minutes, so it runs by name only.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np

from twofold.app.measure_training import TrainWanted, measure_train
from twofold.catalog.catalog import load_catalog
from twofold.measure.blind import PREDICT
from twofold.measure.calibration import calibrated_logs, fit_sheet, ranges_of
from twofold.measure.calibration_sheet import sheets_of
from twofold.measure.truth import read_rows
from twofold.perf.constants import load_constants
from twofold.perf.known import load_known

SHAPES = ((4, 64), (4, 128), (8, 96), (8, 128), (16, 96), (16, 128))  # sequences, tokens
GPU, STEPS = "CPU-4-core-AVX2", 12
MODEL = Path(__file__).parents[1] / "examples" / "laptop"
STEP = "step_time_s"


def measured_rows(folder: Path) -> tuple[list[dict[str, str]], list[float]]:
    """Rows of all shapes, fewest tokens first, and each one's noise."""
    rows, noises = [], []
    for batch, tokens in SHAPES:
        wanted = TrainWanted(
            ranks="1",
            precisions="fp32",
            computes="eager",
            steps=STEPS,
            batch=f"{batch} seq",
            sequence=f"{tokens} tok",
            gpu=GPU,
        )
        file = folder / f"{batch}-{tokens}.csv"
        (run,) = measure_train(MODEL, wanted, file).data.runs
        with file.open(newline="", encoding="utf-8") as handle:
            rows += list(csv.DictReader(handle))
        noises.append(run.measured.step_s_p90 / run.measured.step_s_p10)
    return rows, noises


def main() -> None:
    """Print both halves, before and after."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, noises = measured_rows(folder)
        with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as handle:
            writer = csv.DictWriter(handle, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        told = read_rows(folder / "rows.csv")
    catalog, constants = load_catalog(), load_constants()
    answers = PREDICT["training"](told, catalog, constants, load_known())
    (sheet,), refused = sheets_of("training", told, catalog, constants)
    assert not refused, refused
    keep = np.arange(sheet.place.size) % 2 == 0
    fitted = fit_sheet(sheet, told, ranges_of("training", answers), constants, keep)
    after = np.exp(calibrated_logs(fitted)[STEP])
    print(f"{'seq':>5}{'tokens':>8}{'step':>9}{'before':>9}{'after':>9}{'noise':>7}  half")
    offs = []
    for at, place in enumerate(sheet.place):
        (batch, tokens), real = SHAPES[place], float(told[place][STEP])
        before, now = float(answers[place][f"pred_{STEP}"]) / real - 1, after[at] / real - 1
        half = "calibrates" if keep[at] else "left out"
        print(f"{batch:>5}{tokens:>8}{real:>8.3f}s{before:>9.0%}{now:>9.0%}{noises[place]:>7.1f}  {half}")
        offs += [] if keep[at] else [abs(now)]
    print(f"left out: median off {np.median(offs):.0%}, worst {max(offs):.0%}; the goal is 10 %")


if __name__ == "__main__":
    main()
