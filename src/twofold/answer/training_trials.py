"""What trials of machines for one training run have in common: which is chosen, what the others lost by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from twofold.answer.context import Context, machine_of
from twofold.answer.offers import Offer
from twofold.answer.question import Given
from twofold.answer.uncertainty import flip_fraction
from twofold.contracts.results import FrontPoint, Loser
from twofold.contracts.spec import TrainingRun
from twofold.core import format_seconds, format_usd
from twofold.perf import Cluster
from twofold.training import RunPlan

SHOWN_MISSES = 5
WORTH_SWITCHING = 1.03  # a layout or machine that is 1 % better in some draw is no other decision


@dataclass(frozen=True, slots=True)
class MachineTrial:
    """One number of nodes of one offer, and the run on it; None where nothing fits."""

    offer: Offer
    node_count: int
    cluster: Cluster
    run: RunPlan | None
    cost_usd: float | None
    misses: str  # "" when it meets memory, deadline and budget

    @property
    def text(self) -> str:
        """How a reason names it: `32 × 8 H100-SXM5-80GB`."""
        return f"{self.node_count} × {self.offer.node.accelerator_count} {self.offer.accelerator.name}"

    @property
    def described(self) -> str:
        """How the front names it."""
        return self.text

    @property
    def total_s(self) -> float:
        """Seconds of the whole run with headroom; infinite where nothing fits."""
        return self.run.total_s if self.run else np.inf

    @property
    def cost(self) -> float:
        """What the run takes: dollars, accelerator-hours where there is no price."""
        assert self.run
        return self.run.total_accelerator_h if self.cost_usd is None else self.cost_usd

    def machines(self, context: Context) -> Given:
        """Its machines as every other answer knows them."""
        node = self.offer.node
        machine = machine_of(self.offer, self.node_count * node.accelerator_count, context)
        nic_bytes_per_s = node.nic_bytes_per_s / node.accelerator_count
        return Given(self.offer.accelerator, node, machine, nic_bytes_per_s, self.cluster)


Tried = TypeVar("Tried", bound=MachineTrial)


@dataclass(frozen=True, slots=True)
class MachineChoice(Generic[Tried]):
    """The chosen machines of one run, and everything that lost."""

    entry: TrainingRun
    chosen: Tried
    others: tuple[Tried, ...]
    left_out: tuple[Loser, ...]


def preferred(trials: Sequence[Tried]) -> tuple[Tried, tuple[Tried, ...]] | None:
    """The trial to choose and all others; None where none meets memory, deadline and budget."""
    meeting = [trial for trial in trials if not trial.misses]
    if not meeting:
        return None
    chosen = min(meeting, key=_preference)
    return chosen, tuple(trial for trial in trials if trial is not chosen)


def _preference(trial: MachineTrial) -> tuple[bool, bool, bool, float, float]:
    """The size asked first, then own machines, then the cheapest; without a price the fewest hours."""
    assert trial.run
    asked = trial.offer.fixed_count is None or trial.offer.fixed_count == trial.node_count
    hours = trial.run.total_accelerator_h
    priced = trial.cost_usd is not None or trial.offer.owned
    return (not asked, not trial.offer.owned, not priced, trial.cost_usd or 0.0, hours)


def run_misses(entry: TrainingRun, run: RunPlan, cost_usd: float | None, budget_usd: float | None) -> str:
    """What a run misses, deadline or budget, in words; "" when it meets both."""
    limit_s = entry.time_limit_s
    if limit_s is not None and run.total_s > limit_s:
        return f"{format_seconds(run.total_s)} misses {format_seconds(limit_s)}"
    if cost_usd is not None and budget_usd is not None and cost_usd > budget_usd:
        return f"{format_usd(cost_usd)} exceeds {format_usd(budget_usd)}"
    return ""


def closest_misses(trials: Sequence[MachineTrial]) -> tuple[tuple[str, str], ...]:
    """The lines of a refusal: what the fastest trial needs, and how far off the nearest are."""
    nearest = sorted(trials, key=lambda trial: trial.total_s)[:SHOWN_MISSES]
    fastest = nearest[0]
    assert fastest.run
    needs = f"{fastest.run.base_accelerator_h:,.0f} accelerator-hours at {fastest.text}"
    tried = [("" if at else "tried", f"{trial.text}: {trial.misses}") for at, trial in enumerate(nearest)]
    return (("needs", needs), *tried)


def losers(choice: MachineChoice[Tried], alike: Callable[[Tried], str]) -> list[Loser]:
    """The best of the other trials that are `alike`, the cheapest first, and what was not tried."""
    best: dict[str, Tried] = {}
    for trial in sorted(choice.others, key=_loser_order):
        best.setdefault(alike(trial), trial)
    lost = [Loser(trial.text, trial.misses or _compared(trial, choice.chosen)) for trial in best.values()]
    return [*lost, *choice.left_out]


def _loser_order(trial: MachineTrial) -> tuple[bool, float]:
    return (bool(trial.misses), trial.cost_usd or trial.total_s)


def _compared(trial: MachineTrial, chosen: MachineTrial) -> str:
    """How long another trial takes, and how much dearer it is."""
    assert trial.run and chosen.run
    if trial.cost_usd is not None and chosen.cost_usd:
        more = f"{format_usd(trial.cost_usd)} ({100 * (trial.cost_usd / chosen.cost_usd - 1):+,.0f} %)"
    else:
        hours = trial.run.total_accelerator_h / chosen.run.total_accelerator_h - 1
        more = f"{100 * hours:+,.0f} % accelerator-hours"
    return f"{format_seconds(trial.run.total_s)}, {more}"


def front(choice: MachineChoice[Tried]) -> tuple[FrontPoint, ...]:
    """Sizes and machines that no other beats in time, cost and count at once, fastest first."""
    trials = sorted(
        (trial for trial in (choice.chosen, *choice.others) if trial.run), key=lambda trial: trial.total_s
    )
    axes = [(trial.total_s, trial.cost, trial.cluster.accelerator_count) for trial in trials]
    return tuple(
        FrontPoint(trial.described, mine[2], trial.total_s, trial.cost_usd, not trial.misses)
        for trial, mine in zip(trials, axes, strict=True)
        if not any(
            theirs != mine and all(a <= b for a, b in zip(theirs, mine, strict=True)) for theirs in axes
        )
    )


def rivals(choice: MachineChoice[Tried]) -> list[Tried]:
    """Other trials that could be chosen for their price; none where price did not choose."""
    if choice.chosen.cost_usd is None or choice.chosen.offer.fixed_count:
        return []
    return [trial for trial in choice.others if not trial.misses and trial.cost_usd is not None]


def cheaper_fraction(own: NDArray[np.float64], costs: Sequence[NDArray[np.float64]]) -> float:
    """In what part of the draws another machine costs less by more than is worth saying."""
    return flip_fraction(own, np.stack(costs, axis=1) * WORTH_SWITCHING) if costs else 0.0
