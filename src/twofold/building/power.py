"""Power, a year of energy, water and carbon, and what steps and caps do, for a plan's servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from twofold.answer import Context
from twofold.building.cooling import CoolingKind, pue, wue_l_per_kwh
from twofold.building.delivery import (
    capped,
    cleanest_hours,
    provision,
    rack_feed,
    redundancy,
    step_load,
    year_of,
)
from twofold.building.entries import NOWHERE, Entry, grid_gco2_per_kwh, usd_per_kwh
from twofold.building.node_power import idle_w, planned_w, resting_w, serving_w, training_peak_w
from twofold.building.racks import climate, in_use_w
from twofold.catalog import figure
from twofold.contracts.results import ServicePlan, TrainingPlan, premises
from twofold.core import J_PER_KWH, YEAR_S, Estimate, Source
from twofold.twin.serving import Profile, hourly_weights

MONTHS = 12
USUAL_CAP_FRACTION = 0.8  # shown where the spec caps nothing: what a fifth less would do
BOUND_STEP = 1 - 1 / 1.2  # a bound's gain is of 20 % more of its resource
CLEAN_HOURS = 6


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Facility over IT power and site water, and where both are from."""

    pue_ratio: float
    wue_l_per_kwh_mean: float
    source: str


def efficiency(entry: Entry, kind: CoolingKind, context: Context) -> Efficiency:
    """The spec's PUE; of rented machines the region's, of others by cooling and climate."""
    told, weather = context.spec.facility, climate(entry, context)
    by_kind = told.cooling is not None or entry.region is None or entry.owned
    if by_kind or entry.region is None:
        ratio, water = pue(context.catalog, kind, weather), wue_l_per_kwh(context.catalog, kind, weather)
        source = f"{kind.replace('_', ' ')}, {weather}"
    else:
        ratio, water = entry.region.pue, entry.region.wue_l_per_kwh
        source = f"{entry.region.provider}:{entry.region.name}"
    if told.pue_ratio is not None:
        return Efficiency(told.pue_ratio, water, "the spec")
    return Efficiency(ratio, water, source)


def power(
    found: Sequence[Entry],
    groups: Sequence[premises.RackGroup],
    built: Sequence[premises.BuiltNetwork],
    kinds: dict[str, CoolingKind],
    context: Context,
) -> premises.BuiltPower:
    """What the building delivers: breakers by the vendors' maximum, the meter by what cooling adds."""
    halves = {"training": 0.0, "serving": 0.0}
    meter_w = 0.0
    for entry in found:
        it_w = it_power_w(entry, built, context)
        halves[entry.servers.use] += it_w
        meter_w += it_w * efficiency(entry, kinds[entry.name], context).pue_ratio
    it_w = sum(halves.values())
    need = provision(context.catalog, halves["training"], halves["serving"], meter_w / it_w)
    tier = redundancy(context.catalog, context.spec.facility.tier)
    swings = tuple(_swing(entry, context) for entry in found)
    per_minute = figure(context.catalog, "power", "utility ramp limit (of the site's load per minute)").value
    largest = max(found, key=lambda entry: it_power_w(entry, built, context))
    return premises.BuiltPower(
        it_w,
        need.expected_peak_w,
        _summed([in_use_w(entry, context).times(entry.servers.count) for entry in found], "W"),
        meter_w,
        meter_w / it_w,
        efficiency(largest, kinds[largest.name], context).source,
        context.spec.facility.power_cap_w,
        tuple(rack_feed(context.catalog, each.name, each.rack_w) for each in groups if each.rack_w > 0),
        swings,
        it_w * per_minute,
        need.ride_through_j,
        tuple(trade for entry in found if (trade := _cap(entry, context))),
        context.spec.facility.tier,
        tier.scheme,
        tier.availability_fraction,
        tier.down_h_per_year,
        tier.capex_factor,
    )


