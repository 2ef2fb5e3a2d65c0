"""Where capacity comes from and what it costs: offers, the portfolio, economics."""

from twofold.supply.types import CapacityOffer, Tenure

__all__ = [
    "CapacityOffer",
    "Tenure",
]
