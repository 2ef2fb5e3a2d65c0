"""Hosted APIs are compared where they serve the very weights: by name, or by one's own config.json."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.catalog.catalog import Catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import parse_spec
from twofold.core.errors import InputErrors
from twofold.planner.actions import actions_of
from twofold.portfolio.hosted import published

SERVE = """
name: hosted
model: qwen3-32b
serving:
  classes:
    chat:
      traffic: {rate: 20 /s}
      slo: {ttft_p95: 1 s, tpot_p95: 50 ms}
"""
SHOP = "supply: {shop: {accelerators: [H100-SXM5-80GB]%s}}\n"
TUNED = "training: {kind: lora, tokens: 50 Mtok, on: 1x8xH100-SXM, deadline: 20 d}\n"
Planned = Callable[[str], Plan]


def hosted(plan: Plan) -> list[str]:
    return [each.text for each in actions_of(plan) if each.text.startswith("hosted API")]


@pytest.mark.parametrize("said", ["", ", hosted: compare", ", hosted: false", ", hosted: true"])
def test_a_cheaper_api_of_the_same_weights_stands_in_the_decision(planned: Planned, said: str) -> None:
    (text,) = hosted(planned(SERVE + SHOP % said))
    assert "× cheaper; not taken: no latency promised" in text


def test_who_wants_none_hears_of_none(planned: Planned) -> None:
    plan = planned(SERVE + SHOP % ", hosted: never")
    assert plan.money and not hosted(plan)
    assert all(each.api is None for each in plan.money.services)


def test_nobody_hosts_what_a_run_makes(planned: Planned) -> None:
    assert not hosted(planned(SERVE + TUNED + SHOP % ""))


def test_another_model_as_large_is_called_so(planned: Planned) -> None:
    (text,) = hosted(planned(SERVE.replace("qwen3-32b", "llama-3.1-70b") + SHOP % ""))
    assert "for serve (llama-3.3-70b, as large, other weights): " in text


def test_rules_that_forbid_a_provider_forbid_its_api(planned: Planned) -> None:
    ruled = planned(SERVE + SHOP % "" + "compliance: {regime: fedramp-high}\n")
    for text in hosted(ruled):
        assert any(cloud in text for cloud in ("aws", "azure", "gcp", "google", "bedrock"))


def test_a_config_of_ones_own_is_known_by_its_numbers(catalog: Catalog) -> None:
    model = catalog.model("qwen3-32b")
    own = replace(model, name="my-assistant", family="llama", notes="from a config.json")
    found = published(own, catalog)
    assert (
        found
        and found.parameters == model.parameters
        and found.hidden == model.hidden
        and found.name == "qwen3-32b"
    )
    assert published(replace(own, layers=79), catalog) is None


def test_another_word_is_refused() -> None:
    with pytest.raises(InputErrors) as caught:
        parse_spec(SERVE + SHOP % ", hosted: maybe", "spec.yaml")
    assert "hosted" in str(caught.value.errors[0])
