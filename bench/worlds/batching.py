"""How long batches should wait and how large they may grow: a sweep over one trace, and the choice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.worlds.engine_loop import LoopFigures, run_requests
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings


@dataclass(frozen=True, slots=True)
class BatchingPoint:
    """One setting and what it comes to. `wait_s` None is continuous batching."""

    max_batch: int
    wait_s: float | None
    figures: LoopFigures
    busy_s_per_request: float  # of the engine: what a request costs
    on_front: bool = False  # no other setting is both cheaper and earlier

    @property
    def latency_s_p95(self) -> float:
        """Of whole answers."""
        return self.figures.e2e.p95_s


def sweep_batching(
    new_engine: Callable[[EngineSettings], Engine],
    settings: EngineSettings,
    lengths: Sequence[tuple[int, int]],
    arrivals_s: Sequence[float],
    max_batches: Sequence[int],
    waits_s: Sequence[float | None],
) -> tuple[BatchingPoint, ...]:
    """The same requests under every batch limit and wait; points of the Pareto front are marked.

    Formula  a point is on the front if no other is at most as late (p95 of answers) and at most as dear
             (engine seconds per request) and better in one of the two
    Units    seconds; `lengths` are (input, output) tokens.
    """
    points = []
    for max_batch in max_batches:
        for wait_s in waits_s:
            engine = new_engine(replace(settings, max_batch=max_batch, static_wait_s=wait_s))
            figures = run_requests(engine, lengths, len(lengths), arrivals_s)
            busy_s = engine.busy_s / max(1, figures.finished_count)
            points.append(BatchingPoint(max_batch, wait_s, figures, busy_s))
    return tuple(replace(each, on_front=not any(_beats(other, each) for other in points)) for each in points)


def chosen_batching(
    points: Sequence[BatchingPoint],
    ttft_s_p95: float | None = None,
    tpot_s_p95: float | None = None,
    e2e_s_p95: float | None = None,
) -> BatchingPoint | None:
    """The cheapest point that keeps all limits; None where no point does. Ties go to the earlier answer."""
    kept = [
        each
        for each in points
        if each.figures.finished_count
        and (ttft_s_p95 is None or each.figures.ttft.p95_s <= ttft_s_p95)
        and (tpot_s_p95 is None or each.figures.tpot.p95_s <= tpot_s_p95)
        and (e2e_s_p95 is None or each.figures.e2e.p95_s <= e2e_s_p95)
    ]
    return min(kept, key=lambda each: (each.busy_s_per_request, each.latency_s_p95), default=None)


def _beats(one: BatchingPoint, other: BatchingPoint) -> bool:
    """Whether a point is nowhere worse than another, and somewhere better."""
    pair = (one.latency_s_p95, one.busy_s_per_request)
    than = (other.latency_s_p95, other.busy_s_per_request)
    return pair != than and pair[0] <= than[0] and pair[1] <= than[1]
