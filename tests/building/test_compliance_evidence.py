"""Controls with who implements them, and a register that knows what rests on what was revoked."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from twofold.building.compliance_evidence import (
    FLAGGED,
    IN_FORCE,
    REVOKED,
    cited_notes,
    controls_of,
    families_of,
    register_of,
)
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.types import MandateRow, Regime
from twofold.core.errors import UnknownNameError

ROOT = Path(__file__).parents[2]
CATALOG = load_catalog()
REGIMES = CATALOG.named(Regime)
TODAY = "2026-11-22"
MODERATE, HIGH = 287, 370  # NIST SP 800-53B, December 2020


def test_the_tables_hold_the_whole_baselines() -> None:
    assert len(controls_of(CATALOG, REGIMES["fedramp-moderate"], True)) == MODERATE
    assert len(controls_of(CATALOG, REGIMES["fedramp-high"], True)) == HIGH


def test_families_add_up_and_name_every_gap() -> None:
    controls = controls_of(CATALOG, REGIMES["il5"], True)
    families = families_of(controls)
    assert sum(family.control_count for family in families) == len(controls)
    for family in families:
        parts = (family.product_count, family.platform_count, family.organisation_count)
        assert sum(parts) == family.control_count
    lacking = {control.id for control in controls if control.status in {"partial", "gap"}}
    assert {name for family in families for name in family.gaps} == lacking
    assert {"SC-8", "SC-28", "IA-2"} <= lacking  # what stands open is not hidden


def test_evidence_is_a_file_of_the_repository_or_a_command_of_the_product() -> None:
    from twofold.cli.verbs import VERBS

    for control in controls_of(CATALOG, REGIMES["il5"], True):
        words = shlex.split(control.evidence)
        if words and words[0] == "twofold":
            assert words[1] in VERBS, control.id
            for word in words[2:]:
                assert not word.startswith("examples/") or (ROOT / word).exists(), control.id
        elif words:
            assert (ROOT / control.evidence).exists(), control.id
            assert control.implementer != "product" or not control.evidence.startswith("tests/"), control.id


def test_nothing_is_inherited_on_a_site_of_ones_own() -> None:
    own = controls_of(CATALOG, REGIMES["il5"], is_rented=False)
    assert not [control for control in own if control.status == "inherited"]
    rented = controls_of(CATALOG, REGIMES["il5"], is_rented=True)
    assert [control.id for control in own] == [control.id for control in rented]


def test_the_order_of_2023_is_revoked_and_its_dependants_are_flagged() -> None:
    register = {mandate.name: mandate for mandate in register_of(CATALOG, TODAY)}
    order = register["EO 14110"]
    assert (order.status, order.because) == (REVOKED, "2025-01-20 by EO 14148")
    assert register["NIST AI 600-1"].status == FLAGGED
    assert "EO 14110" in register["NIST AI 600-1"].because
    for name, instead in (("M-24-10", "M-25-21"), ("M-24-18", "M-25-22")):
        assert (register[name].status, register[name].replaced_by) == (REVOKED, instead)
        assert "rests on EO 14110" in register[name].because
        assert register[instead].status == IN_FORCE


def test_a_register_of_an_earlier_day_knows_nothing_of_later_ones() -> None:
    before = {mandate.name: mandate.status for mandate in register_of(CATALOG, "2025-01-19")}
    assert (before["EO 14110"], before["NIST AI 600-1"], before["M-24-10"]) == (IN_FORCE,) * 3


def test_what_rests_on_what_rests_on_a_revoked_order_is_flagged_too() -> None:
    class Deep(Catalog):
        """The register with one more row, two steps above the order."""

        def __init__(self) -> None:
            super().__init__(CATALOG._ours, {})

        def named(self, kind: type[Any]) -> dict[str, Any]:
            rows = super().named(kind)
            if kind is not MandateRow:
                return rows
            profile = rows["NIST AI 600-1"]
            return {**rows, "our policy": replace(profile, name="our policy", rests_on="NIST AI 600-1")}

    register = {mandate.name: mandate for mandate in register_of(Deep(), TODAY)}
    assert register["our policy"].status == FLAGGED


def test_papers_that_cite_what_ceased_are_told_and_unknown_names_are_refused() -> None:
    notes = cited_notes(CATALOG, ("eo 14110", "SP 800-53 rev 5", "M-24-10"), TODAY)
    assert len(notes) == 2
    assert "cite M-25-21 instead" in notes[1]
    with pytest.raises(UnknownNameError, match="not in the policy register"):
        cited_notes(CATALOG, ("EO 99999",), TODAY)
