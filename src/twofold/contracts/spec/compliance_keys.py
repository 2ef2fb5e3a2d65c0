"""What a spec says about the rules that bind it: `compliance: il5`, or a mapping with more."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Listed, Part

RegimeName = Literal["fedramp-moderate", "fedramp-high", "il5", "air-gapped", "custom"]
Recorded = Literal["audit", "content", "attribution"]


class ComplianceSpec(Part):
    """A regime of the catalogue's table `regimes`; `custom` is a row of yours in the folder `catalog/`."""

    regime: RegimeName = Field(description="which rules; the text form says it")
    users_count: fields.PositiveCount = Field(
        default=200, alias="users", description="people with an account: they are trained, some investigated"
    )
    recorded: Recorded = Field(
        default="content",
        description="of each request: who and what (audit), its text too (content), also what weighed most "
        "(attribution)",
    )
    retention_s: fields.Span | None = Field(
        default=None, alias="retention", description="how long logs are kept; the regime's when left out"
    )
    cites: Annotated[tuple[fields.MandateName, ...], Listed] = Field(
        default=(), description="mandates that your papers rest on, as table `mandates` names them"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"regime": value} if isinstance(value, str) else value
