"""Ways to lease what one run or service needs: an offer, units hour by hour, and what its year costs.

A service takes whole replicas of the pools that a plan describes, as many as each hour of its day and season
asks for; what is by the hour goes back when it is idle, what is reserved is held for the busiest hour.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from twofold.answer.context import Context
from twofold.answer.measured_training import run_total
from twofold.answer.offers import Offer
from twofold.answer.serving_choice import Held, ServingChoice
from twofold.answer.training_choice import TrainingChoice, Trial
from twofold.catalog.file_system import file_system
from twofold.core.quantity import YEAR_H, YEAR_S
from twofold.inference.fleet import ReplicaCount
from twofold.inference.search import Fleet, PoolChoice, servers_of
from twofold.perf.types import one
from twofold.portfolio.capacity import BYTES_PER_TB, late_s, moved_weights_tb, promise_of
from twofold.portfolio.demand import (
    WEEK_COUNT,
    ClassDemand,
    batch_of,
    class_demands,
    demand_of,
    first_day,
    repeats_of,
)
from twofold.portfolio.listed import MAY_VANISH, price_of, serves
from twofold.portfolio.offers import NodeOffer, may_join, paid_unit_h, stands_in
from twofold.portfolio.problem import (
    DAY_H,
    HOUR_S,
    WEEK_H,
    CapacityOffer,
    Floats,
    end_of,
    is_hourly,
    unit_usd_per_h,
)

QUIET = np.zeros((WEEK_COUNT, DAY_H))


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """One lease that does a run or a service, or two: some units all year, and the others by the hour."""

    name: str  # of the run or service
    offer: CapacityOffer
    machine: Offer  # as the models see it, at the price of the lease
    work: Fleet | Trial
    usd: float  # of the first year: rent after discount with support, egress, and the file system of a run
    held: Held | None = None  # of a service: how much of its fleet, and when
    base: CapacityOffer | None = None  # of what is held all year under the rest

    @property
    def leases(self) -> tuple[tuple[CapacityOffer, int], ...]:
        """Each offer with its units, at most at once."""
        if self.held is None:
            return ((self.offer, self.work.node_count if isinstance(self.work, Trial) else 0),)
        count = self.held.base_count
        rest = (self.offer, self.held.unit_count - count)
        return ((self.base, count), rest) if self.base else (rest,)


def service_ways(choice: ServingChoice, offers: Sequence[NodeOffer], context: Context) -> Iterator[Way]:
    """Every offer on which a service's fleet may stand all year, within what it promises its users.

    And every two of one kind of machine, one of them held all year, where they cost less than either alone.
    """
    wanted, fleet = class_demands(choice), choice.fleet
    machine = choice.offers[fleet.pools[0].offer]
    if machine.price is None:  # your own, or nobody sells it
        return
    hours = [_accelerators(pool, choice, wanted, context) for pool in fleet.pools]
    sent_tb = _sent_tb(wanted, context)
    fleets: dict[int, list[NodeOffer]] = {}  # by the accelerators of a unit
    for each in offers:
        offer = each.offer
        whole_year = offer.first_week == 0 and end_of(offer, WEEK_COUNT) == WEEK_COUNT
        if (
            whole_year
            and serves(offer)
            and stands_in(each, choice.entry, context)
            and all(_has_room(each, machine, pool) for pool in fleet.pools)
            and not _is_late(fleet, wanted, offer, context)
        ):
            fleets.setdefault(offer.accelerator_count, []).append(each)
    for size, group in fleets.items():
        used = _Used(choice, machine, hours, np.ceil(sum(hours, QUIET) / size - 1e-9), sent_tb)
        alone = [
            _held(each, used) for each in group if int(used.units.max()) <= (each.offer.unit_limit or inf)
        ]
        yield from alone
        yield from _mixed(group, used, alone)


@dataclass(frozen=True, slots=True, eq=False)
class _Used:
    """A service's fleet on units of one size."""

    choice: ServingChoice
    machine: Offer
    hours: Sequence[Floats]  # accelerators of each pool
    units: Floats  # (weeks, hours): whole ones, all pools together
    sent_tb: float  # in a year


def _is_such(each: NodeOffer, machine: Offer) -> bool:
    """Whether an offer's machines are those that were searched, whoever sells them; or named by the spec."""
    offer, named = each.offer, machine.fixed_count is not None
    same = offer.accelerator_count == machine.node.accelerator_count
    # A quote does not say whether its machines are virtual: they are taken to be as those searched.
    quoted = offer.source.startswith("quote")
    alike = same if named else quoted or each.node.virtualised == machine.node.virtualised
    return offer.tenure != "owned" and offer.accelerator == machine.accelerator.name and alike


def _has_room(each: NodeOffer, machine: Offer, pool: PoolChoice) -> bool:
    """Whether a replica stands on one unit; one over several servers wants the very servers and fabric."""
    size, server = one(pool.replica.accelerator_count), machine.node.accelerator_count
    same = each.offer.accelerator_count == server and each.node.fabric == machine.node.fabric
    return _is_such(each, machine) and (same if size > server else size <= each.offer.accelerator_count)


