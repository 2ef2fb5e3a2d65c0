"""Power, a year of energy, water and carbon, and what steps and caps do, for a plan's servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import cast

import numpy as np

from twofold.answer.context import Context
from twofold.building.cooling import CoolingKind, pue, wue_l_per_kwh
from twofold.building.delivery import (
    Year,
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
from twofold.catalog.figures import figure
from twofold.contracts.results import premises
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core import record
from twofold.core.estimate import Estimate, Source
from twofold.core.quantity import J_PER_KWH, YEAR_S
from twofold.twin.serving.profiles import hourly_weights

MONTHS = 12
USUAL_CAP_FRACTION = 0.8  # shown where the spec caps nothing: what a fifth less would do
BOUND_STEP = 1 - 1 / 1.2  # a bound's gain is of 20 % more of its resource
CLEAN_HOURS = 6
BESIDE = "network and storage share of IT power"


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
    expected_peak_w, ride_through_j = provision(catalog, halves["training"], halves["serving"])
    tier = redundancy(catalog, facility.tier)
    per_minute = figure(catalog, "power", "utility ramp limit (of the site's load per minute)").value
    largest = max(housed.entries, key=lambda entry: it_power_w(entry, housed))
    in_use = _summed([drawn_w(entry, context) for entry in housed.entries], "W")
    return premises.BuiltPower(
        it_w,
        expected_peak_w,
        record.note("power.in_use_w", in_use, "", *(f"drawn.{each.name} in use" for each in housed.entries)),
        meter_w,
        meter_w / it_w,
        efficiency(largest, housed).source,
        facility.power_cap_w,
        tuple(rack_feed(catalog, each.name, each.rack_w) for each in housed.groups if each.rack_w > 0),
        tuple(_swing(entry, context) for entry in housed.entries),
        it_w * per_minute,
        ride_through_j,
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
            hourly_shape=_drawn_shape(entry, mean.value, context),
            demand_charge=entry.owned,  # a landlord's bill holds it already
        )
        parts.append((told, (mean.low / mean.value, mean.high / mean.value)))
        own_j, name = _of_all(parts[-1:], "meter_kwh", "J", J_PER_KWH), entry.name
        used = (f"mean.{name} in a year", f"{name}.pue")
        record.note(f"meter.{name} at the meter", own_j, "mean × PUE × 8760 h", *used)
    largest = max(zip(housed.entries, parts, strict=True), key=lambda each: each[1][0].it_kwh)[0]
    grid = grid_gco2_per_kwh(largest.region, context)
    it_kwh = sum(told.it_kwh for told, _ in parts)
    water_l = sum(told.water_l for told, _ in parts)
    meter_j, energy = _of_all(parts, "meter_kwh", "J", J_PER_KWH), _of_all(parts, "energy_usd", "USD")
    meters = [f"meter.{entry.name} at the meter" for entry in housed.entries]
    places = list(dict.fromkeys(entry.place for entry in housed.entries))
    tariffs, grids = ([f"{each}.{place}" for place in places] for each in ("tariff", "grid"))
    carbon, hourly = _of_all(parts, "carbon_g", "gCO2"), "energy × grid, hour by hour"
    nowhere = "no region is stated: the US mean tariff, the middle of the catalogue's grids"
    return premises.BuildingYear(
        it_kwh * J_PER_KWH,
        record.note("year.meter_j", meter_j, "", *meters),
        electricity([largest.region], context).usd,
        record.note("year.energy_usd", energy, "energy × tariff", *meters, *tariffs),
        sum(told.demand_usd for told, _ in parts),
        water_l / it_kwh,
        water_l,
        grid,
        record.note("year.carbon_gco2", carbon, hourly, *meters, *grids, "daily swing"),
        tuple(float(hour) for hour in np.sum([told.by_hour_gco2 for told, _ in parts], axis=0)),
        cleanest_hours(context.catalog, grid, CLEAN_HOURS),
        largest.place or nowhere,
        tuple(float(hour) for hour in np.sum([told.by_hour_w for told, _ in parts], axis=0)),
    )


def _of_all(
    years: Sequence[tuple[Year, tuple[float, float]]], figure: str, unit: str, factor: float = 1.0
) -> Estimate:
    """A figure of years together, each as uncertain as its mean load is."""
    values = [(getattr(told, figure) * factor, spread) for told, spread in years]
    middle = sum(value for value, _ in values)
    low, high = (sum(value * spread[end] for value, spread in values) for end in (0, 1))
    return Estimate(middle, min(low, middle), max(high, middle), unit, Source.ASSUMED)


def monthly_peak_w(entry: Entry, housed: Housed) -> float:
    """The mean of the months' peaks: runs' own in the months in which they work, rest in the others."""
    peak_w = it_power_w(entry, housed)
    members = (entry, *entry.guests)
    parts = [each.part for each in members if isinstance(each.part, TrainingPlan)]
    if len(parts) < len(members):
        return peak_w
    times = {each.name: each.runs_per_year for each in housed.context.spec.training}
    worked = (times[each.name] * ceil(each.run.total_s.value / (YEAR_S / MONTHS)) for each in parts)
    months = min(float(MONTHS), sum(worked))
    return (months * peak_w + (MONTHS - months) * rest_w(entry, housed).value) / MONTHS


def it_power_w(entry: Entry, housed: Housed) -> float:
    """Servers at their maximum with network and storage."""
    return entry.servers.count * entry.power.planned_w + beside_w(entry, housed)


def mean_it_w(entry: Entry, housed: Housed) -> Estimate:
    """The mean of a year: rented machines draw while they are yours, your own rest besides and all year."""
    name, at = entry.name, f"mean.{entry.name} in a year"
    if entry.owned:
        works = {each.name: work_w(each, housed.context) for each in (entry, *entry.guests)}
        mean = _summed([rest_w(entry, housed), *works.values()], "W")
        return record.note(at, mean, "", f"rest.{name} at rest", *(f"work.{each} at work" for each in works))
    share = entry.busy_fraction if entry.servers.use == "training" else 1.0
    draws = in_use_w(entry, housed.context).times(entry.servers.count * share)
    said, used = "(in use + beside) × share of the year", (f"drawn.{name} in use", f"{name}.beside")
    return record.note(at, _plus(draws, beside_w(entry, housed) * share), said, *used, f"{name}.in_year")


def drawn_w(entry: Entry, context: Context) -> Estimate:
    """What all servers of an entry draw while they work."""
    draws, name = in_use_w(entry, context).times(entry.servers.count), entry.name
    said, used = "servers × what one draws", (f"{name}.servers", f"draw.a server of {name}")
    return record.note(f"drawn.{name} in use", draws, said, *used)


def rest_w(entry: Entry, housed: Housed) -> Estimate:
    """What machines of one's own draw where nothing works on them, with their network and storage."""
    rests = resting_w(housed.context.catalog, entry.power).times(entry.servers.count)
    said, used = "servers × draw at rest + beside", ("servers", "idle", "host_idle", "beside")
    own = (f"{entry.name}.{each}" for each in used)
    return record.note(f"rest.{entry.name} at rest", _plus(rests, beside_w(entry, housed)), said, *own)


