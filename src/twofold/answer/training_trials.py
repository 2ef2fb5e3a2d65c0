"""What trials of machines for one training run have in common: which is chosen, what the others lost by."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from twofold.answer.context import Context, machine_of
from twofold.answer.free_hours import Calendar
from twofold.answer.offers import Offer
from twofold.answer.question import Given
from twofold.answer.uncertainty import flip_fraction
from twofold.catalog.capacity import supplied
from twofold.catalog.catalog import Catalog
from twofold.catalog.file_system import file_system
from twofold.contracts.results.parts import FrontPoint, Loser
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.display import format_seconds, format_usd
from twofold.core.quantity import DAY_S
from twofold.perf.types import Cluster
from twofold.training.run import RunPlan, RunWork, run_plan

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
    beside_usd: float  # of the file system that is rented with them

    @property
    def text(self) -> str:
        """How a reason names it: `32 × 8 H100-SXM5-80GB`."""
        return f"{self.node_count} × {self.offer.node.accelerator_count} {self.offer.accelerator.name}"

    @property
    def described(self) -> str:
        """How the front names it."""
        return self.text

    @property
    def size(self) -> tuple[str, str, str, int]:
        """Machines of which kind, and how many: of a mixed pool and of its parts apart."""
        offer = self.offer
        return offer.accelerator.name, offer.node.name, offer.note, self.cluster.accelerator_count

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
        offer, count = self.offer, self.node_count * self.offer.node.accelerator_count
        machine = machine_of(offer, count, context, is_job=True)
        return Given(offer.accelerator, offer.node, machine, offer.nic_bytes_per_s, self.cluster)


Tried = TypeVar("Tried", bound=MachineTrial)


@dataclass(frozen=True, slots=True)
class MachineChoice(Generic[Tried]):
    """The chosen machines of one run, and everything that lost."""

    entry: TrainingRun
    chosen: Tried
    others: tuple[Tried, ...]
    left_out: tuple[Loser, ...]
    margin_ratio: float = field(
        default=1.0, kw_only=True
    )  # of the deadline over when it is to end, see `sure_run`
    calendar: Calendar | None = field(default=None, kw_only=True)  # None: its machines are its own meanwhile
    # When each size of your own machines would end it beside others; None: as if alone.
    shared_s: Mapping[tuple[str, str, str, int], float] | None = field(default=None, kw_only=True)

    def ends_s(self, trial: MachineTrial) -> float:
        """When a trial of it is over; infinite where others leave it no hours."""
        if self.shared_s is None or not trial.offer.owned:
            return trial.total_s
        return self.shared_s.get(trial.size, np.inf)

    def own_sizes(self) -> Iterator[Self]:
        """The same run on every size of your own machines that was tried; on the one that is named alone."""
        every = (self.chosen, *self.others)
        for trial in every:
            offer = trial.offer
            if offer.owned and trial.run and offer.fixed_count in (None, trial.node_count):
                yield replace(self, chosen=trial, others=tuple(each for each in every if each is not trial))


def preferred(trials: Sequence[Tried], time_usd_per_d: float = 0.0) -> tuple[Tried, tuple[Tried, ...]] | None:
    """The trial to choose and all others; None where none meets memory, deadline and budget.

    The size asked comes first, then own machines, then the cheapest; without a price the fewest hours. Where
    a day has a value, own machines and rented ones are weighed together: rent + value of a day · days.
    """

    def preference(trial: Tried) -> tuple[bool, bool, bool, float, float]:
        assert trial.run
        asked = trial.offer.fixed_count is None or trial.offer.fixed_count == trial.node_count
        priced = trial.cost_usd is not None or trial.offer.owned
        hours = trial.run.total_accelerator_h
        usd = (trial.cost_usd or 0.0) + trial.beside_usd + time_usd_per_d * trial.total_s / DAY_S
        return (not asked, not trial.offer.owned and not time_usd_per_d, not priced, usd, hours)

    chosen = min((trial for trial in trials if not trial.misses), key=preference, default=None)
    if chosen is None:
        return None
    return chosen, tuple(trial for trial in trials if trial is not chosen)


def run_on(
    entry: TrainingRun,
    work: RunWork,
    step_s: float,
    offer: Offer,
    cluster: Cluster,
    catalog: Catalog,
    budget_usd: float | None = None,
) -> tuple[RunPlan, float | None, str, float]:
    """The run around a step, its cost, and what it misses, deadline or budget; "" when it meets both.

    And what its file system costs beside that.

    A contract is paid for its least term, however soon the run is over.
    """
    run = run_plan(work, step_s, cluster, entry.headroom.shares)
    limit_s, cost_usd, beside_usd = entry.time_limit_s, None, 0.0
    if offer.price is not None:
        saved = run.checkpoint_bytes, run.storage.needed_bytes_per_s
        store = file_system(*saved, entry.kind, offer.price.provider, catalog)
        beside_usd = store.usd(run.total_s) if store else 0.0
        can = supplied(offer.price, catalog)
        paid_h = can.paid_h(cluster.accelerator_count, run.total_accelerator_h)
        cost_usd = paid_h * offer.price.usd_per_accelerator_h
    misses = ""
    if limit_s is not None and run.total_s > limit_s:
        misses = f"{format_seconds(run.total_s)} misses {format_seconds(limit_s)}"
    elif cost_usd is not None and budget_usd is not None and cost_usd > budget_usd:
        misses = f"{format_usd(cost_usd)} exceeds {format_usd(budget_usd)}"
    return run, cost_usd, misses, beside_usd


def closest_misses(trials: Sequence[MachineTrial]) -> tuple[tuple[str, str], ...]:
    """The lines of a refusal: what the fastest trial needs, and how far off the nearest are."""
    nearest = sorted(trials, key=lambda trial: trial.total_s)[:SHOWN_MISSES]
    fastest = nearest[0]
    assert fastest.run
    needs = f"{fastest.run.base_accelerator_h:,.0f} accelerator-hours at {fastest.text}"
    tried = [("" if at else "tried", f"{trial.text}: {trial.misses}") for at, trial in enumerate(nearest)]
    return (("needs", needs), *tried)


def losers(choice: MachineChoice[Tried], alike: Callable[[Tried], str]) -> tuple[Loser, ...]:
    """The best of the other trials that are `alike`, the cheapest first, and what was not tried."""
    best: dict[str, Tried] = {}
    for trial in sorted(choice.others, key=lambda each: (bool(each.misses), each.cost_usd or each.total_s)):
        best.setdefault(alike(trial), trial)
    lost = (Loser(trial.text, trial.misses or _compared(trial, choice.chosen)) for trial in best.values())
    return (*lost, *choice.left_out)


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
    every = (trial for trial in (choice.chosen, *choice.others) if trial.run)
    trials = sorted((each for each in every if choice.ends_s(each) < np.inf), key=choice.ends_s)
    axes = [(choice.ends_s(trial), trial.cost, trial.cluster.accelerator_count) for trial in trials]
    hours = [trial.run.total_accelerator_h if trial.run else 0.0 for trial in trials]
    limit_s = choice.entry.time_limit_s or np.inf
    return tuple(
        FrontPoint(
            trial.described,
            mine[2],
            mine[0],
            trial.cost_usd,
            not trial.misses and mine[0] <= limit_s,
            worked_h,
        )
        for trial, mine, worked_h in zip(trials, axes, hours, strict=True)
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
