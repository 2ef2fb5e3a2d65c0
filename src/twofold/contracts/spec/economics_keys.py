"""What a spec says about money: discount, tax, currency, the cost of an hour down, and of owned machines."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Part, Quantity, refusal
from twofold.core import Dimension, ValueRefusedError

Currency = Literal["USD", "EUR", "GBP", "CHF", "JPY", "CAD", "AUD", "INR"]
MoneyPerHour = Annotated[float, Quantity(Dimension.MONEY_PER_HOUR, "$/h")]
Money = Annotated[float, Quantity(Dimension.MONEY, "$")]


class Economics(Part):
    """Terms of money. Prices of the catalogue are in USD, before discount and tax."""

    discount_fraction: fields.Fraction = Field(
        default=0.0, alias="discount", description="off list prices of rented machines"
    )
    tax_fraction: fields.Fraction = Field(
        default=0.0, alias="tax", description="on every line of the bill, after discount"
    )
    currency: Currency = Field(default="USD", description="that totals are also shown in")
    exchange_ratio: fields.Multiplier = Field(
        default=1.0, alias="exchange", description="units of the currency for one USD, `0.92x`"
    )
    downtime_usd_per_h: MoneyPerHour | None = Field(
        default=None, alias="downtime_cost", description="what an hour costs in which the service is down"
    )
    years: Annotated[fields.PositiveCount, Field(le=20)] = Field(
        default=5, description="over which owned machines are paid off, and owned and rented are compared"
    )
    cost_of_capital_fraction: fields.Fraction | None = Field(
        default=None, alias="cost_of_capital", description="interest of what machines are bought with, a year"
    )
    staff_count: fields.Count | None = Field(
        default=None, alias="staff", description="people who run owned machines; by the megawatt where absent"
    )
    salary_usd: Money | None = Field(
        default=None, alias="salary", description="of one of them with everything, a year"
    )

    @model_validator(mode="after")
    def _exchanged(self) -> "Economics":
        if self.currency != "USD" and "exchange_ratio" not in self.model_fields_set:
            raise refusal(
                ValueRefusedError,
                f"currency `{self.currency}` has no rate",
                f"write `exchange: 0.92x`: how many {self.currency} one USD is",
            )
        return self