def work_w(entry: Entry, context: Context) -> Estimate:
    """What work on machines of one's own adds over their rest, in the mean of a year.

    Formula  (draw in use − draw at rest) · accelerators in use / accelerators of a server · share of the year
    Limits   at least 0; accelerators that a service does not use rest with their share of the server.
    """
    share = entry.busy_fraction if entry.servers.use == "training" else 1.0
    servers = entry.machine.accelerator_count / entry.servers.node.accelerator_count
    works, rest = in_use_w(entry, context), resting_w(context.catalog, entry.power).value
    low, middle, high = (max(watts - rest, 0.0) for watts in (works.low, works.value, works.high))
    added = Estimate(middle, low, high, "W", works.source).times(servers * share)
    said = "(draw in use − draw at rest) × servers in use × share of the year"
    own = (f"{entry.name}.{each}" for each in ("idle", "host_idle", "servers_used", "in_year"))
    return record.note(f"work.{entry.name} at work", added, said, f"draw.a server of {entry.name}", *own)


def beside_w(entry: Entry, housed: Housed) -> float:
    """Networks as built; where that is less than what bills of materials show, their share is taken."""
    share = figure(housed.context.catalog, "power_fraction", BESIDE).low
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
    throughput, energy = capped(cap, draw, idle, min(1.0, gain / BOUND_STEP), max(other, 0.0))
    saved_w = max(draw - cap, 0.0) * entry.power.accelerators_w / entry.power.supply_efficiency_fraction
    saved_w *= entry.servers.count
    return premises.CapTrade(entry.name, cap, saved_w, throughput, energy)


def _drawn_shape(entry: Entry, mean_w: float, context: Context) -> tuple[float, ...]:
    """The mean day of what an entry and its guests draw, over its own mean.

    Formula  1 + Σ servers in use · (draw at the mean load − draw with nobody asking) · (traffic − 1) / mean
    Why      Servers that wait for requests draw too, and so do networks: only what work adds follows traffic.
    Units    1; `mean_w` W, `traffic` over its own mean.
    Limits   at least 0; linear in the load between the hours. Runs are flat.
    """
    shape = np.ones(24)
    for each in (entry, *entry.guests):
        if each.servers.use == "serving":
            catalog, power = context.catalog, each.power
            busy_w, waiting_w = (serving_w(catalog, power, busy).value for busy in (each.busy_fraction, 0.0))
            servers = (
                each.machine.accelerator_count / each.servers.node.accelerator_count
                if entry.owned
                else each.servers.count
            )
            shape += servers * (busy_w - waiting_w) / mean_w * (np.asarray(_shape(each)) - 1.0)
    return tuple(float(hour) for hour in np.maximum(shape, 0.0))


def _shape(entry: Entry) -> tuple[float, ...]:
    """The mean day of an entry's traffic over its own mean: flat for runs, by traffic for services."""
    part = entry.part
    if not isinstance(part, ServicePlan) or not part.classes:
        return (1.0,) * 24
    days = []
    for each in part.classes:
        ratio = each.peak_per_s / each.rate_per_s if each.rate_per_s > 0 else 1.0
        week = np.asarray(hourly_weights(each.profile, ratio))
        days.append(np.full(24, 1.0) if week.size == 1 else week.reshape(7, 24).mean(axis=0))
    return tuple(float(hour) for hour in np.mean(days, axis=0))


def _plus(estimate: Estimate, more: float) -> Estimate:
    ends = (estimate.value + more, estimate.low + more, estimate.high + more)
    return Estimate(*ends, estimate.unit, estimate.source)


def _summed(parts: Sequence[Estimate], unit: str) -> Estimate:
    middle, low, high = (sum(getattr(part, end) for part in parts) for end in ("value", "low", "high"))
    return Estimate(middle, low, high, unit, Source.ASSUMED)
