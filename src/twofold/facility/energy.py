"""A year of a building: energy at the meter, its price, water, and carbon by hour."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi

from twofold.catalog import Catalog
from twofold.core import YEAR_H
from twofold.facility.figures import figure

W_PER_KW = 1e3
CLEANEST_H = 13  # local time


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
    it_kwh = mean_it_w / W_PER_KW * YEAR_H
    meter_kwh = it_kwh * pue_ratio
    charge = figure(catalog, "tariff", "demand charge").value if demand_charge else 0.0
    mean = sum(hourly_shape) / len(hourly_shape)
    daily_kwh = meter_kwh / YEAR_H
    by_hour = tuple(
        daily_kwh * share / mean * grid
        for share, grid in zip(hourly_shape, carbon_by_hour(catalog, grid_gco2_per_kwh), strict=True)
    )
    return Year(
        it_kwh,
        meter_kwh,
        meter_kwh * usd_per_kwh,
        peak_it_w * pue_ratio * charge * 12,
        it_kwh * wue_l_per_kwh,
        sum(by_hour) * 365.0,
        by_hour,
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
