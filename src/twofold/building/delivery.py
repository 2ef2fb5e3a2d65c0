"""Power delivery: rack strips, steps of load, ramps and ride-through, capping, redundancy."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sqrt
from types import MappingProxyType
from typing import Literal, NamedTuple

from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure
from twofold.contracts.results import premises
from twofold.core.quantity import YEAR_H

BREAKERS_A = (16, 20, 30, 32, 50, 60, 63, 80, 100, 125)  # that rack strips are sold with
LARGEST_STRIP_A = 63  # of one plug; larger feeds are bus bars
# Dynamic power follows C·V²·f, and V follows f near the top of the curve.
FREQUENCY_EXPONENT = 3.0

Tier = Literal["I", "II", "III", "IV"]
# What is doubled, and the row of `facility: availability`.
_TIERS: MappingProxyType[Tier, tuple[str, str]] = MappingProxyType(
    {
        "I": ("N", "Tier I"),
        "II": ("N+1", "Tier II"),
        "III": ("N+1", "Tier III (N+1, concurrently maintainable)"),
        "IV": ("2N", "Tier IV (2N, fault tolerant)"),
    }
)
CLEANEST_H = 13  # local time


class Provision(NamedTuple):
    """What the building must deliver."""

    expected_peak_w: float  # as fleets measured it
    ride_through_j: float  # that the UPS holds


class Capped(NamedTuple):
    """Accelerators held below their usual draw."""

    throughput_fraction: float  # of the uncapped throughput
    energy_per_work_fraction: float  # of the uncapped energy, whole node


@dataclass(frozen=True, slots=True)
class Redundancy:
    """A tier: what is doubled, its availability, and what it adds to the cost of power and cooling."""

    scheme: str
    availability_fraction: float
    capex_factor: float

    @property
    def down_h_per_year(self) -> float:
        return (1 - self.availability_fraction) * YEAR_H


def rack_feed(catalog: Catalog, name: str, rack_w: float) -> premises.Feed:
    """Strips of a named rack such that either side alone stays within the continuous share of its rating.

    Formula  side = √3·V·A·pf·strips; rack / side ≤ 0.8
    Why      Breakers trip on continuous loads above 80 %; a lost side leaves its load to the other.
    Units    W, V between phases, A per phase.
    Source   NEC 210.20; `facility: power`.
    Limits   Three-phase strips up to 63 A; more of them, then bus bars, for denser racks.
    """
    volts = figure(catalog, "power", "rack feed voltage between phases").value
    factor = figure(catalog, "power", "power factor").value
    continuous = figure(catalog, "power", "continuous load (of a breaker's rating)").value
    strip_count = 0
    while True:
        strip_count += 1
        for amps in (amps for amps in BREAKERS_A if amps <= LARGEST_STRIP_A):
            side_w = sqrt(3.0) * volts * amps * factor * strip_count
            if rack_w <= continuous * side_w:
                alone = rack_w / side_w
                return premises.Feed(name, rack_w, amps, strip_count, alone / 2, alone)


def step_load(catalog: Catalog, name: str, busy_w: float, rest_w: float, synchronous: bool) -> premises.Swing:
    """The jump of a run or service between rest and work, and the storage that makes it a ramp.

    Formula  swing = busy − rest; buffer = swing² / (2·ramp)
    Why      A ramp of slope R takes swing/R seconds, over which half the swing is missing on average.
    Units    W, s, J.
    Source   `facility: power_swing, power` (Llama 3 report; utility rules).
    Limits   Phases within a training step swing by the share that fleets measured.
    """
    swing = max(busy_w - rest_w, 0.0)
    share = figure(catalog, "power_swing", "synchronous training swing (of cluster IT power)").value
    limit = busy_w * figure(catalog, "power", "utility ramp limit (of the site's load per minute)").value
    ramp_s = swing / limit if limit > 0 else 0.0
    phase = share * busy_w if synchronous else 0.0
    return premises.Swing(name, swing, phase, ramp_s, swing * ramp_s / 2)


def provision(catalog: Catalog, training_it_w: float, serving_it_w: float) -> Provision:
    """What to build for: servers, network and storage of both halves.

    Formula  peak = 0.97·training + 0.79·serving; ride-through = IT·time
    Why      Training reaches what is provisioned, bursty serving does not: its peaks do not meet.
    Units    W, J.
    Source   POLCA (ASPLOS 2024), in `facility: power_fraction`.
    """
    training = figure(catalog, "power_fraction", "cluster peak, LLM training (of provisioned)").value
    serving = figure(catalog, "power_fraction", "cluster peak, LLM inference (of provisioned)").value
    ride_s = figure(catalog, "power", "UPS ride-through").value
    peak_w = training * training_it_w + serving * serving_it_w
    return Provision(peak_w, (training_it_w + serving_it_w) * ride_s)


def capped(
    cap_fraction: float,
    draw_fraction: float,
    idle_fraction: float,
    compute_fraction: float,
    other_fraction: float = 0.0,
) -> Capped:
    """Throughput and energy of accelerators under a power cap.

    Formula  clock = ((cap − idle)/(draw − idle))^(1/3); time = c/clock + 1 − c;
             energy = time · (cap + other)/(draw + other)
    Why      Clock and voltage fall together; only what computes waits for the clock, memory does not.
    Units    shares of the vendor's limit; c: share of time that follows the clock; `other`: the rest of the
             node's draw, which runs on meanwhile.
    Source   dynamic power C·V²·f; POLCA (ASPLOS 2024): about a fifth less power costs a few percent.
    Limits   A cap at or above the draw changes nothing; one at idle or below stops: clock 0.
    """
    if cap_fraction >= draw_fraction:
        return Capped(1.0, 1.0)
    share = max(cap_fraction - idle_fraction, 0.0) / (draw_fraction - idle_fraction)
    clock = share ** (1 / FREQUENCY_EXPONENT)
    if clock == 0.0:
        return Capped(0.0, float("inf"))
    time = compute_fraction / clock + 1 - compute_fraction
    return Capped(1 / time, time * (cap_fraction + other_fraction) / (draw_fraction + other_fraction))


def redundancy(catalog: Catalog, tier: Tier) -> Redundancy:
    """Availability and added cost of a tier, by the tables `facility: availability, redundancy_cost`."""
    scheme, tier_row = _TIERS[tier]
    up = figure(catalog, "availability", tier_row).value
    return Redundancy(scheme, up, figure(catalog, "redundancy_cost", scheme).value)


@dataclass(frozen=True, slots=True)
class Year:
    """What a mean IT load takes over a year."""

    it_kwh: float
    meter_kwh: float
    energy_usd: float
    demand_usd: float  # for the highest peak of each month
    water_l: float
    carbon_g: float
    by_hour_gco2: tuple[float, ...]  # of a mean day, 0 to 23 h local time
    by_hour_w: tuple[float, ...]  # at the meter, of the same day


def year_of(
    catalog: Catalog,
    mean_it_w: float,
    peak_it_w: float,
    *,
    pue_ratio: float,
    wue_l_per_kwh: float,
    usd_per_kwh: float,
    grid_gco2_per_kwh: float,
    hourly_shape: Sequence[float] = (1.0,) * 24,
    demand_charge: bool = True,
) -> Year:
    """Energy, money, water and carbon of a year at a mean load with a daily shape.

    Formula  meter = IT·PUE; water = IT·WUE; carbon = Σ_h meter_h · grid_h; demand = peak·PUE·12·charge
    Why      Cooling takes its share of every kWh; large users pay for their peak besides.
    Units    kWh, USD, l, g; `hourly_shape` over its own mean.
    Source   `facility: tariff, carbon`; the grid's mean is the region's.
    Limits   The hourly grid is a cosine about the mean with its least at 13 h: no hourly record is read.
    """
    it_kwh = mean_it_w / 1e3 * YEAR_H
    meter_kwh = it_kwh * pue_ratio
    charge = figure(catalog, "tariff", "demand charge").value if demand_charge else 0.0
    mean = sum(hourly_shape) / len(hourly_shape)
    daily_kwh = meter_kwh / YEAR_H
    by_hour = tuple(
        daily_kwh * share / mean * grid
        for share, grid in zip(hourly_shape, carbon_by_hour(catalog, grid_gco2_per_kwh), strict=True)
    )
    by_hour_w = tuple(1e3 * daily_kwh * share / mean for share in hourly_shape)
    return Year(
        it_kwh,
        meter_kwh,
        meter_kwh * usd_per_kwh,
        peak_it_w * pue_ratio * charge * 12,
        it_kwh * wue_l_per_kwh,
        sum(by_hour) * 365.0,
        by_hour,
        by_hour_w,
    )


def carbon_by_hour(catalog: Catalog, grid_gco2_per_kwh: float) -> tuple[float, ...]:
    """The grid's carbon per kWh for each hour of a mean day; its mean is the region's figure."""
    swing = figure(catalog, "carbon", "daily swing of a grid with much solar").value
    return tuple(
        grid_gco2_per_kwh * (1 - swing * cos(2 * pi * (hour - CLEANEST_H) / 24)) for hour in range(24)
    )


def cleanest_hours(catalog: Catalog, grid_gco2_per_kwh: float, hour_count: int) -> tuple[int, ...]:
    """The hours of a day with the least carbon, for work that may wait."""
    grid = carbon_by_hour(catalog, grid_gco2_per_kwh)
    return tuple(sorted(sorted(range(24), key=lambda hour: grid[hour])[:hour_count]))
