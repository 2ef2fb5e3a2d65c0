"""Rows about federal systems: keys in modules, controls, what rules cost at three sizes, the register."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLAN = "twofold plan examples/federal --json"
CLAIMED = (0.2, 0.4)


@pytest.fixture(scope="module")
def rules(ask: Callable[[str], Any]) -> dict[str, Any]:
    """The part of the example's plan about rules."""
    part = ask(PLAN).data["compliance"]
    assert isinstance(part, dict)
    return part


def test_r_111_the_bill_lists_modules_and_every_key_use_is_mapped(screen: str, rules: dict[str, Any]) -> None:
    keys = rules["keys"]
    assert f"{keys['module_count']} HSMs" in screen
    bought = [item for item in rules["items"] if item["name"] == "hardware security module, rented"]
    assert [item["line"]["quantity"] for item in bought] == [keys["module_count"]]
    assert keys["module_count"] >= 2 * keys["cluster_count"]
    for point in keys["points"]:
        assert re.search(r"\b(SC|IA|AU|SI|CP|SR|CM|AC)-\d", point["standard"]), point["name"]
    points = {point["name"] for point in keys["points"]}
    assert {"weights at rest", "checkpoints at rest", "artefact signature", "log seal"} <= points


def test_r_112_each_control_has_family_status_evidence_or_its_gap(
    command: str, ask: Callable[[str], Any], rules: dict[str, Any]
) -> None:
    assert ask(command).code == 0
    rows = ask(f"{command} --json").data["rows"]
    assert len(rows) == sum(family["product_count"] for family in rules["families"])
    for row in rows:
        assert row["family"]
        assert row["evidence"] if row["status"] == "whole" else row["gap"], row["id"]
        if row["evidence"] and not row["evidence"].startswith("twofold "):
            assert (ROOT / row["evidence"]).is_file(), row["id"]
    listed = {control["id"] for control in rules["controls"]}
    assert len(listed) == 370  # the high baseline of SP 800-53B, whole
    gaps = {name for family in rules["families"] for name in family["gaps"]}
    assert gaps == {row["id"] for row in rows if row["gap"]}


def test_r_113_the_uplift_is_itemised_at_three_sizes_and_falls_with_size(
    screen: str, rules: dict[str, Any]
) -> None:
    assert [uplift["accelerator_count"] for uplift in rules["sizes"]] == [64, 512, 4096]
    fractions = [uplift["uplift_fraction"]["value"] for uplift in rules["sizes"]]
    assert fractions == sorted(fractions, reverse=True)
    low, high = CLAIMED
    for uplift, fraction in zip(rules["sizes"], fractions, strict=True):
        verdict = "below" if fraction < low else "above" if fraction > high else "within"
        assert uplift["claim"] == verdict
    # A flat percentage would be the same at every size: this bill is not.
    assert fractions[0] > 1.5 * fractions[-1]
    totals = [round(100 * item["line"]["total_usd"]) for item in rules["items"]]
    assert round(100 * rules["first_year_usd"]["value"]) == sum(totals)
    for item in rules["items"]:
        assert f"{item['line']['total_usd']:,.2f}" in screen, item["name"]


def test_r_113_the_same_system_without_rules_rents_cheaper(ask: Callable[[str], Any]) -> None:
    """The rest of the pair: what the rules add to the rent is named, by provider and region."""
    bound, free = (ask(f"twofold plan {spec} --json").data for spec in ("examples/federal", FREE))
    assert free["compliance"] is None
    assert bound["first_year_usd"]["value"] > free["first_year_usd"]["value"]
    rent = [item for item in bound["compliance"]["items"] if item["category"] in ("provider", "region")]
    named = sum(item["line"]["total_usd"] for item in rent)
    assert bound["compliance"]["rent_usd"] == pytest.approx(named)
    assert 0 < named < bound["first_year_usd"]["value"]
    texts = [(ROOT / path).read_text("utf-8") for path in ("examples/federal/twofold.yaml", FREE)]
    bodies = [text.split("\n", 1)[1].split("\ncompliance:")[0].rstrip() for text in texts]
    assert bodies[0] == bodies[1]  # nothing but the rules differs


FREE = "examples/federal/without.yaml"


def test_r_116_the_register_shows_the_revoked_order_and_flags_what_rests_on_it(
    screen: str, rules: dict[str, Any]
) -> None:
    register = {mandate["name"]: mandate for mandate in rules["mandates"]}
    assert register["EO 14110"]["status"] == "revoked"
    assert register["EO 14110"]["because"] == "2025-01-20 by EO 14148"
    resting = [each for each in register.values() if "rests on EO 14110" in each["because"]]
    assert {"M-24-10", "M-24-18", "NIST AI 600-1"} <= {each["name"] for each in resting}
    assert {each["status"] for each in resting} == {"revoked", "flagged"}
    for each in resting:
        assert each["name"] in screen
    assert all(each["date"] and each["source"] and each["confidence"] for each in register.values())
    assert "your papers cite EO 14110, revoked" in screen
