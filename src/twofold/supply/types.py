"""What can be leased or is owned, as the portfolio sees it: one kind of unit, its price and its limits."""

from dataclasses import dataclass
from typing import Literal

Tenure = Literal["owned", "bare_metal", "virtual", "community", "api"]


@dataclass(frozen=True, slots=True)
class CapacityOffer:
    """One way to get units (nodes or instances) of one kind. Money is list price, before discount and tax."""

    name: str  # unique: provider, instance, region and term
    provider: str
    instance: str
    accelerator: str  # catalogue name
    accelerator_count: int  # in one unit
    region: str  # provider:region, "" where none is stated
    term: str  # on_demand spot reserved_1y reserved_3y community owned
    tenure: Tenure
    usd_per_unit_h: float  # 0 for machines that are paid for already
    minimum_weeks: int = 0  # the least that a lease lasts; 0: by the hour
    unit_limit: int | None = None  # units that can be had; None: as many as wanted
    interruptions_per_unit_h: float = 0.0  # by the provider; 0 but for spot and community
    egress_usd_per_tb: float = 0.0
    support_fraction: float = 0.0  # of the rent, for managed service and support
    discount_fraction: float = 0.0  # off the list price
    source: str = ""
    date: str = ""
    confidence: str = "vendor"
    first_week: int = 0  # of the plan, from which it can be had
    until_week: int | None = None  # first week in which it cannot; None: to the end
    stated_region: str = ""  # as the price names it, also one that no table lists; "" where it names none
