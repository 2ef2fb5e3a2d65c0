"""Verdicts follow from the tables and models: change these, and the verdict changes."""

import csv
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.catalog.schema import DATA
from twofold.core.errors import TwofoldError
from twofold.perf.constants import load_constants
from twofold.verdicts.table import load_claims
from twofold.verdicts.verdicts import Judged, Verdict, compute, judge, judge_all
from twofold.verdicts.world import World

CLAIMS = {claim.id: claim for claim in load_claims()}


@cache
def world() -> World:
    return World(load_catalog(), load_constants())


def other_world(folder: Path, table: str, name: str, cells: Mapping[str, str]) -> World:
    """Our tables with one row of one of them changed, as a user's folder changes it."""
    with (DATA / f"{table}.csv").open(encoding="utf-8", newline="") as handle:
        row = next(row for row in csv.DictReader(handle) if row["name"] == name)
    with (folder / f"{table}.csv").open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, list(row))
        writer.writeheader()
        writer.writerow(row | dict(cells))
    return World(load_catalog(None, folder), load_constants())


def verdict(identity: str, where: World | None = None) -> Judged:
    return judge(CLAIMS[identity], where or world())


def test_a_card_of_350_w_makes_the_claim_about_serving_cards_hold(tmp_path: Path) -> None:
    ours = verdict("S0-22")
    assert ours.verdict == Verdict.CONDITIONAL
    assert (ours.low, ours.high, ours.unit) == (72.0, 350.0, "W")
    assert verdict("S0-22", other_world(tmp_path, "accelerators", "L4", {"tdp_w": "350"})).verdict == "holds"


def test_a_verdict_is_never_stored() -> None:
    shifted = replace(CLAIMS["S0-21"], low=701.0)
    assert judge(CLAIMS["S0-21"], world()).verdict == Verdict.HOLDS
    assert judge(shifted, world()).verdict == Verdict.CONTRADICTED


def test_without_a_predicate_nothing_is_claimed_to_be_known() -> None:
    judged = judge(replace(CLAIMS["S0-22"], predicates=()), world())
    assert (judged.verdict, judged.value, judged.cases) == (Verdict.UNVERIFIABLE, None, ())


def test_what_the_tables_lack_is_left_out_and_said() -> None:
    judged = verdict("S2-43")
    assert "no list price of Groq-LPU-v1" in judged.reason
    assert {case.label for case in judged.cases} == {"Inferentia2"}
    assert [case.when for case in verdict("S0-46").cases] == ["vllm", "trtllm"]


def test_figures_missing_in_every_case_leave_a_claim_unverifiable() -> None:
    claim = CLAIMS["S2-43"]
    priceless = tuple(each for each in claim.predicates if "Groq" in each.text)
    judged = judge(replace(claim, predicates=priceless), world())
    assert (judged.verdict, judged.cases) == (Verdict.UNVERIFIABLE, ())
    assert "no list price of Groq-LPU-v1" in judged.reason


@pytest.mark.parametrize("identity", ["S0-22", "S0-36", "S0-08", "S1-10"])
def test_the_parts_of_a_verdict_agree(identity: str) -> None:
    judged = verdict(identity)
    held = sum(case.holds for case in judged.cases)
    assert judged.holds_fraction == held / len(judged.cases)
    assert (judged.verdict == Verdict.HOLDS) == (held == len(judged.cases))
    assert (judged.verdict == Verdict.CONTRADICTED) == (held == 0)
    assert judged.low is not None and judged.high is not None
    assert judged.low <= float(str(judged.value)) <= judged.high
    assert f"{held} of {len(judged.cases)} cases" in judged.reason


def test_the_world_computes_the_same_question_once() -> None:
    fresh = World(load_catalog(), load_constants())
    first = compute("train('llama-3.1-8b', '1x8xH100-SXM')", fresh)
    assert compute("train('llama-3.1-8b', '1x8xH100-SXM')", fresh) is first


def test_judging_tells_how_far_it_is() -> None:
    told: list[str] = []
    judge_all([CLAIMS["S0-21"], CLAIMS["S0-22"]], world(), told.append)
    assert told == ["claim 1 of 2: S0-21", "claim 2 of 2: S0-22"]


@pytest.mark.parametrize(
    "text", ["catalog('nothing')", "train('llama-3.1-8b')", "train('x', '1xL4', colour=3)", "nothing(1)"]
)
def test_a_wrong_question_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(TwofoldError):
        compute(text, world())


def test_what_fits_nowhere_is_none() -> None:
    assert compute("train('llama-3.1-405b', '1x8xL4').mfu", world()) is None


def test_an_h100_of_141_gb_trains_what_one_of_80_gb_does_not(tmp_path: Path) -> None:
    cells = {"mem_gb": "141", "visible_gib": "139.8"}
    larger = other_world(tmp_path, "accelerators", "H100-SXM5-80GB", cells)
    assert verdict("S0-32").verdict == Verdict.CONDITIONAL
    assert verdict("S0-32", larger).verdict == Verdict.HOLDS


def test_an_order_that_was_never_revoked_would_bind(tmp_path: Path) -> None:
    standing = other_world(tmp_path, "mandates", "EO 14110", {"revoked_on": "", "revoked_by": ""})
    assert verdict("S0-63").verdict == Verdict.CONTRADICTED
    assert verdict("S0-63", standing).verdict == Verdict.HOLDS


def test_networks_that_reach_a_two_hundredth_make_training_wait_for_them() -> None:
    shipped = load_constants()
    slower = [
        replace(row, value=row.value / 200, low=0.0)
        for row in shipped.rows
        if row.name in ("fabric_efficiency_fraction", "link_efficiency_fraction")
    ]
    assert slower
    assert verdict("S1-02").verdict == Verdict.HOLDS
    changed = shipped.with_rows(slower)
    assert len(changed.rows) == len(shipped.rows)
    waiting = verdict("S1-02", World(load_catalog(), changed))
    assert waiting.verdict in (Verdict.CONDITIONAL, Verdict.CONTRADICTED)


def test_few_claims_are_beyond_the_product() -> None:
    lacking = [claim.id for claim in CLAIMS.values() if not claim.predicates]
    assert 0 < len(lacking) <= 25
    assert all(verdict(identity).verdict == Verdict.UNVERIFIABLE for identity in lacking)


@pytest.mark.parametrize("identity", list(CLAIMS))
def test_every_claim_is_judged_with_figures_and_a_command(identity: str) -> None:
    judged = verdict(identity)
    assert judged.command.startswith("twofold ")
    assert judged.reason and "\n" not in judged.reason and not judged.reason.endswith(".")
    assert (judged.verdict == Verdict.UNVERIFIABLE) == (not CLAIMS[identity].predicates)
    known = [case for case in judged.cases if case.value is not None]
    assert known or not judged.cases, "every case came to nothing: the question is wrong"
    assert all(case.holds is False for case in judged.cases if case.value is None)
