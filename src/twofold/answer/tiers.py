"""CPU tiers before a service's replicas: how many servers, what they add to first tokens, what they cost."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from twofold.answer.context import Context
from twofold.catalog.capacity import row_of
from twofold.catalog.places import best_price
from twofold.contracts.goals import QUANTILES
from twofold.contracts.results.serving import TierPlan
from twofold.contracts.spec.service import Service
from twofold.contracts.spec.tier import Tier
from twofold.core.display import format_seconds, format_si
from twofold.core.errors import InfeasibleError, ValueRefusedError
from twofold.core.quantity import YEAR_H
from twofold.inference import stations
from twofold.inference.latency import Latency
from twofold.perf.types import one

EXACT = 1e-9  # of a rate: what rounding leaves


def tier_plans(entry: Service, rate_per_s: float, context: Context) -> tuple[TierPlan, ...]:
    """Each tier of a service at a rate of all its classes: sized where the spec leaves that open.

    Raises InfeasibleError for one that does not carry the rate within its goal, ValueRefusedError for a
    processor that is none or has fewer cores.
    """
    return tuple(_planned(entry, name, tier, rate_per_s, context) for name, tier in entry.before.items())


def _planned(entry: Service, name: str, tier: Tier, rate_per_s: float, context: Context) -> TierPlan:
    work = tier.mean_s, tier.late_s
    each = min(tier.cores, tier.limit)
    told = tier.replicas or len(tier.urls) or None
    count = told or stations.fewest_servers(rate_per_s, tier.goal_s, *work, each)
    if count is None:
        what = f"no number of servers carries {format_si(rate_per_s, '1/s')} through `{name}` in time"
        raise InfeasibleError(what, hint=f"ask for more than {format_seconds(tier.goal_s)} by `p95`")
    places = count * each
    holds = stations.rate_within(tier.goal_s, *work, places)
    if holds < rate_per_s * (1.0 - EXACT):
        raise _too_few(entry, name, tier, (count, rate_per_s, holds))
    found = stations.station_latency(rate_per_s, *work, places)
    usd, whose = _price(entry, name, tier, context)
    return TierPlan(
        name=name,
        cores=tier.cores,
        replica_count=count,
        in_flight_limit=tier.limit,
        queue_limit_count=tier.queue_count,
        peak_per_s=rate_per_s,
        work_s=work[0],
        work_s_p95=work[1],
        mean_s=one(found.mean_s),
        p50_s=one(found.p50_s),
        p95_s=one(found.p95_s),
        p99_s=one(found.p99_s),
        goal_s=tier.goal_s,
        holds_until_per_s=holds,
        utilisation_fraction=rate_per_s * work[0] / places,
        is_sized=told is None,
        accelerator=tier.on,
        usd_per_core_h=usd,
        price_from=whose,
        cost_usd_per_year=None if usd is None else usd * tier.cores * count * YEAR_H,
    )


def _too_few(entry: Service, name: str, tier: Tier, at: tuple[int, float, float]) -> InfeasibleError:
    """What the spec's own number of servers carries, and how many would do."""
    count, rate_per_s, holds = at
    enough = stations.fewest_servers(
        rate_per_s, tier.goal_s, tier.mean_s, tier.late_s, min(tier.cores, tier.limit)
    )
    asked, carried = format_si(rate_per_s, "1/s"), format_si(holds, "1/s")
    cores = f"{tier.cores} core{'s' if tier.cores != 1 else ''}"
    servers = f"{count} replica{'s' if count != 1 else ''} of {cores}"
    told = f"{servers} carry {carried} within p95 {format_seconds(tier.goal_s)}, {asked} come at the peak"
    key = "urls" if tier.urls else "replicas"
    fits = f"{key}: {enough}" if key == "replicas" else f"{enough} URLs"
    return InfeasibleError(
        f"the CPU tier `{name}` is the bottleneck of `{entry.name}`",
        lines=(("binds", told), *((("would fit", fits),) if enough else ())),
        hint=f"write {fits}, or leave `replicas` out and let the plan say" if enough else "",
    )


def _price(entry: Service, name: str, tier: Tier, context: Context) -> tuple[float | None, str]:
    """Dollars of an hour of one core by the processor's cheapest list price, and whose that is."""
    if tier.on is None:
        return None, ""
    part = context.catalog.accelerator(tier.on)
    if part.family != "cpu" or not part.sm_count:
        raise ValueRefusedError(
            f"`{tier.on}`, on which tier `{name}` of `{entry.name}` runs, is no processor",
            hint="name one that `twofold catalog accelerators` has of the family cpu, or leave `on` out",
        )
    if tier.cores > part.sm_count:
        what = f"a replica of tier `{name}` has {tier.cores} cores, and `{tier.on}` has {part.sm_count}"
        raise ValueRefusedError(what, hint="write more replicas of fewer cores")
    shop = context.spec.supply.shop
    price = best_price(
        context.catalog,
        part.name,
        shop.terms,
        regions=entry.regions or shop.regions,
        exclude_providers=shop.exclude,
    )
    if price is None:
        return None, ""
    row = row_of(price.provider, price.instance, price.region, price.term)
    return price.usd_per_accelerator_h / part.sm_count, f"{row}, {price.date}"


def before_replicas(tiers: Sequence[TierPlan]) -> Latency | None:
    """What all tiers, one after the other, add to a request before a replica has it; None without any."""
    found = [Latency(each.mean_s, each.p50_s, each.p95_s, each.p99_s) for each in tiers]
    if not found:
        return None
    whole = reduce(stations.in_turn, found)
    return Latency(*(one(getattr(whole, f"{name}_s")) for name in ("mean", *QUANTILES)))


def binding(tiers: Sequence[TierPlan], replicas_ratio: float) -> tuple[TierPlan, ...]:
    """The tiers, that one marked which stops more load before the others and before any replica does.

    `replicas_ratio`: of the peak, what the replicas still hold.
    """
    ratios = [each.holds_until_per_s / each.peak_per_s for each in tiers]
    least = min(ratios, default=replicas_ratio)
    first = ratios.index(least) if least < replicas_ratio else -1
    return tuple(replace(each, is_bottleneck=number == first) for number, each in enumerate(tiers))


def tier_warnings(entry: Service, tiers: Sequence[TierPlan]) -> tuple[str, ...]:
    """Which tier binds before the accelerators, and what has no price."""
    bound = [
        f"`{each.name}` is the bottleneck: it holds to {format_si(each.holds_until_per_s, '1/s')} of all"
        f" classes, less than the replicas of `{entry.name}` do"
        for each in tiers
        if each.is_bottleneck
    ]
    unpriced = [each.name for each in tiers if each.usd_per_core_h is None]
    if unpriced:
        bound.append(f"no price for the CPU servers of {', '.join(unpriced)}: they are in no cost")
    return tuple(bound)
