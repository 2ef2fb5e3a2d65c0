"""Power, a year of energy, water and carbon, and what steps and caps do, for a plan's servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import cast

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
from twofold.building.entries import Entry, electricity, grid_gco2_per_kwh
from twofold.building.node_power import resting_w, serving_w, training_peak_w
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
class Housed:
    """Runs and services with their racks and networks: what power, years and places are computed from."""

    entries: tuple[Entry, ...]
    groups: tuple[premises.RackGroup, ...]
    networks: tuple[premises.BuiltNetwork, ...]
    context: Context

    def cooling(self, entry: Entry) -> CoolingKind:
        """How the racks of a run or service are cooled."""
        return cast(CoolingKind, next(each.cooling for each in self.groups if each.name == entry.name))


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Facility over IT power and site water, and where both are from."""

    pue_ratio: float
    wue_l_per_kwh_mean: float
    source: str


def efficiency(entry: Entry, housed: Housed) -> Efficiency:
    """The spec's PUE; of rented machines the region's, of others by cooling and climate."""
    told, catalog, region = housed.context.spec.facility, housed.context.catalog, entry.region
    if told.cooling is not None or region is None or entry.owned:
        kind, weather = housed.cooling(entry), climate(entry, housed.context)
        ratio, water = pue(catalog, kind, weather), wue_l_per_kwh(catalog, kind, weather)
        source = f"{kind.replace('_', ' ')}, {weather}"
    else:
        ratio, water, source = region.pue, region.wue_l_per_kwh, f"{region.provider}:{region.name}"
    if told.pue_ratio is not None:
        ratio, source = told.pue_ratio, "the spec"
    return Efficiency(ratio, water, source)


def power(housed: Housed) -> premises.BuiltPower:
    """What the building delivers: breakers by the vendors' maximum, the meter by what cooling adds."""
    context, facility, catalog = housed.context, housed.context.spec.facility, housed.context.catalog
    halves = {"training": 0.0, "serving": 0.0}
    meter_w = 0.0
    for entry in housed.entries:
        it_w = it_power_w(entry, housed)
        halves[entry.servers.use] += it_w
        meter_w += it_w * efficiency(entry, housed).pue_ratio
    it_w = sum(halves.values())
    need = provision(catalog, halves["training"], halves["serving"], meter_w / it_w)
    tier = redundancy(catalog, facility.tier)
    per_minute = figure(catalog, "power", "utility ramp limit (of the site's load per minute)").value
    largest = max(housed.entries, key=lambda entry: it_power_w(entry, housed))
    in_use = [in_use_w(entry, context).times(entry.servers.count) for entry in housed.entries]
    return premises.BuiltPower(
        it_w,
        need.expected_peak_w,
        _summed(in_use, "W"),
        meter_w,
        meter_w / it_w,
        efficiency(largest, housed).source,
        facility.power_cap_w,
        tuple(rack_feed(catalog, each.name, each.rack_w) for each in housed.groups if each.rack_w > 0),
        tuple(_swing(entry, context) for entry in housed.entries),
        it_w * per_minute,
        need.ride_through_j,
        tuple(trade for entry in housed.entries if (trade := _cap(entry, context))),
        facility.tier,
        tier.scheme,
        tier.availability_fraction,
        tier.down_h_per_year,
        tier.capex_factor,
    )


