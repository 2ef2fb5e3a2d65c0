"""The table of claims: every row reads, every predicate names what there is."""

import ast
import csv
import re
from pathlib import Path

import pytest

from twofold.core.errors import InputError
from twofold.verdicts.language import FUNCTIONS, calls_in, names_in
from twofold.verdicts.quantities import QUANTITIES
from twofold.verdicts.table import Claim, Says, cases_of, load_claims, read_cases, read_claim
from twofold.verdicts.units import NAMED, thresholds

ONE_IS_ENOUGH = re.compile(r"\b(can|could|may|might|risk)\b")
MOST_ARE_MEANT = re.compile(
    r"\b(typical|typically|often|usually|mostly|generally|is a frequent|(most|many) (deployments|ai firms))\b"
)
BY_SENSE = {"S3-13": Says.SOME}  # "pays when"
FOLDER = Path(__file__).parents[2] / "src" / "twofold" / "verdicts"

SOURCE = Path(__file__).parents[3] / "shared" / "design" / "claims.csv"


def test_there_are_214_claims_with_ids_of_their_own() -> None:
    claims = load_claims()
    assert len(claims) == len({claim.id for claim in claims}) == 214


def test_every_predicate_names_known_quantities() -> None:
    known = QUANTITIES.keys() | FUNCTIONS.keys()
    trees = [predicate.tree for claim in load_claims() for predicate in claim.predicates]
    calls = [node.func for tree in trees for node in calls_in(tree)]
    assert [node for node in calls if not (isinstance(node, ast.Name) and node.id in known)] == []


def test_every_predicate_asks_at_least_one_quantity() -> None:
    typed = [
        f"{claim.id}: {each.text}"
        for claim in load_claims()
        for each in claim.predicates
        if not {node.func.id for node in calls_in(each.tree) if isinstance(node.func, ast.Name)}
        & QUANTITIES.keys()
    ]
    assert typed == []


def test_no_predicate_asks_whether_a_figure_is_merely_above_zero() -> None:
    for claim in load_claims():
        for each in claim.predicates:
            bare = re.search(r"\.(mfu|tokens_per_s|requests_per_s) > 0$", each.text)
            assert not bare, f"{claim.id}: {each.text}"


def test_every_variable_of_a_predicate_is_a_case_and_every_case_is_used() -> None:
    for claim in load_claims():
        given = {name for case in claim.cases for name in case}
        used = set().union(*(names_in(each.tree) for each in claim.predicates), set())
        used |= names_in(claim.within) if claim.within is not None else set()
        free = (
            used
            - set(NAMED)
            - set(thresholds())
            - set(QUANTITIES)
            - {"low", "high", "min", "max", "abs", "round", "True", "False"}
        )
        assert free == given, claim.id


def test_every_claim_says_what_is_computed_or_why_nothing_is() -> None:
    for claim in load_claims():
        assert claim.computed.strip(), claim.id
        assert not claim.computed.endswith("."), claim.id


def test_the_texts_are_those_of_the_list() -> None:
    if not SOURCE.is_file():
        pytest.skip(f"needs ../shared/design/{SOURCE.name}")
    with SOURCE.open(encoding="utf-8", newline="") as handle:
        listed = {row["id"]: row for row in csv.DictReader(handle)}
    assert [claim.id for claim in load_claims()] == list(listed)
    for claim in load_claims():
        row = listed[claim.id]
        assert (claim.text, claim.topic, claim.unit) == (row["claim"], row["topic"], row["unit"])


def test_cases_are_every_combination_and_pairs_stay_together() -> None:
    assert len(read_cases("a: 1 | 2; b: x | y | z")) == 6
    assert read_cases("m, n: x, 1 | y, 2.5") == [{"m": "x", "n": 1}, {"m": "y", "n": 2.5}]


def test_a_predicate_meets_only_the_cases_it_tells_apart() -> None:
    row = {
        "id": "T", "topic": "t", "claim": "c", "quantity": "q", "low": "1", "high": "", "unit": "kW",
        "conditions": "", "says": "all", "joined": "halves", "within": "", "computed": "power",
        "predicate": "one: a > low; both [W]: a > b", "cases":
        "a: 1 | 2; b: 3 | 4", "shown_in": "kW",
    }  # fmt: skip
    claim = read_claim(row)
    assert claim.low == 1000.0
    assert [len(cases_of(claim, each)) for each in claim.predicates] == [2, 4]
    assert [(each.label, each.unit) for each in claim.predicates] == [("one", None), ("both", "W")]
    for wrong in ({"predicate": "1 +"}, {"says": "few"}, {"joined": "both"}, {"joined": ""}):
        with pytest.raises(InputError, match="T: "):
            read_claim(row | wrong)


def conditions() -> dict[str, str]:
    with (FOLDER / "claims.csv").open(encoding="utf-8", newline="") as handle:
        return {row["id"]: row["conditions"] for row in csv.DictReader(handle)}


def test_how_many_cases_a_claim_speaks_of_follows_from_its_words() -> None:
    stated = conditions()
    for claim in load_claims():
        words = Says.SOME if ONE_IS_ENOUGH.search(claim.text) else Says.ALL
        if MOST_ARE_MEANT.search(claim.text.lower()) or MOST_ARE_MEANT.search(stated[claim.id]):
            words = Says.MOST
        assert claim.says == BY_SENSE.get(claim.id, words), f"{claim.id}: {claim.text}"