def _is_late(fleet: Fleet, wanted: Sequence[ClassDemand], offer: CapacityOffer, context: Context) -> bool:
    """Whether the way to some users leaves too little of what is promised to them."""
    pools = {name: pool for pool in fleet.pools for name in pool.classes}
    for each in wanted:
        promise, late = promise_of(each), late_s(each, pools[each.load.name], offer, context)
        if promise is not None and late is not None and late > promise[1]:
            return True
    return False


def _held(each: NodeOffer, used: _Used, base: NodeOffer | None = None, base_count: int = 0) -> Way:
    """The fleet of a service on units of an offer; so many of `base` are held all year under them."""
    offer, fleet, units = each.offer, used.choice.fleet, np.maximum(used.units, base_count)
    if not is_hourly(offer):  # held by the week, or all year
        most = units.max(axis=1, keepdims=True) if offer.minimum_weeks <= 1 else units.max()
        units = np.broadcast_to(most, units.shape)
    mean, count = float(units.mean()), int(units.max())
    paid = mean * offer.accelerator_count / float(sum(used.hours, QUIET).mean())
    fractions = {
        pool.classes[0]: float(own.mean()) * paid / pool.accelerators
        for pool, own in zip(fleet.pools, used.hours, strict=True)
    }
    usd = unit_usd_per_h(offer) * (mean - base_count) * YEAR_H
    egress_usd, share = used.sent_tb * offer.egress_usd_per_tb, 0.0
    if base:
        share = float(np.minimum(used.units, base_count).sum() / used.units.sum())
        usd += unit_usd_per_h(base.offer) * base_count * YEAR_H
        egress_usd += share * used.sent_tb * (base.offer.egress_usd_per_tb - offer.egress_usd_per_tb)
    usd += egress_usd
    under = leased_machine(used.machine, base) if base else None
    held = Held(count, mean / count, fractions, usd, under, base_count, share)
    machine = leased_machine(used.machine, each)
    return Way(used.choice.entry.name, offer, machine, fleet, usd, held, base.offer if base else None)


def _mixed(group: Sequence[NodeOffer], used: _Used, alone: Sequence[Way]) -> Iterator[Way]:
    """Two offers of one kind of machine, where they cost less than either of their providers alone.

    Formula  base = argmin over b of b · held + mean over hours of max(0, units − b) · hourly
    Why      What is used in more of the hours than the held price is of the hourly one is cheaper held.
    Limits   of each provider the cheapest of either kind; the base is the same all year.
    """
    least: dict[str, float] = {}
    for way in alone:
        least[way.offer.provider] = min(way.usd, least.get(way.offer.provider, inf))
    cheapest: dict[tuple[bool, str], NodeOffer] = {}
    for each in sorted(group, key=lambda each: (unit_usd_per_h(each.offer), each.offer.name)):
        cheapest.setdefault((is_hourly(each.offer), each.offer.provider), each)
    most, counts = int(used.units.max()), np.unique(used.units)
    for (is_rest, provider), rest in cheapest.items() if most > 1 else ():
        for (is_base_hourly, other), base in cheapest.items():
            if not is_rest or is_base_hourly:
                continue
            low = max(1, most - (rest.offer.unit_limit or most))
            high = min(most - 1, base.offer.unit_limit or most)
            tried = np.unique([low, high, *counts[(counts > low) & (counts < high)]])
            over = np.maximum(0.0, used.units.ravel()[:, None] - tried).mean(axis=0)
            costs = tried * unit_usd_per_h(base.offer) + over * unit_usd_per_h(rest.offer)
            mix = _held(rest, used, base, int(tried[costs.argmin()]))
            if low <= high and mix.usd < min(least.get(provider, inf), least.get(other, inf)):
                yield mix


def _sent_tb(wanted: Sequence[ClassDemand], context: Context) -> float:
    """What a year's answers are on the wire."""
    tokens = sum(
        one(demand.load.traffic.lengths.output_tokens) * demand.load.mean_rate_per_s * demand.share_fraction
        for demand in wanted
    )
    sent_bytes = context.catalog.economic("bytes of a streamed token").value
    return tokens * sent_bytes * YEAR_S / BYTES_PER_TB


def _accelerators(
    pool: PoolChoice, choice: ServingChoice, wanted: Sequence[ClassDemand], context: Context
) -> Floats:
    """(weeks, hours) accelerators of a pool, spares with them; work of a day in its quietest hours alone."""
    rates = {
        each.name: demand_of(each, choice.entry, context.spec, 1.0, None).rate_per_s
        for each in wanted
        if not each.load.is_batch
    }
    size = one(pool.replica.accelerator_count)
    for each in wanted:
        if each.load.is_batch and each.load.name in pool.classes:
            quiet = sum((rate.mean(axis=0) for rate in rates.values()), np.zeros(DAY_H))
            used = QUIET.copy()
            used[:, list(batch_of(each, quiet).hours)] = pool.count.total * size
            return used
    own = [rates[each.name] for each in wanted if each.load.name in pool.classes]
    rate = sum(own, QUIET)
    servers = int(servers_of(pool.replica, choice.offers[pool.offer].node.accelerator_count)[0])
    shares, places = np.unique(np.round(rate / max(rate.max(), 1e-12), 6), return_inverse=True)
    counts = [_replica_count(pool, float(share), servers, choice) for share in shares]
    return np.array(counts, float)[places].reshape(rate.shape) * size