def year(housed: Housed) -> premises.BuildingYear:
    """Energy, water and carbon of a year, each run and service by its own region and cooling."""
    context, parts = housed.context, []
    for entry in housed.entries:
        mean, own = mean_it_w(entry, housed), efficiency(entry, housed)
        told = year_of(
            context.catalog,
            mean.value,
            monthly_peak_w(entry, housed),
            pue_ratio=own.pue_ratio,
            wue_l_per_kwh=own.wue_l_per_kwh_mean,
            usd_per_kwh=electricity([entry.region], context).usd,
            grid_gco2_per_kwh=grid_gco2_per_kwh(entry.region, context),
            hourly_shape=_shape(entry),
            demand_charge=entry.owned,  # a landlord's bill holds it already
        )
        parts.append((entry.region, told, (mean.low / mean.value, mean.high / mean.value)))
    region = max(parts, key=lambda each: each[1].it_kwh)[0]  # of the largest
    grid = grid_gco2_per_kwh(region, context)
    it_kwh = sum(told.it_kwh for _, told, _ in parts)
    water_l = sum(told.water_l for _, told, _ in parts)

    def of_all(figure: str, unit: str, factor: float = 1.0) -> Estimate:
        """A figure of every year together, as uncertain as its mean load is."""
        values = [(getattr(told, figure) * factor, spread) for _, told, spread in parts]
        middle = sum(value for value, _ in values)
        low, high = (sum(value * spread[end] for value, spread in values) for end in (0, 1))
        return Estimate(middle, min(low, middle), max(high, middle), unit, Source.ASSUMED)

    nowhere = "no region is stated: the US mean tariff, the middle of the catalogue's grids"
    return premises.BuildingYear(
        it_kwh * J_PER_KWH,
        of_all("meter_kwh", "J", J_PER_KWH),
        electricity([region], context).usd,
        of_all("energy_usd", "USD"),
        sum(told.demand_usd for _, told, _ in parts),
        water_l / it_kwh,
        water_l,
        grid,
        of_all("carbon_g", "gCO2"),
        tuple(float(hour) for hour in np.sum([told.by_hour_gco2 for _, told, _ in parts], axis=0)),
        cleanest_hours(context.catalog, grid, CLEAN_HOURS),
        f"{region.provider}:{region.name}" if region else nowhere,
    )


def monthly_peak_w(entry: Entry, housed: Housed) -> float:
    """The mean of the months' peaks: a run's own in the months in which it works, rest in the others."""
    peak_w = it_power_w(entry, housed)
    if not isinstance(entry.part, TrainingPlan) or entry.guests:
        return peak_w
    spec = next(each for each in housed.context.spec.training if each.name == entry.name)
    times = YEAR_S / spec.repeats_every_s if spec.repeats_every_s else 1.0
    months = min(float(MONTHS), max(1.0, times) * ceil(entry.part.run.total_s.value / (YEAR_S / MONTHS)))
    return (months * peak_w + (MONTHS - months) * rest_w(entry, housed).value) / MONTHS


def it_power_w(entry: Entry, housed: Housed) -> float:
    """Servers at their maximum with network and storage."""
    return entry.servers.count * entry.power.planned_w + _beside_w(entry, housed)


def mean_it_w(entry: Entry, housed: Housed) -> Estimate:
    """The mean of a year: rented machines draw while they are yours, your own rest besides and all year."""
    if entry.owned:
        works = [work_w(each, housed.context) for each in (entry, *entry.guests)]
        return _summed([rest_w(entry, housed), *works], "W")
    share = entry.busy_fraction if entry.servers.use == "training" else 1.0
    draws = in_use_w(entry, housed.context).times(entry.servers.count * share)
    return _plus(draws, _beside_w(entry, housed) * share)


def rest_w(entry: Entry, housed: Housed) -> Estimate:
    """What machines of one's own draw where nothing works on them, with their network and storage."""
    rests = resting_w(housed.context.catalog, entry.power).times(entry.servers.count)
    return _plus(rests, _beside_w(entry, housed))


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


def _beside_w(entry: Entry, housed: Housed) -> float:
    """Networks as built; where that is less than what bills of materials show, their share is taken."""
    share = figure(housed.context.catalog, "power_fraction", "network and storage share of IT power").low
    networks_w = sum(each.power_w for each in housed.networks if each.name == entry.name)
    return max(networks_w, entry.servers.count * entry.power.planned_w * share / (1 - share))


def _swing(entry: Entry, context: Context) -> premises.Swing:
    """A run steps between its peak and rest, a service between its busiest and its quietest hour."""
    count, training = entry.servers.count, entry.servers.use == "training"
    if training:
        busy, rest = (
            training_peak_w(context.catalog, entry.power),
            resting_w(context.catalog, entry.power).value,
        )
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
    if idle >= cap:
        return None
    gain = sum(bound.gain_fraction for bound in entry.part.bounds if bound.resource == "compute")
    other = in_use_w(entry, context).value / entry.power.accelerators_w - draw
    trade = capped(cap, draw, idle, min(1.0, gain / BOUND_STEP), max(other, 0.0))
    saved_w = max(draw - cap, 0.0) * entry.power.accelerators_w / entry.power.supply_efficiency_fraction
    saved_w *= entry.servers.count
    return premises.CapTrade(
        entry.name, cap, saved_w, trade.throughput_fraction, trade.energy_per_work_fraction
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
