"""Verdicts follow from the tables and models: change these, and the verdict changes."""

import csv
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.catalog.schema import DATA
from twofold.core.errors import TwofoldError
from twofold.perf.constants import load_constants
from twofold.verdicts.table import Joined, Says, load_claims, read_claim
from twofold.verdicts.verdicts import Judged, Verdict, compute, judge, judge_all, verdict_of
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
    assert (judged.held_count, judged.situation_count) == (held, len(judged.cases))
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
    ours, theirs = verdict("S0-32"), verdict("S0-32", larger)
    assert (ours.verdict, theirs.verdict) == (Verdict.HOLDS, Verdict.HOLDS)  # one kind of GPU is enough
    assert (ours.held_count, theirs.held_count) == (2, 3)


def test_the_box_of_four_cards_is_judged_by_its_own_row(tmp_path: Path) -> None:
    assert verdict("S0-40").verdict == Verdict.HOLDS
    heavier = other_world(tmp_path, "nodes", "L40S-2U-4", {"power_w": "3100"})
    assert verdict("S0-40", heavier).verdict == Verdict.CONDITIONAL


def test_a_store_that_feeds_a_run_is_outside_of_what_is_input_bound(tmp_path: Path) -> None:
    ours = verdict("S4-20")
    assert any("AWS S3 Standard" in case for case in ours.outside)
    assert ours.verdict == Verdict.HOLDS
    hardly = other_world(tmp_path, "storage", "AWS EBS gp3", {"read_gb_s": "1.6"})
    assert verdict("S4-20", hardly).verdict == Verdict.CONDITIONAL  # 98 % of what eight GPUs read


def test_a_share_of_latency_grows_with_nodes_however_small_it_is() -> None:
    fast = "train('llama-3.1-70b', '16x8xH100-SXM', batch=1024, slower_latency=0).step_s"
    plain = "train('llama-3.1-70b', '16x8xH100-SXM', batch=1024).step_s"
    assert compute(f"{fast} <= {plain}", world()) is True
    assert {case.label for case in verdict("S0-33").cases} == {
        "share of a step that latency between nodes is", "time of a 1 kB all-reduce",
    }  # fmt: skip


OF_AN_MOE_TOO = [
    "S0-07", "S0-12", "S1-02", "S1-03", "S1-06", "S1-07", "S1-08",
    "S2-08", "S2-25", "S2-35", "S3-04", "S3-17", "S3-28", "S4-16",
]  # fmt: skip


@pytest.mark.parametrize("identity", OF_AN_MOE_TOO)
def test_what_training_waits_for_is_asked_of_an_moe_too(identity: str) -> None:
    models = {case.when.split(",")[0] for case in verdict(identity).cases if case.when}
    assert "deepseek-v3" in models


def test_training_speed_is_asked_of_each_form_and_model_alike() -> None:
    forms = {tuple(case.when.split(", ")[::3]) for case in verdict("S1-03").cases}
    assert forms == {(model, form) for model, _ in forms for form in ("bf16", "fp8")}
    assert len(forms) == len(verdict("S1-03").cases) == 8


def test_an_oversubscription_that_nobody_bounds_costs_more_the_larger_it_is() -> None:
    """No case is a ratio that some model bears: the claim is that one has to be controlled."""
    found = {case.when: float(str(case.value)) for case in verdict("S3-17").cases}
    larger = {when: value for when, value in found.items() if when.endswith(", 16")}
    assert len(larger) * 2 == len(found)
    assert all(value > found[when.removesuffix("16") + "8"] for when, value in larger.items())


def test_the_first_token_takes_more_throughput_the_longer_prompts_are() -> None:
    given_up: dict[str, list[float]] = {}
    for case in verdict("S1-16").cases:
        given_up.setdefault(case.when.split(",")[0], []).append(float(str(case.value)))
    assert all(each == sorted(each) and 0 < each[0] < each[-1] < 100 for each in given_up.values())


def test_work_that_failures_lose_depends_on_the_run() -> None:
    """By the root of a write's time alone every model and cluster would come to the same."""
    shares = [float(str(case.value)) for case in verdict("S3-24").cases]
    assert max(shares) > 2 * min(shares)


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
    assert judged.held_count <= judged.situation_count
    assert judged.reason and "\n" not in judged.reason and not judged.reason.endswith(".")
    assert (judged.verdict == Verdict.UNVERIFIABLE) == (not CLAIMS[identity].predicates)
    known = [case for case in judged.cases if case.value is not None]
    assert known or not judged.cases, "every case came to nothing: the question is wrong"
    assert all(case.holds is False for case in judged.cases if case.value is None)