def year(
    found: Sequence[Entry],
    built: Sequence[premises.BuiltNetwork],
    kinds: dict[str, CoolingKind],
    context: Context,
) -> premises.BuildingYear:
    """Energy, water and carbon of a year, each run and service by its own region and cooling."""
    parts = []
    for entry in found:
        mean, own = mean_it_w(entry, built, context), efficiency(entry, kinds[entry.name], context)
        peak_w = monthly_peak_w(entry, built, context)
        told = year_of(
            context.catalog,
            mean.value,
            peak_w,
            pue_ratio=own.pue_ratio,
            wue_l_per_kwh=own.wue_l_per_kwh_mean,
            usd_per_kwh=usd_per_kwh(entry.region, context),
            grid_gco2_per_kwh=grid_gco2_per_kwh(entry.region, context),
            hourly_shape=_shape(entry),
            demand_charge=entry.owned,  # a landlord's bill holds it already
        )
        spread = mean.low / mean.value, mean.high / mean.value
        parts.append((entry, told, spread))
    largest = max(parts, key=lambda each: each[1].it_kwh)[0]
    region = largest.region
    grid = grid_gco2_per_kwh(region, context)
    it_kwh = sum(told.it_kwh for _, told, _ in parts)
    return premises.BuildingYear(
        it_kwh * J_PER_KWH,
        _year_sum([(told.meter_kwh * J_PER_KWH, spread) for _, told, spread in parts], "J"),
        usd_per_kwh(region, context),
        _year_sum([(told.energy_usd, spread) for _, told, spread in parts], "USD"),
        sum(told.demand_usd for _, told, _ in parts),
        sum(told.water_l for _, told, _ in parts) / it_kwh,
        sum(told.water_l for _, told, _ in parts),
        grid,
        _year_sum([(told.carbon_g, spread) for _, told, spread in parts], "gCO2"),
        tuple(float(hour) for hour in np.sum([told.by_hour_gco2 for _, told, _ in parts], axis=0)),
        cleanest_hours(context.catalog, grid, CLEAN_HOURS),
        f"{region.provider}:{region.name}" if region else NOWHERE,
    )


def monthly_peak_w(entry: Entry, built: Sequence[premises.BuiltNetwork], context: Context) -> float:
    """The mean of the months' peaks: a run's own in the months in which it works, rest in the others."""
    peak_w = it_power_w(entry, built, context)
    if not isinstance(entry.part, TrainingPlan) or entry.guests:
        return peak_w
    spec = next(each for each in context.spec.training if each.name == entry.name)
    times = YEAR_S / spec.repeats_every_s if spec.repeats_every_s else 1.0
    months = min(float(MONTHS), max(1.0, times) * ceil(entry.part.run.total_s.value / (YEAR_S / MONTHS)))
    return (months * peak_w + (MONTHS - months) * rest_w(entry, built, context).value) / MONTHS


def it_power_w(entry: Entry, built: Sequence[premises.BuiltNetwork], context: Context) -> float:
    """Servers at their maximum with network and storage.

    Networks count as built; where that is less than what bills of materials show, their share is taken.
    """
    servers_w = entry.servers.count * planned_w(entry.power)
    return servers_w + _beside_w(entry, servers_w, built, context)


def mean_it_w(entry: Entry, built: Sequence[premises.BuiltNetwork], context: Context) -> Estimate:
    """The mean of a year: rented machines draw while they are yours, your own rest besides and all year."""
    if entry.owned:
        works = [work_w(each, context) for each in (entry, *entry.guests)]
        return _summed([rest_w(entry, built, context), *works], "W")
    share = entry.busy_fraction if entry.servers.use == "training" else 1.0
    beside_w = _beside_w(entry, entry.servers.count * planned_w(entry.power), built, context)
    return _plus(in_use_w(entry, context).times(entry.servers.count * share), beside_w * share)


def rest_w(entry: Entry, built: Sequence[premises.BuiltNetwork], context: Context) -> Estimate:
    """What machines of one's own draw where nothing works on them, with their network and storage."""
    count = entry.servers.count
    beside_w = _beside_w(entry, count * planned_w(entry.power), built, context)
    return _plus(resting_w(context.catalog, entry.power).times(count), beside_w)


