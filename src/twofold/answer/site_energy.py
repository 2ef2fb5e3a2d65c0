"""From accelerators to the meter and the grid: energy of the whole servers with cooling, and its carbon."""

from twofold.answer.context import Context
from twofold.catalog import Price, Region
from twofold.core import J_PER_KWH, Estimate, InputError, Source


def facility_energy(accelerators_j: Estimate, price: Price | None, context: Context) -> Estimate:
    """From the accelerators' energy to the meter: the rest of the servers, and cooling.

    Formula  accelerators × node factor × PUE
    Why      Processors, fans, memory and network cards draw as long as accelerators do.
    Units    J.
    Source   constants `node_power_factor` and `pue_ratio`; the region's PUE where it is known.
    """
    nodes = context.constants.estimate("node_power_factor")
    region = region_of(price, context)
    pue = region.pue if region else context.constants.get("pue_ratio")
    return Estimate(
        accelerators_j.value * nodes.value * pue,
        accelerators_j.low * nodes.low * pue,
        accelerators_j.high * nodes.high * pue,
        "J",
        Source.ASSUMED,
    )


def region_of(price: Price | None, context: Context) -> Region | None:
    """The region of a price, None where the catalogue does not know the place."""
    if price is None:
        return None
    try:
        return context.catalog.region(f"{price.provider}:{price.region}")
    except InputError:
        return None


def carbon(energy_j: Estimate, price: Price | None, context: Context) -> Estimate | None:
    """Grams of CO2 at the grid of the price's region; None where that is unknown."""
    region = region_of(price, context)
    if region is None:
        return None
    per_j = region.grid_gco2_per_kwh / J_PER_KWH
    low, middle, high = (part * per_j for part in (energy_j.low, energy_j.value, energy_j.high))
    return Estimate(middle, low, high, "gCO2", Source.ASSUMED)
