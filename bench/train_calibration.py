"""How far step times are off on half of the runs of this machine, by factors that the other half gave.

The laptop's model in short runs on one core, in several batches and lengths; every second run, by tokens a
step, calibrates, the others are predicted. Each shape is run twice, minutes apart, and the faster run counts:
what else the machine does slows a whole run at times, by half and without any noise from step to step. Both
stand in each line: p90 over p10 of the run's steps, and the slower run over the faster. Beside them the same
step on two cores, in other precisions and compiled, twice and the faster too: planned beside measured, where
the plan knows them.

It ends: runs have few steps and little text, and of those beside, what the time does not allow is named and
left out.
"""

import csv
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from twofold.catalog.catalog import load_catalog
from twofold.catalog.model_config import read_model_config
from twofold.contracts.results import loop, trained
from twofold.live.processes import stop_all
from twofold.live.training.train_job import TrainJob, run_training
from twofold.live.training.training_record import read_events
from twofold.measure.blind import PREDICT
from twofold.measure.calibration import Fitted, calibrated_logs, fit_sheet, ranges_of
from twofold.measure.calibration_sheet import sheets_of
from twofold.measure.planned_runs import STEP, planned_step_s
from twofold.measure.trained_rows import Ran, lines_of, row_of
from twofold.measure.truth import Row, read_rows
from twofold.perf.constants import load_constants
from twofold.perf.known import load_known

SHAPES = sorted(  # sequences and tokens, fewest tokens first
    ((batch, tokens) for batch in (2, 4, 8, 16) for tokens in (64, 96, 128)),
    key=lambda shape: (shape[0] * shape[1], shape),
)
BASE = SHAPES.index((8, 128))  # what the other runs differ from in one thing
OTHERS = (  # what differs from the base run, and about how long it takes twice
    ({"ranks": 2}, 40.0),
    ({"precision": "bf16"}, 50.0),
    ({"precision": "fp16"}, 330.0),
    ({"compute": "compiled"}, 150.0),
)
GPU, STEPS, LIMIT_S = "CPU-4-core-AVX2", 12, 1200.0  # none of the others begins that would end later
MODEL = Path(__file__).parents[1] / "examples" / "laptop" / "config.json"
GOAL, RANGE = 0.10, 0.8  # RANGE: of the runs, within the range that is given
TEXT_BYTES = 300_000
UNKNOWN = trained.Conditions(None, "", None, None, None, None, None)


@dataclass(frozen=True, slots=True)
class Ended:
    """One run: its row, and what a row does not say."""

    run: trained.TrainedRun
    row: Row
    sequence_tokens: int
    slower: float = 1.0  # another run of the same over this one

    @property
    def step_s(self) -> float:
        """Its median step."""
        return self.run.measured.step_s_p50

    @property
    def noise(self) -> float:
        """p90 over p10 of its steps."""
        return self.run.measured.step_s_p90 / self.run.measured.step_s_p10