HELD = st.lists(st.booleans(), max_size=12)
NUMBERS = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)


@given(HELD)
def test_whoever_claims_less_is_never_judged_worse(held: list[bool]) -> None:
    order = [Verdict.CONTRADICTED, Verdict.CONDITIONAL, Verdict.HOLDS]
    all_, most, some = (verdict_of(says, held) for says in (Says.ALL, Says.MOST, Says.SOME))
    if not held:
        assert {all_, most, some} == {Verdict.UNVERIFIABLE}
        return
    assert order.index(all_) <= order.index(most) <= order.index(some)
    assert (some == Verdict.HOLDS) == any(held) == (all_ != Verdict.CONTRADICTED)
    assert (most == Verdict.HOLDS) == (2 * sum(held) > len(held))


def claim_of(first: list[int], second: list[int], **cells: str) -> Judged:
    """`passes(1, n)` is n: one predicate wants more than 4 of the first numbers, one of the second."""
    row = {
        "id": "T", "topic": "t", "claim": "c", "low": "", "high": "", "unit": "", "conditions": "",
        "says": "all", "joined": "halves", "within": "", "computed": "numbers", "shown_in": "",
        "predicate": "one: passes(1, a) > 4; two: passes(1, b) > 4",
        "cases": f"a: {' | '.join(map(str, first))}; b: {' | '.join(map(str, second))}",
    }  # fmt: skip
    return judge(read_claim(row | cells), world())


@given(NUMBERS, NUMBERS)
def test_halves_hold_together_and_readings_each_alone(first: list[int], second: list[int]) -> None:
    ones, twos = [n > 4 for n in first], [n > 4 for n in second]
    halves, readings = claim_of(first, second), claim_of(first, second, joined="readings")
    assert (halves.joined, readings.joined) == (Joined.HALVES, Joined.READINGS)
    assert (halves.held_count, halves.situation_count) == (sum(ones) * sum(twos), len(ones) * len(twos))
    assert (readings.held_count, readings.situation_count) == (sum(ones + twos), len(ones + twos))
    # A half that never holds contradicts the sentence, however true the other is.
    assert (halves.verdict == Verdict.CONTRADICTED) == (not any(ones) or not any(twos))
    assert (halves.verdict == Verdict.HOLDS) == all(ones + twos) == (readings.verdict == Verdict.HOLDS)


@given(NUMBERS, NUMBERS)
def test_no_single_value_of_a_case_decides_what_most_are(first: list[int], second: list[int]) -> None:
    """`passes(1, a) > passes(1, b)` over a grid: without any row or column it must still be most."""
    judged = claim_of(first, second, says="most", joined="", predicate="passes(1, a) > passes(1, b)")
    rows = [(first[:k] + first[k + 1 :], second) for k in range(len(first))]
    columns = [(first, second[:k] + second[k + 1 :]) for k in range(len(second))]
    grids = [grid for grid in ((first, second), *rows, *columns) if all(grid)]
    held = [[a > b for a in ones for b in twos] for ones, twos in grids]
    assert (judged.verdict == Verdict.HOLDS) == all(2 * sum(each) > len(each) for each in held)
    if judged.verdict == Verdict.CONTRADICTED:
        assert not any(held[0])


@given(NUMBERS, NUMBERS)
def test_what_a_condition_leaves_out_decides_nothing(first: list[int], second: list[int]) -> None:
    judged = claim_of(first, second, within="passes(1, a) > 4")
    assert sorted(judged.outside) == sorted(str(n) for n in first if n <= 4)
    held = [n > 4 for n in second] if any(n > 4 for n in first) else []
    assert judged.verdict == verdict_of(Says.ALL, held)
    assert all(case.holds for case in judged.cases if case.label == "one")


def test_a_half_that_is_not_known_is_decided_by_one_that_fails() -> None:
    """No list price of a Groq is known; that the other half fails is."""
    judged = verdict("S2-43")
    assert (judged.verdict, judged.situation_count) == (Verdict.CONTRADICTED, 3)
    known = replace(CLAIMS["S2-43"], predicates=CLAIMS["S2-43"].predicates[1:])
    assert judge(known, world()).verdict == Verdict.UNVERIFIABLE
