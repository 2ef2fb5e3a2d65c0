"""A training run's figures as series: a file for Prometheus' textfile collector, and OpenTelemetry.

The file, `metrics.prom` beside the run's steps, is written whole each time. Its names are those of the
gateway's page where both have the figure: who it is, and the machine's memory.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from twofold.live import metrics_text, watched
from twofold.live.training.artefact import write_whole
from twofold.live.training.run_watch import RunWatch

FILE = "metrics.prom"
EVERY_S = 1.0  # at most
Sample = tuple[str, Mapping[str, str], float]  # what is added to the name, its labels, its value


@dataclass(slots=True)
class RunSeries:
    """What a watch of a run knows by now; nothing is read again for it. Mutable."""

    watch: RunWatch
    resource: Mapping[str, str]
    tokens_per_step: int
    written_s: float = field(default=0.0)

    def write(self, *, now_s: float | None = None) -> None:
        """The file, unless it was written a moment ago."""
        now_s = time.monotonic() if now_s is None else now_s
        if now_s - self.written_s >= EVERY_S:
            self.written_s = now_s
            with suppress(OSError):  # a full disk does not end a run for want of its figures
                write_whole(self.watch.run / FILE, metrics_text.families_text(self.families()))

    def families(self) -> Iterator[metrics_text.Family]:
        """All series, as of now."""
        yield watched.info_family(self.resource)
        yield from watched.memory_families()
        count: tuple[Sample, ...] = (("", {}, float(self.watch.saved_count)),)
        yield metrics_text.Family("twofold_checkpoints_total", "counter", "Checkpoints that are whole", count)
        took_s = self.watch.saved_s
        yield watched.gauge("twofold_checkpoint_seconds", "That the last one took until it was whole", took_s)
        line = self.watch.last
        if line is None:
            return
        steps: tuple[Sample, ...] = (("", {}, float(line.step)),)
        yield metrics_text.Family("twofold_train_steps_total", "counter", "Steps that are done", steps)
        tokens: tuple[Sample, ...] = (("", {}, float(line.step * self.tokens_per_step)),)
        yield metrics_text.Family(
            "twofold_train_tokens_total", "counter", "Tokens that were trained on", tokens
        )
        yield watched.gauge("twofold_train_step_seconds", "Of the last step", line.step_s)
        yield watched.gauge("twofold_train_loss", "Mean loss of the last step", float.fromhex(line.loss))
        yield watched.gauge(
            "twofold_memory_used_bytes",
            "The most that a process has held",
            float(line.peak_memory_bytes),
            {"process": "rank-0"},
        )
        yield watched.gauge(
            "twofold_memory_fragmented_fraction",
            "Of what a process holds, what is free inside it and in no use",
            line.fragmented_fraction,
            {"process": "rank-0"},
        )