def _replica_count(pool: PoolChoice, share: float, servers: int, choice: ServingChoice) -> int:
    """Replicas with spares at a share of the peak, by the rule that sized the peak: one at least, no more."""
    share = max(share, 1e-9)
    count = ReplicaCount.of(
        share * pool.count.needed * pool.filled_fraction,
        1.0,
        servers,
        zones=pool.count.zones,
        availability_fraction=choice.entry.availability_fraction,
        at_once_count=share * pool.at_once_count,
    )
    return min(count.total, pool.count.total)


def run_ways(choice: TrainingChoice, offers: Sequence[NodeOffer], context: Context) -> Iterator[Way]:
    """Every offer by the hour on which the best size of a machine may be rented for as long as it takes."""
    moved_tb = moved_weights_tb(float(choice.job.model.parameters), choice.job.kind)
    times = repeats_of(choice.entry, first_day(context.spec))
    for trial in _best_sizes(choice, context):
        machine = trial.offer
        assert trial.run
        for each in offers:
            offer = each.offer
            if (
                _is_such(each, machine)
                and is_hourly(offer)
                and offer.term not in MAY_VANISH
                and all(_is_had(offer, each.first_week, trial) for each in times)
                and offer.accelerator_count == machine.node.accelerator_count
                and may_join(each, machine.node, trial.node_count)
                and stands_in(each, choice.entry, context)
            ):
                paid_h = paid_unit_h(each, trial.node_count, trial.run.total_s / HOUR_S, context.catalog)
                usd = unit_usd_per_h(offer) * paid_h + moved_tb * offer.egress_usd_per_tb
                saved = trial.run.checkpoint_bytes, trial.run.storage.needed_bytes_per_s
                store = file_system(*saved, choice.entry.kind, offer.provider, context.catalog)
                usd += store.usd(trial.run.total_s) if store else 0.0
                leased = leased_machine(machine, each)
                work = replace(trial, offer=leased, cost_usd=paid_h * offer.usd_per_unit_h)
                yield Way(choice.entry.name, offer, leased, work, usd * choice.entry.runs_per_year)


def _is_had(offer: CapacityOffer, first_week: int, trial: Trial) -> bool:
    """Whether an offer is to be had from a run's first week until it is over."""
    assert trial.run
    last = first_week + trial.run.total_s / (WEEK_H * HOUR_S)
    return offer.first_week <= first_week and last <= end_of(offer, WEEK_COUNT)


def _best_sizes(choice: TrainingChoice, context: Context) -> Iterable[Trial]:
    """The chosen trial, and of every other machine the cheapest that ends in time as surely as asked.

    Where a day has a value the choice was made with it, which leases do not know: it stays.
    """
    chosen = choice.chosen
    found = {_machine_of(chosen): chosen}
    if chosen.offer.price is None or chosen.offer.fixed_count is not None:
        return found.values() if chosen.offer.price else ()
    if choice.entry.time_value_usd_per_d:
        return found.values()
    surely = min(_in_time(choice, chosen, context), context.spec.margin_fraction or 0.0)
    priced = [each for each in choice.others if each.run and not each.misses and each.cost_usd is not None]
    for trial in sorted(priced, key=lambda each: (each.cost_usd or 0.0) + each.beside_usd):
        kind = _machine_of(trial)
        if kind not in found and _in_time(choice, trial, context) >= surely:
            found[kind] = trial
    return found.values()


def _machine_of(trial: Trial) -> tuple[str, str]:
    """The accelerator and, where several nodes are joined, by what."""
    return trial.offer.accelerator.name, trial.offer.node.fabric if trial.node_count > 1 else ""


def _in_time(choice: TrainingChoice, trial: Trial, context: Context) -> float:
    """With which probability a run ends in time on other machines than the chosen."""
    limit_s = choice.entry.time_limit_s
    if limit_s is None or context.spec.margin_fraction is None:
        return 1.0
    return run_total(replace(choice, chosen=trial), context).probability_within(limit_s)


def leased_machine(machine: Offer, each: NodeOffer) -> Offer:
    """The same machine at the price and the terms of another offer."""
    offer = each.offer
    node = replace(each.node, virtualised=machine.node.virtualised)
    return replace(
        machine,
        node=machine.node if machine.fixed_count else node,
        price=price_of(offer, each.price_region),
        discount_fraction=offer.discount_fraction,
        support_fraction=offer.support_fraction,
        egress_usd_per_tb=offer.egress_usd_per_tb,
        quoted_count=offer.unit_limit and offer.unit_limit * offer.accelerator_count,
    )
