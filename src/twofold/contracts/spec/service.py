"""What a spec says about one service: its model, its latency classes and their traffic."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from twofold.contracts.goals import SuccessGoal
from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Listed, Part, Unsaid, need_one, refusal
from twofold.contracts.spec.parts import Engine, FixedCluster, ModelReference
from twofold.contracts.spec.scenario_policies import Policies
from twofold.contracts.spec.servers import Overflow, Server
from twofold.contracts.spec.tier import Tier
from twofold.core.quantity import DAY_S
from twofold.perf.software import DEFAULT_ENGINE

WeightFormat = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4", "nvfp4", "mxfp4"]
KvFormat = Literal["fp32", "bf16", "fp16", "fp8", "int8"]
Choice = Literal["disaggregation", "drafts", "prefix_cache"]
Profile = Literal["flat", "consumer", "business"]
Preset = Literal["conversational", "documents", "batch"]


class Lengths(Part):
    """Tokens of one request's input or output: a mean, and how long the long ones are."""

    text_form = "mean"
    mean_tokens: fields.Tokens = Field(description="mean of all requests")
    p95_tokens: fields.Tokens = Field(
        default_factory=lambda data: 3 * data.get("mean_tokens", 1.0),
        description="95th percentile; three times the mean where it is not given",
    )

    @model_validator(mode="after")
    def _ordered(self) -> "Lengths":
        if self.p95_tokens < self.mean_tokens * 0.5:
            raise refusal(f"p95 of {self.p95_tokens:g} tokens is far below the mean of {self.mean_tokens:g}")
        return self


AZURE_INPUT = Lengths.model_validate({"mean": "1155 tok", "p95": "4083 tok"})
AZURE_OUTPUT = Lengths.model_validate({"mean": "211 tok", "p95": "451 tok"})


class Traffic(Part):
    """How requests arrive. One of `rate`, `trace`, `tokens_per_day`. Default lengths are Azure's of 2023."""

    rate_per_s: fields.Rate | None = Field(default=None, description="requests, mean over the week")
    peak_ratio: fields.PeakRatio = Field(default=2.0, description="busiest minutes over the mean")
    profile: Profile = Field(default="consumer", description="shape of the week")
    input: Lengths = Field(default_factory=lambda: AZURE_INPUT, description="tokens that a request sends")
    output: Lengths = Field(default_factory=lambda: AZURE_OUTPUT, description="tokens that it gets")
    trace: fields.FilePath | None = Field(default=None, description="a csv or csv.gz of arrivals and lengths")
    unit: fields.Name | None = Field(
        default=None,
        description="what `rate` counts where the model is measured rows; `rate: 200 images/s` says it",
    )
    scale_ratio: fields.Multiplier = Field(default=1.0, description="factor on the trace's rate")
    shared_prefix_fraction: fields.Fraction = Field(
        default=0.0, description="part of the input tokens that the prefix cache holds"
    )
    tokens_per_day: fields.ManyTokens | None = Field(
        default=None, description="input and output tokens, any time of day"
    )

    @model_validator(mode="after")
    def _one_source(self) -> "Traffic":
        ways = {"rate": self.rate_per_s, "trace": self.trace, "tokens_per_day": self.tokens_per_day}
        need_one("traffic", ways)
        return self

    def idle_fields(self) -> dict[str, str]:
        if self.trace is not None:
            read = "is read from the `trace`"
            return dict.fromkeys(("peak_ratio", "profile", "input", "output"), read)
        idle = {"scale_ratio": "belongs to a `trace`"}
        if self.tokens_per_day is not None:
            idle |= dict.fromkeys(("peak_ratio", "profile"), "has no meaning for work at any time of day")
        return idle

    @property
    def mean_rate_per_s(self) -> float | None:
        """Requests per second; None where only the trace knows."""
        if self.tokens_per_day is not None:
            return self.tokens_per_day / DAY_S / (self.input.mean_tokens + self.output.mean_tokens)
        return self.rate_per_s


