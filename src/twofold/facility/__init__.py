"""The building: racks, cooling, power, fabric, storage, sites, and what rules ask of them."""

from twofold.facility.figures import figure

__all__ = [
    "figure",
]
