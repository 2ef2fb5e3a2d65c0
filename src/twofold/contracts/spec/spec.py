"""The spec: what is planned, as typed data. The file's keys are the fields' aliases."""

from collections import Counter
from typing import Any

from pydantic import Field, model_validator

from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Part, refusal
from twofold.contracts.spec.parts import ModelReference
from twofold.contracts.spec.service import Service
from twofold.contracts.spec.supply import ComplianceSpec, FacilityKeys, Supply
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.errors import EmptyError


class Spec(Part):
    """Training runs and services on one supply. Half a spec plans half."""

    name: fields.Name = Field(default="plan", description="its name on screens")
    model: ModelReference | None = Field(
        default=None, description="the model of every run and service that names none"
    )
    training: tuple[TrainingRun, ...] = Field(default=(), description="one training run, or a list of them")
    services: tuple[Service, ...] = Field(
        default=(), alias="serving", description="one service, or a list of them"
    )
    confidence_fraction: fields.Confidence = Field(
        default=0.8,
        description="with which each latency and date is to hold, by its range; 50 %: its middle does",
    )
    supply: Supply = Field(default=Supply(), description="where capacity comes from")
    facility: FacilityKeys = Field(
        default=FacilityKeys(), description="the building: racks, cooling, power, sites"
    )
    compliance: ComplianceSpec | None = Field(
        default=None, description="rules that bind the system: a regime such as `fedramp-high`"
    )

    @property
    def margin_fraction(self) -> float | None:
        """The confidence, where it asks for more than the middle; None where the middle is enough."""
        return self.confidence_fraction if self.confidence_fraction > 0.5 else None

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, value: Any) -> Any:
        """One run or service is a list of one; the model above is theirs."""
        if not isinstance(value, dict):
            return value
        long = dict(value)
        for key in ("training", "serving"):
            if key in value:
                entries = value[key] if isinstance(value[key], (list, tuple)) else [value[key]]
                model = {} if value.get("model") is None else {"model": value["model"]}
                long[key] = [{**model, **each} if isinstance(each, dict) else each for each in entries]
        return long

    @model_validator(mode="after")
    def _something_to_plan(self) -> "Spec":
        if not self.training and not self.services:
            raise refusal("a spec plans something", "write `training:`, `serving:` or both", kind=EmptyError)
        for half, entries in (("training", self.training), ("serving", self.services)):
            names = Counter(entry.name for entry in entries)
            for name in (name for name, count in names.items() if count > 1):
                raise refusal(f"two entries of `{half}` are named `{name}`", "give each its own `name`")
        for name in {each.name for each in self.training} & {each.name for each in self.services}:
            raise refusal(f"a run and a service are both named `{name}`", "give each its own `name`")
        return self
