"""Small problems for portfolios."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from twofold.portfolio.problem import CapacityOffer, Demand


def make_offer(name: str, usd_per_unit_h: float, **changes: Any) -> CapacityOffer:
    values: dict[str, Any] = {
        "name": name,
        "provider": "prov",
        "instance": name,
        "accelerator": "H100",
        "accelerator_count": 8,
        "region": "",
        "term": "on_demand",
        "tenure": "virtual",
        "usd_per_unit_h": usd_per_unit_h,
        "minimum_weeks": 0,
        "unit_limit": None,
        "interruptions_per_unit_h": 0.0,
        "egress_usd_per_tb": 0.0,
        "support_fraction": 0.0,
        "discount_fraction": 0.0,
        "source": "a list",
        "date": "2026",
    }
    return CapacityOffer(**(values | changes))


def make_demand(name: str, by_hour: list[float], weeks: int = 52, **changes: Any) -> Demand:
    """The same day every week; hours repeat."""
    day = np.resize(np.array(by_hour, float), 24)
    return Demand(name, np.tile(day, (weeks, 1)), changes.pop("limit_s", None), **changes)


@pytest.fixture
def offer() -> Callable[..., CapacityOffer]:
    return make_offer


@pytest.fixture
def demand() -> Callable[..., Demand]:
    return make_demand
