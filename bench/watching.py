"""What watching a run costs a step, at its beginning and after 200,000 steps.

The watcher looks ten times a second; its processor time a step must not grow with the steps behind. Synthetic
steps are written as a rank writes them, with a checkpoint's event every 30, so that the cost of writing one
shows too; the run's series are made at each look, ten times as often as a run makes them. Other work on the
machine stretches processor times little; the ratio of end to beginning is what matters.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from twofold.live import metrics_text
from twofold.live.training.run_series import RunSeries
from twofold.live.training.run_watch import RunWatch
from twofold.live.training.training_record import StepLine, append_event, append_step

STEPS, PART, LOOK_EVERY, SAVE_EVERY = 200_000, 20_000, 10, 30
LINE = StepLine(1, 0, 1, (2.5).hex(), 0.0, 0.3, 0.001, 0.1, 0.15, 0.02, 0.01, 0.0, 10**9)


def main() -> None:
    """Write and watch the steps; print microseconds of processor time a step."""
    with tempfile.TemporaryDirectory() as name:
        run, rows = Path(name), []
        watch, seen = RunWatch(run, 1), 0
        series = RunSeries(watch, {}, 1)
        for begin in range(0, STEPS, PART):
            written_s = watched_s = 0.0
            for step in range(begin, begin + PART, LOOK_EVERY):
                began_s = time.process_time()
                for at in range(LOOK_EVERY):
                    append_step(run, 0, replace(LINE, step=1 + step + at))
                if step % SAVE_EVERY == 0:
                    append_event(run, "checkpoint", step=step, write_s=0.1)
                middle_s = time.process_time()
                seen += len(watch.look()[0])
                metrics_text.families_text(series.families())
                written_s, watched_s = (
                    written_s + middle_s - began_s,
                    watched_s + time.process_time() - middle_s,
                )
            rows.append((begin + PART, 1e6 * written_s / PART, 1e6 * watched_s / PART))
        assert seen == STEPS and watch.saved_count == len(range(0, STEPS, SAVE_EVERY))
    print(f"{'steps':>8}{'written':>10}{'watched':>10}  µs of processor time a step")
    for steps, written, watched in (rows[0], rows[len(rows) // 2], rows[-1]):
        print(f"{steps:>8,}{written:>10.1f}{watched:>10.1f}")
    print(f"watching at the end takes {rows[-1][2] / rows[0][2]:.2f} × the beginning")


if __name__ == "__main__":
    main()