def typed_numbers(claim: Claim) -> set[float]:
    """Numbers that the right sides of a claim's comparisons write out, outside what quantities are asked."""
    found = set()
    for each in claim.predicates:
        for node in ast.walk(each.tree):
            for side in node.comparators if isinstance(node, ast.Compare) else ():
                asked = {inner for call in calls_in(side) for inner in ast.walk(call)}
                found |= {
                    float(inner.value)
                    for inner in ast.walk(side)
                    if isinstance(inner, ast.Constant)
                    and isinstance(inner.value, (int, float))
                    and inner not in asked
                }
    return found


def test_thresholds_stand_apart_from_claims() -> None:
    """Figures are compared with the claim's own numbers, other figures, nothing, one, or a threshold."""
    stated = conditions()
    for claim in load_claims():
        own = {float(text) for text in re.findall(r"\d+(?:\.\d+)?", f"{claim.text} {stated[claim.id]}")}
        assert typed_numbers(claim) <= own | {0.0, 1.0}, claim.id


def test_thresholds_have_names_and_reasons_of_their_own_and_are_all_used() -> None:
    with (FOLDER / "thresholds.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert all(row["says"] and row["why"] for row in rows)
    names = {row["name"] for row in rows}
    variables = {name for claim in load_claims() for case in claim.cases for name in case}
    assert not names & ({"low", "high"} | set(NAMED) | set(QUANTITIES) | set(FUNCTIONS) | variables)
    used = set().union(*(names_in(each.tree) for claim in load_claims() for each in claim.predicates))
    assert names <= used, names - used


def test_every_published_figure_has_a_source() -> None:
    with (FOLDER / "published.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert all(len(row["source"]) > 20 and float(row["value"]) >= 0 for row in rows)


def test_every_published_figure_is_asked_by_a_claim() -> None:
    with (FOLDER / "published.csv").open(encoding="utf-8", newline="") as handle:
        names = {row["name"] for row in csv.DictReader(handle)}
    asked = {value for claim in load_claims() for case in claim.cases for value in case.values()}
    asked |= {
        node.value
        for claim in load_claims()
        for each in claim.predicates
        for node in ast.walk(each.tree)
        if isinstance(node, ast.Constant)
    }
    assert names <= asked, names - asked


def test_no_predicate_reads_back_what_its_case_writes() -> None:
    """How many accelerators `8x8xH100-SXM` are is in the case already, and decides nothing."""
    for claim in load_claims():
        for each in claim.predicates:
            assert not re.search(r"\.accelerators\s*(?:[<>=!]|in\b)", each.text), f"{claim.id}: {each.text}"


def test_aims_and_rumours_have_no_predicate() -> None:
    """Whose figures are of one rumour, and what somebody aims at, cannot be computed from each other."""
    for claim in load_claims():
        if re.search(r"\b(aims?|should meet|exemplifies|key|favour|overlooked)\b", claim.text):
            assert not claim.predicates, f"{claim.id}: {claim.text}"
    rumoured = [name for name, condition in conditions().items() if "rumoured" in condition]
    assert rumoured
    assert not any(claim.predicates for claim in load_claims() if claim.id in rumoured)


def test_no_machine_is_a_part_of_another_that_is_in_the_tables() -> None:
    for claim in load_claims():
        for each in claim.predicates:
            part = re.search(r"\)\.(?:power_w_max|rack_units|accelerator_count) / \d\b(?!\d)", each.text)
            assert not part, f"{claim.id}: {each.text}"


def test_a_claim_about_decoding_is_judged_without_prompts() -> None:
    stated = conditions()
    about = [claim for claim in load_claims() if "decode" in stated[claim.id]]
    assert about
    for claim in about:
        for each in claim.predicates:
            asked = {node.func.id for node in calls_in(each.tree) if isinstance(node.func, ast.Name)}
            assert not asked & {"serve", "prefill_s", "rehearsed"}, f"{claim.id}: {each.text}"


def test_a_run_that_is_sharded_by_data_is_split_by_nothing_else() -> None:
    stated = conditions()
    about = [claim for claim in load_claims() if "sharded data parallel" in stated[claim.id]]
    assert about
    for claim in about:
        for each in claim.predicates:
            asked = re.findall(r"train\([^()]*\)", each.text)
            assert asked and all("zero=3, layout='tp=1,pp=1,cp=1'" in one for one in asked), claim.id


def test_a_generated_answer_has_more_than_one_token() -> None:
    """An answer of one is a single pass by what it is: such a case decides nothing."""
    for claim in load_claims():
        for case in claim.cases:
            if "passes(" in "".join(each.text for each in claim.predicates):
                assert float(case["tokens"]) > 1, claim.id


def test_what_one_rumour_says_of_a_run_is_no_case_of_another_claim() -> None:
    for claim in load_claims():
        if claim.id != "S2-07":  # whose "it" is that run
            texts = f"{claim.case_text} {' '.join(each.text for each in claim.predicates)}"
            assert not re.search(r"2\.1e25|\b25000\b", texts), claim.id
