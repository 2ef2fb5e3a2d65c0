"""How many of which accelerator: the fastest layout on every machine on offer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twofold.core import InputError
from twofold.perf import Cluster
from twofold.training.job import TrainingJob
from twofold.training.layouts import EVERYTHING, Limits
from twofold.training.search import Candidate, SearchResult, search
from twofold.training.stack import Stack


@dataclass(frozen=True, slots=True)
class Machine:
    """A cluster on offer. `price_usd_per_h` is of one accelerator; None plans in accelerator-hours alone."""

    name: str
    cluster: Cluster
    stack: Stack
    price_usd_per_h: float | None = None


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One machine with its fastest layout. `verdict`: chosen, front, slower, deadline, budget or memory."""

    machine: Machine
    found: SearchResult
    wall_s: float  # infinite when nothing fits
    accelerator_h: float
    cost_usd: float | None
    verdict: str

    @property
    def candidate(self) -> Candidate | None:
        """The fastest layout that fits."""
        return self.found.best


def search_sizes(
    job: TrainingJob,
    machines: Sequence[Machine],
    tokens: float,
    overhead_factor: float = 1.0,
    deadline_s: float = np.inf,
    budget_usd: float = np.inf,
    limits: Limits = EVERYTHING,
) -> tuple[SizeRow, ...]:
    """The fastest layout on every machine, and what each would take and cost for `tokens`.

    `overhead_factor` is wall time over compute time: failures, checkpoints and headroom. Rows come in the
    order of `machines`. The chosen one is the cheapest that meets deadline and budget (fewest
    accelerator-hours where prices are missing); the front holds those that none beats in time, cost and size.
    """
    if not tokens > 0:
        raise InputError("a training run needs a positive number of tokens")
    rows = [_price(job, machine, tokens, overhead_factor, limits) for machine in machines]
    late = [row.wall_s > deadline_s for row in rows]
    dear = [row.cost_usd is not None and row.cost_usd > budget_usd for row in rows]
    free = [not (a or b) and np.isfinite(row.wall_s) for row, a, b in zip(rows, late, dear, strict=True)]
    best = min((i for i, ok in enumerate(free) if ok), key=lambda i: _cost_order(rows[i]), default=None)
    front = _front([row for row, ok in zip(rows, free, strict=True) if ok])
    verdicts = []
    for i, row in enumerate(rows):
        if not np.isfinite(row.wall_s):
            verdicts.append("memory")
        elif late[i] or dear[i]:
            verdicts.append("deadline" if late[i] else "budget")
        else:
            verdicts.append("chosen" if i == best else "front" if row in front else "slower")
    return tuple(
        SizeRow(r.machine, r.found, r.wall_s, r.accelerator_h, r.cost_usd, verdict)
        for r, verdict in zip(rows, verdicts, strict=True)
    )


def _price(
    job: TrainingJob, machine: Machine, tokens: float, overhead_factor: float, limits: Limits
) -> SizeRow:
    found = search(job, machine.cluster, machine.stack, limits)
    if found.best is None:
        return SizeRow(machine, found, np.inf, np.inf, None, "memory")
    wall_s = found.best.step_s * np.ceil(tokens / job.tokens_per_step) * overhead_factor
    accelerator_h = wall_s / 3600 * machine.cluster.accelerator_count
    price = machine.price_usd_per_h
    return SizeRow(
        machine, found, wall_s, accelerator_h, None if price is None else accelerator_h * price, ""
    )


def _cost_order(row: SizeRow) -> tuple[float, float]:
    return (np.inf if row.cost_usd is None else row.cost_usd, row.accelerator_h)


def _front(rows: Sequence[SizeRow]) -> list[SizeRow]:
    """Rows that no other beats in time, cost and accelerators at once."""

    def costs(row: SizeRow) -> tuple[float, float, int]:
        cost = row.accelerator_h if row.cost_usd is None else row.cost_usd
        return (row.wall_s, cost, row.machine.cluster.accelerator_count)

    def beaten(row: SizeRow) -> bool:
        mine = costs(row)
        return any(
            costs(o) != mine and all(a <= b for a, b in zip(costs(o), mine, strict=True)) for o in rows
        )

    return [row for row in rows if not beaten(row)]
