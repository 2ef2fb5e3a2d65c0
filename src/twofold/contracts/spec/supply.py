"""What a spec says about where capacity comes from: own machines, the shop, money, the building, rules."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator, field_validator, model_validator

from twofold.catalog.capacity import CONTRACT
from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Listed, Part, Quantity, refusal
from twofold.core.quantity import Dimension

Currency = Literal["USD", "EUR", "GBP", "CHF", "JPY", "CAD", "AUD", "INR"]
MoneyPerHour = Annotated[float, Quantity(Dimension.MONEY_PER_HOUR, "$/h")]
Money = Annotated[float, Quantity(Dimension.MONEY, "$")]
Term = Literal["on_demand", "spot", "reserved_1y", "reserved_3y", "community"]
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
RegimeName = Literal["fedramp-moderate", "fedramp-high", "il5", "air-gapped", "custom"]
Recorded = Literal["audit", "content", "attribution"]


class Economics(Part):
    """Terms of money. Prices of the catalogue are in USD, before discount and tax."""

    discount_fraction: fields.Fraction = Field(default=0.0, description="off list prices of rented machines")
    tax_fraction: fields.Fraction = Field(
        default=0.0, description="on every line of the bill, after discount"
    )
    currency: Currency = Field(default="USD", description="that totals are also shown in")
    exchange_ratio: fields.Multiplier = Field(
        default=1.0, description="units of the currency for one USD, `0.92x`"
    )
    downtime_usd_per_h: MoneyPerHour | None = Field(
        default=None, alias="downtime_cost", description="what an hour costs in which the service is down"
    )
    years: Annotated[fields.PositiveCount, Field(le=20)] = Field(
        default=5, description="over which owned machines are paid off, and owned and rented are compared"
    )
    cost_of_capital_fraction: fields.Fraction | None = Field(
        default=None, description="interest of what machines are bought with, a year"
    )
    staff_count: fields.Count | None = Field(
        default=None, description="people who run owned machines; by the megawatt where absent"
    )
    salary_usd: Money | None = Field(default=None, description="of one of them with everything, a year")

    @model_validator(mode="after")
    def _exchanged(self) -> "Economics":
        if self.currency != "USD" and "exchange_ratio" not in self.model_fields_set:
            raise refusal(
                f"currency `{self.currency}` has no rate",
                f"write `exchange: 0.92x`: how many {self.currency} one USD is",
            )
        return self


def _excluded(value: Any, check: ValidatorFunctionWrapHandler) -> str:
    """A term, or a name that the catalogue's shops know."""
    return value if value in (*get_args(Term), CONTRACT) else str(check(value))


