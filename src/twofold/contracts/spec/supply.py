"""What a spec says about where capacity comes from."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator, field_validator, model_validator

from twofold.contracts.spec import fields
from twofold.contracts.spec.economics_keys import Economics
from twofold.contracts.spec.fields import Listed, Part, refusal
from twofold.core import ValueRefusedError

Term = Literal["on_demand", "spot", "reserved_1y", "reserved_3y", "community"]


def _excluded(value: Any, check: ValidatorFunctionWrapHandler) -> str:
    """A term, or a name that the catalogue's shops know."""
    return value if value in get_args(Term) else str(check(value))


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
            raise refusal(ValueRefusedError, "give a `node` or an `accelerator`", "write one of them")
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
        default=("community",), description="accelerators, providers or terms to leave out"
    )
    allow_unreleased: fields.Flag = Field(default=False, description="consider announced accelerators too")
    hosted: fields.Flag = Field(
        default=False, description="let the portfolio buy answers from hosted interfaces too"
    )


class Season(Part):
    """Months in which requests come at another rate."""

    months: Annotated[tuple[MonthName, ...], Listed] = Field(min_length=1, description="months of the year")
    factor_ratio: fields.Multiplier = Field(alias="factor", description="on the rate of every waiting class")

    @field_validator("months", mode="after")
    @classmethod
    def _each_once(cls, months: tuple[MonthName, ...]) -> tuple[MonthName, ...]:
        if twice := _twice(months):
            raise refusal(ValueRefusedError, f"`months` names {twice} twice", "write each month once")
        return months


class Supply(Part):
    """Own capacity, the shop, and the limit of money."""

    own: Annotated[tuple[Owned, ...], Listed] = Field(default=(), description="machines you have")
    shop: Shop = Field(default=Shop(), description="what may be rented")
    budget_usd: fields.Dollars | None = Field(
        default=None, alias="budget", description="the most that the first year may cost"
    )
    virtual_overhead_fraction: fields.Fraction = Field(
        default=0.03,
        alias="virtual_overhead",
        description="time lost on nodes that the catalogue marks as virtualised",
    )
    quotes: fields.FilePath | None = Field(
        default=None, description="a csv of offers that were made to you, beside those of the catalogue"
    )
    start: fields.Day | None = Field(
        default=None,
        description="first day of the portfolio's year; none: that of a run",
    )
    seasons: Annotated[tuple[Season, ...], Listed] = Field(
        default=(),
        description="months with more or less traffic; only the portfolio counts them",
    )
    platforms: fields.PositiveCount | None = Field(
        default=None, description="different accelerators in the portfolio, at most"
    )
    oversubscription_ratio: fields.PeakRatio = Field(
        default=1.0, alias="oversubscription", description="of the fabric between nodes, 4x for 4:1"
    )
    economics: Economics = Field(default=Economics(), description="discount, tax, currency, downtime, owning")

    @field_validator("seasons", mode="after")
    @classmethod
    def _apart(cls, seasons: tuple[Season, ...]) -> tuple[Season, ...]:
        if twice := _twice([month for season in seasons for month in season.months]):
            raise refusal(
                ValueRefusedError,
                f"seasons overlap: {twice} in more than one",
                "write each month once, with the product of its factors",
            )
        return seasons


def _twice(months: Sequence[str]) -> str:
    """The months that stand more than once, in words."""
    return ", ".join(dict.fromkeys(month for month in months if months.count(month) > 1))