class SloTargets(Part):
    """What a class promises. Absent: not promised."""

    ttft_p50_s: fields.Latency | None = Field(default=None, description="time to the first token, median")
    ttft_p95_s: fields.Latency | None = Field(default=None, description="time to the first token")
    ttft_p99_s: fields.Latency | None = Field(default=None, description="time to the first token")
    tpot_p50_s: fields.Latency | None = Field(default=None, description="time per further token, median")
    tpot_p95_s: fields.Latency | None = Field(default=None, description="time per further token")
    tpot_p99_s: fields.Latency | None = Field(default=None, description="time per further token")
    e2e_p50_s: fields.Latency | None = Field(default=None, description="whole answer, median")
    e2e_p95_s: fields.Latency | None = Field(default=None, description="whole answer")
    e2e_p99_s: fields.Latency | None = Field(default=None, description="whole answer")
    finish_within_s: fields.Span | None = Field(default=None, description="a day's work is done by then")
    success_fraction: fields.Availability = Field(
        default=SuccessGoal().fraction,
        description="of the requests, whole answers over steady traffic: what is refused has failed",
    )

    @property
    def is_waited_for(self) -> bool:
        """Whether a request is promised something, not only a day's end."""
        return self.finish_within_s is None or bool(self.latencies_s())

    def latencies_s(self) -> dict[str, float]:
        """The promised latencies by goal, `ttft_p95` and its like."""
        held = {name: value for name, value in self if value is not None and name.endswith("_s")}
        held.pop("finish_within_s", None)
        return {name.removesuffix("_s"): value for name, value in held.items()}


# The three classes that people name, with the metric that each is judged by.
PRESETS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "conversational": MappingProxyType({"ttft_p95": "100 ms"}),
        "documents": MappingProxyType({"e2e_p95": "500 ms"}),
        "batch": MappingProxyType({"e2e_p95": "30 s"}),
    }
)


def _default_slo(data: dict[str, Any]) -> SloTargets:
    """Its preset's; else a chat that feels prompt, or a day for work that is counted by the day."""
    if data.get("preset"):
        return SloTargets.model_validate(PRESETS[data["preset"]])
    traffic = data.get("traffic")
    if traffic is not None and traffic.tokens_per_day is not None:
        return SloTargets.model_validate({"finish_within": "24 h"})
    return SloTargets.model_validate({"ttft_p95": "500 ms", "tpot_p95": "50 ms"})


class LatencyClass(Part):
    """Requests with one promise."""

    preset: Preset | None = Field(
        default=None,
        description="conversational (TTFT p95 100 ms), documents (e2e p95 500 ms), batch (e2e p95 30 s)",
    )
    traffic: Traffic = Field(description="how requests arrive")
    slo: SloTargets = Field(
        default_factory=_default_slo, description="what the class promises; adds to its preset's"
    )
    on_zone_loss: Literal["hold", "degrade"] | None = Field(
        default=None,
        description="when a zone is lost: its promise holds, by spares; or it waits and is late. "
        "None: work of a day degrades, what somebody waits for holds",
    )

    @field_validator("slo", mode="before")
    @classmethod
    def _with_preset(cls, value: Any, info: ValidationInfo) -> Any:
        preset = info.data.get("preset")
        return {**PRESETS[preset], **value} if preset and isinstance(value, dict) else value

    @property
    def outlasts_zone(self) -> bool:
        """Whether spares stand ready for the loss of a zone."""
        return (self.on_zone_loss or ("hold" if self.slo.latencies_s() else "degrade")) == "hold"

    @model_validator(mode="after")
    def _promises(self) -> "LatencyClass":
        if not self.slo.latencies_s() and self.slo.finish_within_s is None:
            raise refusal("`slo` promises no time", "write for example `ttft_p95: 500 ms`, or a preset")
        return self


class Variant(Part):
    """A smaller or sparser model that may serve instead."""

    text_form = "model"
    model: ModelReference = Field(description="a distilled, pruned or smaller model")
    quality_note: fields.Text = Field(
        default="quality not stated", description="what is lost, in the user's words"
    )


_COUNTED = re.compile(r"\s*([\d.,_eE]+)\s*([A-Za-z][A-Za-z-]{1,30})/(\w+)\s*")


def _with_unit(of_class: Any) -> Any:
    traffic = of_class.get("traffic") if isinstance(of_class, dict) else None
    rate = traffic.get("rate") if isinstance(traffic, dict) else None
    said = _COUNTED.fullmatch(rate) if isinstance(rate, str) else None
    if said is None or not isinstance(traffic, dict) or said[2] in ("req", "tok"):
        return of_class
    return {**of_class, "traffic": {**traffic, "rate": f"{said[1]} /{said[3]}", "unit": said[2]}}


class Users(Part):
    """People of one region, who send a part of a service's requests."""

    region: fields.RegionName = Field(description="where they are")
    share_fraction: fields.Fraction = Field(description="of the requests")


