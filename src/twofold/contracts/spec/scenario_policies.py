"""Which policies of the gate a scenario turns on, and with what settings."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Listed, Part, Quantity, first_twice, refusal
from twofold.contracts.spec.parts import ModelReference
from twofold.contracts.spec.scenario_parts import ClassName
from twofold.core.errors import ValueRefusedError
from twofold.core.quantity import Dimension

Routing = Literal["least-work", "round-robin", "power-of-two", "prefix", "session"]
Switch = Literal["on", "off"]


class Switched(Part):
    """A policy with settings: `on` and `off` alone will do, and what is set is on."""

    text_form = "switch"
    switch: Switch = Field(default="on", description="`on` or `off`; the text form says it")

    @property
    def is_on(self) -> bool:
        return self.switch == "on"

    def idle_fields(self) -> dict[str, str]:
        if self.is_on:
            return {}
        return {name: "is set, but the policy is off" for name in type(self).model_fields if name != "switch"}


Size = Annotated[float, Quantity(Dimension.BYTES, "MiB", zero=fields.MORE_THAN_ZERO)]
TokenRate = Annotated[float, Quantity(Dimension.TOKEN_RATE, "tok/s", zero="nothing would ever be let in")]


class ClassLimit(Part):
    """What all tenants together may ask of one class."""

    class_name: ClassName = Field(alias="class", description="of the service")
    requests_per_s: fields.Rate | None = Field(default=None, description="of all tenants")
    tokens_per_s: TokenRate | None = Field(default=None, description="of all tenants, prompts and answers")

    @model_validator(mode="after")
    def _some(self) -> "ClassLimit":
        if self.requests_per_s is None and self.tokens_per_s is None:
            what = f"the limit of class `{self.class_name}` limits nothing"
            raise refusal(what, "write `requests`, `tokens`, or both")
        return self


class Limits(Switched):
    """Rate limits, of each tenant and of classes."""

    requests_per_s: fields.Rate | None = Field(
        default=None, description="of one tenant; where nothing is limited, twice its share of the peak"
    )
    tokens_per_s: TokenRate | None = Field(default=None, description="of one tenant, prompts and answers")
    classes: Annotated[tuple[ClassLimit, ...], Listed] = Field(
        default=(), description="of all tenants together"
    )

    @model_validator(mode="after")
    def _once(self) -> "Limits":
        twice = first_twice([each.class_name for each in self.classes])
        if twice is not None:
            hint = "write `requests` and `tokens` of a class as one"
            raise refusal(f"class `{twice}` has two limits", hint)
        return self


class Queue(Switched):
    """Fair queues by class and tenant, where no replica has room."""

    depth: fields.PositiveCount = Field(default=1000, description="requests of a class that may wait")
    wait_s: fields.Seconds = Field(default=30.0, description="that a request waits at most")


class Smaller(Part):
    """What answers in need: another model, or the service's own with narrower weights."""

    text_form = "quantisation"
    quantisation: Literal["int8", "int4"] | None = Field(
        default=None, description="of a copy of the model; the text form says it"
    )
    model: ModelReference | None = Field(
        default=None, description="a model that is faster than the service's"
    )
    replicas: fields.PositiveCount = Field(default=1, description="that have it, beside the planned ones")

    @model_validator(mode="after")
    def _one_of(self) -> "Smaller":
        if (self.quantisation is None) == (self.model is None):
            raise refusal("what answers in need is one thing", "write `int8`, `int4`, or `{model: …}`")
        return self

    @property
    def label(self) -> str:
        """How gates and screens name it."""
        return self.model.label if self.model is not None else f"{self.quantisation} copy"


class Degradation(Switched):
    """Under overload: bulk classes are shed, then answers made shorter, then a smaller model answers."""

    shortest_fraction: fields.Fraction = Field(default=0.5, description="of its limit that an answer keeps")
    smaller: Smaller | None = Field(
        default=None, description="answers while all of that is not enough; none: nothing does"
    )


class AnswerCache(Switched):
    """Exact repeats of a tenant's requests at temperature 0, or with a seed, get the kept answer."""

    size_bytes: Size = Field(default=64 * 2.0**20, description="of all answers; the oldest go first")
    age_s: fields.Seconds = Field(default=600.0, description="that an answer is given again")


