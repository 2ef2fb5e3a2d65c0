"""One spec of policies sets the twin's gate and the live one."""

import pytest

from twofold.contracts import Plan, Policies, Scenario
from twofold.live.gateway_config import NOT_LIVE
from twofold.plan.rehearse_gate import Gated, GatedPool, gate_settings, live_gate_settings
from twofold.policy import RoutingSettings

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
    gated = Gated((GatedPool("", 2, ("a",), 16),), classes, "base", 60.0, RoutingSettings())
    twin = gate_settings(Scenario(name="s", policies=policies), gated)
    live = live_gate_settings(policies, classes)
    for name in ("classes", "queue", "retry_budget", "routing"):
        assert getattr(live, name) == getattr(twin, name), name
    assert (live.retry_budget is None) == (said.get("retry_budget") == "off")
    assert all(getattr(live, name) is None for name in (*NOT_LIVE, "limits", "admission", "degradation"))