class Service(Part):
    """One service: a model and its latency classes."""

    name: fields.Name = Field(default="serve", description="its name in paths of the plan")
    model: ModelReference = Field(description="what is served")
    variants: Annotated[tuple[Variant, ...], Listed] = Field(
        default=(), description="models that may serve instead"
    )
    availability_fraction: fields.Availability = Field(default=0.999, description="of the year")
    zones: fields.ZoneCount = Field(
        default=1, description="zones to spread over; the loss of one is survived from 2"
    )
    regions: Annotated[tuple[fields.RegionName, ...], Listed, Unsaid("anywhere")] = Field(
        default=(),
        description="where it must run: regions, countries such as FI, `eu`, or families such as us-east; "
        "none: anywhere",
    )
    users: Annotated[tuple[Users, ...], Listed] = Field(
        default=(),
        description="where requests come from; the way to them counts in what is leased",
    )
    quantisation: Annotated[tuple[WeightFormat, ...], Listed, Unsaid("as the model was published")] = Field(
        default=(), description="weight formats whose quality you accept; none: as the model was published"
    )
    kv_quantisation: Annotated[tuple[KvFormat, ...], Listed, Unsaid("as the engine does")] = Field(
        default=(),
        description="KV cache formats whose quality you accept; none: as the engine does",
    )
    engine: Engine = Field(default=DEFAULT_ENGINE, description="serving software")
    weigh: Annotated[tuple[Choice, ...], Listed] = Field(
        default=("disaggregation", "drafts", "prefix_cache"),
        description="what you have not decided, so that the plan says what it would save: prompts on workers "
        "of their own, drafts that the model checks, prefixes of a trace where `shared_prefix` is not said",
    )
    classes: dict[fields.Name, LatencyClass] = Field(min_length=1, description="latency classes by name")
    on: FixedCluster | None = Field(
        default=None, description="machines of one replica that are given, for example `4xH200`"
    )
    server: Server | None = Field(
        default=None, description="what answers already, in place of replicas that `up` would start"
    )
    overflow: Overflow | None = Field(
        default=None, description="a hosted API that takes what there is no room or no time for"
    )
    before: dict[fields.Name, Tier] = Field(
        default_factory=dict,
        description="CPU servers by name, which every request passes in this order before an engine",
    )
    samples_fraction: fields.Fraction = Field(
        default=0.0,
        description="of the requests: whose text `up` keeps, redacted, to learn from",
    )
    signed_by: fields.FilePath | None = Field(
        default=None,
        description="a public key, a PEM file: nothing is released that its private key did not sign",
    )
    evaluated_on: fields.FilePath | None = Field(
        default=None,
        description="JSON lines of `slice` and `text`: nothing is released by what it does on another set",
    )
    policies: Policies = Field(
        default=Policies(),
        description="the gate's, of `up` and of rehearsals; a scenario's stand over them",
    )

    @model_validator(mode="after")
    def _overflows_of_classes(self) -> "Service":
        unknown = [
            name for name in (self.overflow.classes if self.overflow else ()) if name not in self.classes
        ]
        if unknown:
            hint = f"write some of {', '.join(self.classes)}"
            raise refusal(f"`overflow` names class `{unknown[0]}`, which the service does not have", hint)
        return self

    @model_validator(mode="after")
    def _limits_known_classes(self) -> "Service":
        for limit in self.policies.limits.classes:
            if limit.class_name not in self.classes:
                hint = f"classes: {', '.join(self.classes)}"
                raise refusal(f"`{limit.class_name}` is limited, and is not a class of the service", hint)
        return self

    @model_validator(mode="after")
    def _tiers_before_models(self) -> "Service":
        if self.before and self.model.measured:
            raise refusal("`before` is planned before models, not before measured rows", "remove `before`")
        return self

    @model_validator(mode="before")
    @classmethod
    def _in_units(cls, value: Any) -> Any:
        """`rate: 200 images/s` of a measured model is 200 /s of the unit `images`."""
        model, classes = (
            (value.get("model"), value.get("classes")) if isinstance(value, dict) else (None, None)
        )
        if not (isinstance(model, dict) and model.get("measured") and isinstance(classes, dict)):
            return value
        return {**value, "classes": {name: _with_unit(each) for name, each in classes.items()}}

    @model_validator(mode="after")
    def _units_are_measured(self) -> "Service":
        counted = next((each.traffic.unit for each in self.classes.values() if each.traffic.unit), None)
        if counted and not self.model.measured:
            raise refusal(f"`unit: {counted}` is of measured rows; other models are asked in requests")
        return self

    @model_validator(mode="after")
    def _all_users(self) -> "Service":
        shares = sum(each.share_fraction for each in self.users)
        if self.users and abs(shares - 1.0) > 0.005:
            raise refusal(f"the shares of `users` add up to {100 * shares:.0f} %", "make them 100 %")
        return self
