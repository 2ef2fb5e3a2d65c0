"""One spec of policies sets the twin's gate and the live one."""

import pytest

from twofold.contracts.results import Plan
from twofold.contracts.scenario import Policies, Scenario
from twofold.contracts.scenario.scenario import Reading, parse_scenario
from twofold.core import InputErrors
from twofold.live.gateway_config import NOT_LIVE
from twofold.policy.gate import Rate, RoutingSettings
from twofold.rehearse.faults import WorldPool
from twofold.rehearse.gate import GateScope, gate_settings, live_gate_settings
from twofold.twin.serving import ReplicaGroup

POOL = WorldPool("", (), (ReplicaGroup(2, "a"),), 16)
SAID = [
    {},
    {"retry_budget": {"fraction": "25 %"}, "queue": {"depth": 7, "wait": "3 s"}},
    {"retry_budget": "off", "queue": "off", "routing": "round-robin"},
]


@pytest.mark.parametrize("said", SAID)
def test_twin_and_live_hold_and_repeat_by_the_same_settings(
    said: dict[str, object], examples: dict[str, Plan]
) -> None:
    policies, classes = Policies.model_validate(said), examples["laptop"].serving[0].classes
    gated = GateScope((POOL,), classes, 60.0, RoutingSettings())
    twin = gate_settings(Scenario(name="s", policies=policies), gated)
    live = live_gate_settings(policies, classes)
    for name in ("classes", "queue", "retry_budget", "routing"):
        assert getattr(live, name) == getattr(twin, name), name
    assert (live.retry_budget is None) == (said.get("retry_budget") == "off")
    assert all(getattr(live, name) is None for name in (*NOT_LIVE, "limits", "admission", "degradation"))


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
    planned = examples["laptop"].serving[0].classes
    gated = GateScope((POOL,), planned, 60.0, RoutingSettings())
    policies = Policies.model_validate({"limits": said})
    limits = gate_settings(Scenario(name="s", policies=policies), gated).limits
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