def work_w(entry: Entry, context: Context) -> Estimate:
    """What work on machines of one's own adds over their rest, in the mean of a year.

    Formula  (draw in use − draw at rest) · accelerators in use / accelerators of a server · share of the year
    Limits   at least 0; accelerators that a service does not use rest with their share of the server.
    """
    share = entry.busy_fraction if entry.servers.use == "training" else 1.0
    servers = entry.machine.accelerator_count / entry.servers.node.accelerator_count
    works, rest = in_use_w(entry, context), resting_w(context.catalog, entry.power).value
    low, middle, high = (max(watts - rest, 0.0) for watts in (works.low, works.value, works.high))
    return Estimate(middle, low, high, "W", works.source).times(servers * share)


def _beside_w(
    entry: Entry, servers_w: float, built: Sequence[premises.BuiltNetwork], context: Context
) -> float:
    share = figure(context.catalog, "power_fraction", "network and storage share of IT power").low
    networks_w = sum(each.power_w for each in built if each.name == entry.name)
    return max(networks_w, servers_w * share / (1 - share))


def _swing(entry: Entry, context: Context) -> premises.Swing:
    """A run steps between its peak and rest, a service between its busiest and its quietest hour."""
    count, training = entry.servers.count, entry.servers.use == "training"
    if training:
        busy, rest = training_peak_w(context.catalog, entry.power), idle_w(context.catalog, entry.power)
    else:
        shape = _shape(entry)
        busy = serving_w(context.catalog, entry.power, 1.0).value
        rest = serving_w(context.catalog, entry.power, min(shape) / max(shape)).value
    return step_load(context.catalog, entry.name, count * busy, count * rest, training)


def _cap(entry: Entry, context: Context) -> premises.CapTrade | None:
    """What a cap on the accelerators costs here: only the part that computes waits for the clock."""
    told = context.spec.facility.accelerator_cap_fraction
    item = "GPU, LLM training steady (of TDP)"
    if entry.servers.use == "serving":
        item = "GPU, inference token phase (of TDP)"
    draw = figure(context.catalog, "power_fraction", item).value
    idle = entry.power.accelerators_idle_w / entry.power.accelerators_w
    cap = told if told is not None else USUAL_CAP_FRACTION * draw
    if not idle < cap or entry.power.accelerators_w <= 0:
        return None
    gain = sum(bound.gain_fraction for bound in entry.part.bounds if bound.resource == "compute")
    other = in_use_w(entry, context).value / entry.power.accelerators_w - draw
    trade = capped(cap, draw, idle, min(1.0, gain / BOUND_STEP), max(other, 0.0))
    saved_w = max(draw - cap, 0.0) * entry.power.accelerators_w / entry.power.supply_efficiency_fraction
    return premises.CapTrade(
        entry.name,
        cap,
        saved_w * entry.servers.count,
        trade.throughput_fraction,
        trade.energy_per_work_fraction,
    )


def _shape(entry: Entry) -> tuple[float, ...]:
    """The mean day of an entry's load over its own mean: flat for runs, by traffic for services."""
    part = entry.part
    if not isinstance(part, ServicePlan) or not part.classes:
        return (1.0,) * 24
    days = []
    for each in part.classes:
        ratio = each.peak_per_s / each.rate_per_s if each.rate_per_s > 0 else 1.0
        week = np.asarray(hourly_weights(Profile(each.profile), ratio))
        days.append(np.full(24, 1.0) if week.size == 1 else week.reshape(7, 24).mean(axis=0))
    return tuple(float(hour) for hour in np.mean(days, axis=0))


def _plus(estimate: Estimate, more: float) -> Estimate:
    ends = (estimate.value + more, estimate.low + more, estimate.high + more)
    return Estimate(*ends, estimate.unit, estimate.source)


def _summed(parts: Sequence[Estimate], unit: str) -> Estimate:
    middle, low, high = (sum(getattr(part, end) for part in parts) for end in ("value", "low", "high"))
    return Estimate(middle, low, high, unit, Source.ASSUMED)


def _year_sum(parts: Sequence[tuple[float, tuple[float, float]]], unit: str) -> Estimate:
    middle = sum(value for value, _ in parts)
    low = sum(value * spread[0] for value, spread in parts)
    high = sum(value * spread[1] for value, spread in parts)
    return Estimate(middle, min(low, middle), max(high, middle), unit, Source.ASSUMED)