@contextmanager
def cores(count: int) -> Iterator[None]:
    """As many cores as ranks: each rank has one, whatever the machine has."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def ran(state: Path, shape: tuple[int, int], settings: trained.RunSettings, turn: int = 0) -> Ended:
    """Train for a few steps, in a folder of its own."""
    batch, tokens = shape
    name = f"{turn}-{settings.ranks}-{settings.precision}-{settings.compute}-{batch}x{tokens}"
    job = TrainJob(name, state / "train" / name, MODEL, settings.ranks, STEPS, tokens, batch)
    job = replace(job, precision=settings.precision, compute=settings.compute, corpus_bytes=TEXT_BYTES)
    with cores(settings.ranks):
        measured = run_training(replace(job, checkpoint_every_steps=STEPS), state, lambda _: None)
    if settings.compute == "compiled" and read_events(job.folder, "not-compiled"):
        raise LookupError("this machine has no compiler")
    own = replace(settings, micro_batch=batch // settings.ranks)
    run = trained.TrainedRun(name, own, measured, None, "", UNKNOWN)
    return Ended(run, row_of(run, Ran(read_model_config(MODEL), GPU, tokens, job.zero_stage)), tokens)


def measured(state: Path) -> tuple[list[Ended], dict[str, Ended]]:
    """The runs that calibrate and are predicted, and the others by what differs, the faster of two of each;
    late ones of the others are left out."""
    began_s = time.monotonic()
    plain = trained.RunSettings(1, "fp32", "eager", 0, "none")
    first = [ran(state, shape, plain) for shape in SHAPES]
    second = [ran(state, shape, plain, 1) for shape in SHAPES[::-1]][::-1]
    shapes = [faster(*pair) for pair in zip(first, second, strict=True)]
    others = {}
    for change, needs_s in OTHERS:
        name = " ".join(f"{value} {key}" if key == "ranks" else str(value) for key, value in change.items())
        if time.monotonic() - began_s + needs_s > LIMIT_S:
            print(f"left out, for the {LIMIT_S:.0f} s are over: {name}")
            continue
        try:
            changed = replace(plain, **change)  # type: ignore[arg-type]
            others[name] = faster(*(ran(state, SHAPES[BASE], changed, turn) for turn in (0, 1)))
        except LookupError as error:
            print(f"left out: {name}: {error}")
    print(f"{2 * (len(shapes) + len(others))} runs in {time.monotonic() - began_s:.0f} s")
    return shapes, others


def faster(one: Ended, other: Ended) -> Ended:
    """The faster of two runs of the same, with how much slower the other was."""
    fast, slow = sorted((one, other), key=lambda each: each.step_s)
    return replace(fast, slower=slow.step_s / fast.step_s)


def fitted(rows: list[Row]) -> tuple[Fitted, list[Row], np.ndarray]:
    """Factors from every second of the rows, answers without factors, step times with them."""
    catalog, constants = load_catalog(), load_constants()
    answers = PREDICT["training"](rows, catalog, constants, load_known())
    (sheet,), refused = sheets_of("training", rows, catalog, constants)
    assert not refused, refused
    found = fit_sheet(sheet, rows, ranges_of("training", answers), constants, sheet.place % 2 == 0)
    after = np.full(len(rows), np.nan)
    after[sheet.place] = np.exp(calibrated_logs(found)[STEP])
    return found, answers, after


def main() -> None:
    """Print both halves, before and after, then what else was run."""
    state = Path(tempfile.mkdtemp(prefix="twofold-bench-"))
    try:
        shapes, others = measured(state)
    finally:
        stop_all(state)
        shutil.rmtree(state, ignore_errors=True)
    rows = again([each.row for each in shapes])
    found, answers, after = fitted(rows)
    half_range = found.half_range(STEP)
    print(f"{'seq':>5}{'tokens':>8}{'step':>9}{'before':>9}{'after':>9}{'noise':>7}{'slower':>8}  half")
    offs, held = [], 0
    for at, each in enumerate(shapes):
        real = each.step_s
        before, now = float(answers[at][f"pred_{STEP}"]) / real - 1, after[at] / real - 1
        half = "left out" if at % 2 else "calibrates"
        off = f"{before:>9.0%}{now:>9.0%}{each.noise:>7.2f}{each.slower:>8.2f}  {half}"
        print(f"{SHAPES[at][0]:>5}{SHAPES[at][1]:>8}{real:>8.3f}s{off}")
        if at % 2:
            offs.append(abs(now))
            held += abs(np.log1p(now)) <= half_range
    print(f"left out: median off {np.median(offs):.0%}, worst {max(offs):.0%}; the goal is 10 %")
    print(f"left out: {held} of {len(offs)} within the 80 % range of ± {np.expm1(half_range):.0%}")
    print(verdict(offs, held))
    for name, other in others.items():
        print(beside(name, other, shapes[BASE].run.measured, rows[::2]))


def beside(name: str, other: Ended, base: loop.TrainingMeasured, calibrating: list[Row]) -> str:
    """A run that differs in one thing: its step over the base run's, planned and measured, and its loss."""
    (row,), compute = again([other.row]), other.run.settings.compute
    step = planned_step_s(calibrating, row, compute, load_catalog(), load_constants())
    low, middle, high = (each / base.step_s_p50 for each in (step.low, step.value, step.high))
    ratio = other.run.measured.step_s_p50 / base.step_s_p50
    held = "within" if low <= ratio <= high else "OUTSIDE"
    loss = abs(other.run.measured.last_loss / base.last_loss - 1)
    planned = f"planned × {middle:.2f} [{low:.2f}–{high:.2f}], {held}"
    said = f"last losses {loss:.2%} apart; noise {other.noise:.2f}, slower {other.slower:.2f}"
    return f"{name}: step × {ratio:.2f} measured, {planned}; {said}"


def verdict(offs: list[float], held: int) -> str:
    """In a line, whether every run that was left out is within the goal, and whether the ranges hold."""
    worst = "holds" if max(offs) <= GOAL else f"does not hold, by {max(offs) - GOAL:.1%}"
    ranges = "hold" if held >= RANGE * len(offs) else f"do not hold: {RANGE * len(offs):.1f} are to be within"
    return f"verdict: the worst within {GOAL:.0%} {worst}; the ranges {ranges}"


def again(rows: list[Row]) -> list[Row]:
    """The rows as whoever reads their file finds them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", newline="", encoding="utf-8") as handle:
            csv.writer(handle, lineterminator="\n").writerows(lines_of(rows))
        return read_rows(path)


if __name__ == "__main__":
    main()
