"""One gate for the twin and for live: every policy of a scenario sets it, and its digest says which it is."""

from dataclasses import replace

import pytest

from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.scenario import Reading, Scenario, parse_scenario
from twofold.contracts.spec.scenario_policies import Policies
from twofold.core.errors import InputErrors
from twofold.gating.build import BuiltGate, GatedPool, GateScope, build_gate
from twofold.policy.gate.settings import Beliefs, Rate, Routing, RoutingSettings

POOL = GatedPool("", 2, ("a",), 16)
SAID = [
    {},
    {"retry_budget": {"fraction": "25 %"}},
    {"queue": {"depth": 7, "wait": "3 s"}},
    *({name: "off"} for name in ("retry_budget", "queue", "outliers", "canary")),
    *({name: "on"} for name in ("limits", "admission", "degradation", "hedge", "scaling")),
    *({"routing": rule} for rule in ("round-robin", "power-of-two", "prefix", "session")),
]


def scope(plan: Plan) -> GateScope:
    classes = plan.serving[0].classes
    return GateScope((POOL,), classes, 60.0, RoutingSettings(), Beliefs(1e-4, 2e-3, 1e-2))


def built(said: dict[str, object], plan: Plan) -> BuiltGate:
    return build_gate(Scenario(name="s", policies=Policies.model_validate(said)), scope(plan))


def test_every_policy_that_is_said_otherwise_makes_another_gate(examples: dict[str, Plan]) -> None:
    digests = [built(said, examples["laptop"]).digest for said in SAID]
    assert len(set(digests)) == len(SAID)
    assert digests == [built(said, examples["laptop"]).digest for said in SAID]


def test_a_digest_tells_beliefs_and_limits_apart_but_not_the_last_bits(examples: dict[str, Plan]) -> None:
    gate = built({}, examples["laptop"])
    slower = replace(gate, beliefs=replace(gate.beliefs, output_token_s=2.1e-3))
    narrower = replace(gate, in_flight_limits=(("", 15),))
    assert len({gate.digest, slower.digest, narrower.digest}) == 3
    rounded = replace(gate, beliefs=replace(gate.beliefs, output_token_s=2e-3 * (1.0 + 1e-13)))
    assert rounded != gate and rounded.digest == gate.digest


def test_a_policy_of_a_scenario_is_what_the_gate_has(examples: dict[str, Plan]) -> None:
    gate = built({"retry_budget": {"fraction": "25 %"}, "routing": "session"}, examples["laptop"]).settings
    assert gate.retry_budget is not None and gate.retry_budget.attempts_fraction == 0.25
    assert gate.routing is Routing.SESSION and gate.hedge is None and gate.admission is None


@pytest.mark.parametrize(
    ("said", "tenant", "classes"),
    [
        ({"requests": "3 /s"}, Rate(3.0), ()),
        ({"requests": "3 /s", "tokens": "2 ktok/s"}, Rate(3.0, 2000.0), ()),
        ({"classes": {"class": "chat", "tokens": "600 tok/min"}}, None, (("chat", Rate(None, 10.0)),)),
        ({"tokens": "1 tok/s", "classes": [{"class": "other", "requests": "1 /s"}]}, Rate(None, 1.0), ()),
    ],
)
def test_limits_of_tenants_and_classes_are_those_that_are_said(
    said: dict[str, object],
    tenant: Rate | None,
    classes: tuple[tuple[str, Rate], ...],
    examples: dict[str, Plan],
) -> None:
    limits = built({"limits": said}, examples["laptop"]).settings.limits
    assert limits is not None and (limits.tenant, limits.classes) == (tenant, classes)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("classes: [{class: chat}]", "limits nothing"),
        ("classes: [{class: chat, tokens: 1 tok/s}, {class: chat, requests: 1 /s}]", "has two limits"),
        ("classes: [{class: moon, tokens: 1 tok/s}]", "is not a class"),
        ("tokens: 5 /s", "tok/s"),
    ],
)
def test_a_limit_that_limits_nothing_or_nobody_is_refused(said: str, says: str) -> None:
    with pytest.raises(InputErrors) as caught:
        parse_scenario(f"policies: {{limits: {{{said}}}}}", "s.yaml", Reading(classes=frozenset({"chat"})))
    assert says in str(caught.value.errors[0])
