"""What a spec says about the building: racks, cooling, power and places."""

from typing import Annotated, Literal

from pydantic import Field

from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Listed, Part
from twofold.core import Dimension

Cooling = Literal["air", "contained_air", "rear_door", "direct_to_chip", "immersion", "liquid_800_v"]
Climate = Literal["cold", "temperate", "hot"]
Tier = Literal["I", "II", "III", "IV"]
Power = Annotated[float, fields.Quantity(Dimension.POWER, "kW", zero=fields.MORE_THAN_ZERO)]
SitePower = Annotated[float, fields.Quantity(Dimension.POWER, "MW", zero=fields.MORE_THAN_ZERO)]
Electricity = Annotated[
    float, fields.Quantity(Dimension.MONEY_PER_ENERGY, "$/kWh", zero=fields.MORE_THAN_ZERO)
]
Rate = Annotated[float, fields.Quantity(Dimension.BANDWIDTH, "Gb/s", zero=fields.MORE_THAN_ZERO)]
Data = Annotated[float, fields.Quantity(Dimension.BYTES, "TB", zero=fields.MORE_THAN_ZERO)]
Ratio = Annotated[float, fields.Quantity(Dimension.MULTIPLIER, "x", lowest=1.0, highest=3.0)]


class SiteKeys(Part):
    """One place that could hold the machines."""

    name: fields.Name = Field(description="its name on screens")
    region: fields.RegionName = Field(description="the catalogue region that it is nearest to")
    electricity_usd_per_kwh: Electricity | None = Field(
        default=None, alias="electricity", description="price of energy there; the region's else"
    )
    power_cap_w: SitePower | None = Field(
        default=None, alias="power_cap", description="the most that the grid connection gives"
    )
    cooling: Cooling | None = Field(default=None, description="what is built there; any else")
    backbone_bytes_per_s: Rate | None = Field(
        default=None, alias="backbone", description="link over which data sets arrive"
    )


class FacilityKeys(Part):
    """The building: limits of racks, cooling, power, redundancy, and sites to choose from."""

    cooling: Cooling | None = Field(
        default=None, description="how racks are cooled; the cheapest that works else"
    )
    climate: Climate | None = Field(default=None, description="for PUE and water; by latitude else")
    rack_power_w: Power | None = Field(
        default=None, alias="rack_power", description="the most that one rack may be fed"
    )
    rack_units: fields.PositiveCount | None = Field(default=None, description="usable units of one rack")
    rack_ports: fields.PositiveCount | None = Field(
        default=None, description="network ports that one rack is wired for"
    )
    power_cap_w: SitePower | None = Field(
        default=None, alias="power_cap", description="the most that the building may draw at the meter"
    )
    pue_ratio: Ratio | None = Field(
        default=None, alias="pue", description="of the building, where it is known"
    )
    electricity_usd_per_kwh: Electricity | None = Field(
        default=None, alias="electricity", description="price of energy; the region's else"
    )
    tier: Tier = Field(default="III", description="redundancy of power and cooling, by Uptime's tiers")
    accelerator_cap_fraction: fields.Fraction | None = Field(
        default=None, alias="accelerator_cap", description="power limit of accelerators, of the vendor's"
    )
    dataset_bytes: Data | None = Field(
        default=None, alias="dataset", description="what a site must receive; by the runs' tokens else"
    )
    sites: Annotated[tuple[SiteKeys, ...], Listed] = Field(
        default=(), description="places to rank; the regions that the plan rents in, and the cheapest, else"
    )