MonthName = Literal["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
Excluded = Annotated[fields.OfferName, WrapValidator(_excluded)]


class Owned(Part):
    """Machines you have: so many nodes of a type, or so many accelerators."""

    node: fields.NodeName | None = Field(default=None, description="a node type of the catalogue")
    accelerator: fields.AcceleratorName | None = Field(default=None, description="or an accelerator")
    count: fields.PositiveCount = Field(description="nodes, or accelerators")
    region: fields.RegionName | None = Field(default=None, description="where they stand")

    @model_validator(mode="after")
    def _one_of(self) -> "Owned":
        if (self.node is None) == (self.accelerator is None):
            raise refusal("give a `node` or an `accelerator`", "write one of them")
        return self


class Shop(Part):
    """What may be rented. An empty list allows everything."""

    accelerators: Annotated[tuple[fields.AcceleratorName, ...], Listed] = Field(
        default=(), description="accelerators to consider"
    )
    providers: Annotated[tuple[fields.ProviderName, ...], Listed] = Field(
        default=(), description="providers to consider"
    )
    regions: Annotated[tuple[fields.RegionName, ...], Listed] = Field(
        default=(), description="where it must be; regions, countries, `eu`, or families such as us-east"
    )
    terms: Annotated[tuple[Term, ...], Listed] = Field(
        default=("on_demand", "reserved_1y"), min_length=1, description="ways to pay"
    )
    exclude: Annotated[tuple[Excluded, ...], Listed] = Field(
        default=("community",),
        description="accelerators, providers or terms to leave out; `contract`: only what one gets "
        "without asking for a quote",
    )
    allow_unreleased: fields.Flag = Field(default=False, description="consider announced accelerators too")
    hosted: Literal["true", "compare", "never"] = Field(
        default="compare",
        description="hosted APIs of the same weights: the cheapest mix may buy from them, they are "
        "compared with your own fleet (as with `false`), or never named",
    )

    @field_validator("hosted", mode="before")
    @classmethod
    def _said_by_a_flag(cls, value: Any) -> Any:
        return {"false": "compare", False: "compare", True: "true"}.get(value, value)


class Season(Part):
    """Months in which requests come at another rate."""

    months: Annotated[tuple[MonthName, ...], Listed] = Field(min_length=1, description="months of the year")
    factor_ratio: fields.Multiplier = Field(description="on the rate of every waiting class")

    @field_validator("months", mode="after")
    @classmethod
    def _each_once(cls, months: tuple[MonthName, ...]) -> tuple[MonthName, ...]:
        if twice := _twice(months):
            raise refusal(f"`months` names {twice} twice", "write each month once")
        return months


class Supply(Part):
    """Own capacity, the shop, and the limit of money."""

    own: Annotated[tuple[Owned, ...], Listed] = Field(default=(), description="machines you have")
    shop: Shop = Field(default=Shop(), description="what may be rented")
    budget_usd: fields.Dollars | None = Field(
        default=None, description="the most that the first year may cost"
    )
    virtual_overhead_fraction: fields.Fraction = Field(
        default=0.03, description="time lost on nodes that the catalogue marks as virtualised"
    )
    quotes: fields.FilePath | None = Field(
        default=None, description="a csv of offers that were made to you, beside those of the catalogue"
    )
    start: fields.Day | None = Field(
        default=None,
        description="first day of the year; none: that of a run",
    )
    seasons: Annotated[tuple[Season, ...], Listed] = Field(
        default=(),
        description="months with more or less traffic: fleets hold the busiest, leases follow all",
    )
    platforms: fields.PositiveCount | None = Field(
        default=None, description="different accelerators among what is rented, at most"
    )
    simplicity_fraction: fields.Fraction = Field(
        default=0.1,
        description="what fewer kinds of machines, providers and leases may cost more than the cheapest",
    )
    oversubscription_ratio: fields.PeakRatio = Field(
        default=1.0, description="of the fabric between nodes, 4x for 4:1"
    )
    economics: Economics = Field(default=Economics(), description="discount, tax, currency, downtime, owning")

    @field_validator("seasons", mode="after")
    @classmethod
    def _apart(cls, seasons: tuple[Season, ...]) -> tuple[Season, ...]:
        if twice := _twice([month for season in seasons for month in season.months]):
            raise refusal(
                f"seasons overlap: {twice} in more than one",
                "write each month once, with the product of its factors",
            )
        return seasons


def _twice(months: Sequence[str]) -> str:
    """The months that stand more than once, in words."""
    return ", ".join(dict.fromkeys(month for month in months if months.count(month) > 1))


class SiteKeys(Part):
    """One place that could hold the machines."""

    name: fields.Name = Field(description="its name on screens")
    region: fields.RegionName = Field(description="the catalogue region that it is nearest to")
    electricity_usd_per_kwh: Electricity | None = Field(
        default=None, description="price of energy there; the region's else"
    )
    power_cap_w: SitePower | None = Field(default=None, description="the most that the grid connection gives")
    cooling: Cooling | None = Field(default=None, description="what is built there; any else")
    backbone_bytes_per_s: Rate | None = Field(default=None, description="link over which data sets arrive")


class FacilityKeys(Part):
    """The building: limits of racks, cooling, power, redundancy, and sites to choose from."""

    cooling: Cooling | None = Field(
        default=None, description="how racks are cooled; the cheapest that works else"
    )
    climate: Climate | None = Field(default=None, description="for PUE and water; by latitude else")
    rack_power_w: Power | None = Field(default=None, description="the most that one rack may be fed")
    rack_units: fields.PositiveCount | None = Field(default=None, description="usable units of one rack")
    rack_ports: fields.PositiveCount | None = Field(
        default=None, description="network ports that one rack is wired for"
    )
    power_cap_w: SitePower | None = Field(
        default=None, description="the most that the building may draw at the meter"
    )
    pue_ratio: Ratio | None = Field(default=None, description="of the building, where it is known")
    electricity_usd_per_kwh: Electricity | None = Field(
        default=None, description="price of energy; the region's else"
    )
    tier: Tier = Field(default="III", description="redundancy of power and cooling, by Uptime's tiers")
    accelerator_cap_fraction: fields.Fraction | None = Field(
        default=None, description="power limit of accelerators, of the vendor's"
    )
    dataset_bytes: Data | None = Field(
        default=None, description="what a site must receive; by the runs' tokens else"
    )
    sites: Annotated[tuple[SiteKeys, ...], Listed] = Field(
        default=(), description="places to rank; the regions that the plan rents in, and the cheapest, else"
    )


class ComplianceSpec(Part):
    """A regime of the catalogue's table `regimes`; `custom` is a row of yours in the folder `catalog/`."""

    text_form = "regime"
    regime: RegimeName = Field(description="which rules; the text form says it")
    users_count: fields.PositiveCount = Field(
        default=200, description="people with an account: they are trained, some investigated"
    )
    recorded: Recorded = Field(
        default="content",
        description="of each request: who and what (audit), its text too (content), also what weighed most "
        "(attribution)",
    )
    retention_s: fields.Span | None = Field(
        default=None, description="how long logs are kept; the regime's when left out"
    )
    cites: Annotated[tuple[fields.MandateName, ...], Listed] = Field(
        default=(), description="mandates that your papers rest on, as table `mandates` names them"
    )