class Pools(Part):
    """Which classes share replicas."""

    text_form = "kind"
    kind: Literal["planned", "shared", "priority", "split"] = Field(
        default="planned",
        description="the plan's pools, each behind a gate of its own; or all replicas behind one gate: one "
        "pool for all classes, the same with those that wait for an answer first, or a pool for these and "
        "one for bulk work",
    )
    borrow_fraction: fields.Fraction = Field(
        default=0.0,
        description="pools split: bulk work goes to the other pool too while that is at most so full",
    )

    @property
    def is_on(self) -> bool:
        return self.kind != "planned"

    def idle_fields(self) -> dict[str, str]:
        return {} if self.kind == "split" else {"borrow_fraction": "belongs to `kind: split`"}


class RetryBudget(Switched):
    """How many retries the gate makes and lets in."""

    fraction: fields.Fraction = Field(default=0.1, description="of the requests that arrive")


class Scaling(Switched):
    """Replicas follow the load."""

    kind: Literal["reactive", "predictive"] = Field(
        default="predictive", description="by what is seen, or by what the day before showed"
    )
    least: fields.Count = Field(default=1, description="replicas of a pool at any time")
    most: fields.PositiveCount | None = Field(
        default=None, description="replicas of a pool; twice the planned by default"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "Scaling":
        if self.most is not None and self.most < self.least:
            raise refusal(f"`most: {self.most}` is below `least: {self.least}`")
        return self


class Warm(Switched):
    """Replicas that are started and wait."""

    replicas: fields.PositiveCount | None = Field(
        default=None, description="of a pool; sized from the forecast by default"
    )


class Policies(Part):
    """The gate's policies by name. What is not named is as the plan runs it."""

    routing: Routing = Field(default="least-work", description="which replica gets a request")
    pools: Pools = Field(default=Pools(), description="which classes share replicas")
    limits: Limits = Field(default=Limits(switch="off"), description="rate limits of tenants")
    queue: Queue = Field(default=Queue(), description="fair queues where no replica has room")
    admission: Switched = Field(
        default=Switched(switch="off"),
        description="refuses at once what would be late, which then has failed",
    )
    degradation: Degradation = Field(
        default=Degradation(switch="off"),
        description="sheds bulk, shortens answers, lets a smaller model answer, under overload",
    )
    answer_cache: AnswerCache = Field(
        default=AnswerCache(switch="off"), description="gives exact repeats the answer that is kept"
    )
    retry_budget: RetryBudget = Field(default=RetryBudget(), description="limits retries to a share")
    hedge: Switched = Field(default=Switched(switch="off"), description="a second attempt for a late one")
    outliers: Switched = Field(default=Switched(), description="ejects replicas slower than the others")
    scaling: Scaling = Field(default=Scaling(switch="off"), description="replicas follow the load")
    warm: Warm = Field(default=Warm(switch="off"), description="replicas that wait for a burst")
    canary: Switched = Field(default=Switched(), description="stages a release, and rolls a bad one back")
    zones: Switched = Field(default=Switched(), description="fails over from a zone that is lost")

    @property
    def smaller(self) -> Smaller | None:
        """What answers in need, where that is on and something is named."""
        return self.degradation.smaller if self.degradation.is_on else None

    @model_validator(mode="after")
    def _agree(self) -> "Policies":
        if self.warm.is_on and not self.scaling.is_on:
            raise refusal(
                "`warm` is on, but nothing would start from it: `scaling` is off", "write `scaling: on`"
            )
        return self

    def over(self, base: "Policies") -> "Policies":
        """What is named here, and for the rest what another says: a scenario's policies over a spec's own.

        Raises ValueRefusedError for policies that do not agree.
        """
        named = {name: getattr(self, name) for name in self.model_fields_set}
        joined = base.model_copy(update=named)
        if joined.warm.is_on and not joined.scaling.is_on:
            what = "`warm` of the spec is on, and the scenario turns `scaling` off"
            raise ValueRefusedError(what, hint="write `warm: off` in the scenario")
        return joined
