"""Published plans: every command runs, figures are read as they stand, the page says what the code says."""

from pathlib import Path

import pytest

from fits.cases import (
    Asked,
    Case,
    Figure,
    asked,
    cases_table,
    off_by,
    read_cases,
    read_figure,
    verdict,
    with_section,
)

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
CASES = {case.id: case for case in read_cases()}
# A run, an answer without a range, one that is refused, a served model, a predicted row and a plan.
SHOWN = ("T01", "T19", "T31", "T58", "S02", "S22", "S23", "E05")


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_answered_or_says_why_not(name: str) -> None:
    case = CASES[name]
    assert case.low <= case.value <= case.high
    if not case.command:
        assert case.why
        return
    answer = asked(case)
    assert answer.code in (0, 3), answer.said
    assert case.why or verdict(case, answer) == "inside", "a miss has to be explained in cases.csv"


def test_the_page_says_what_the_code_says() -> None:
    shown = [
        line
        for line in cases_table([CASES[name] for name in SHOWN])
        if line.startswith(("| T", "| S", "| E"))
    ]
    page = PAGE.read_text("utf-8").splitlines()
    assert len(shown) == len(SHOWN)
    for line in shown:
        assert line in page, "`python -m fits.cases docs/accuracy.md` writes the section anew"


def test_a_figure_is_read_from_left_to_right_and_keeps_one_range() -> None:
    data = {
        "run": {"h": {"value": 10.0, "low": 8.0, "high": 20.0}, "n": {"value": 4.0, "low": 1.0, "high": 9.0}}
    }
    assert read_figure(data, "run.h / run.n * 2") == Figure(5.0, 4.0, 10.0)
    assert read_figure(data, "40 / run.h") == Figure(4.0, 2.0, 5.0)
    assert read_figure(data, "run.h + run.n") == Figure(14.0, 9.0, 29.0)
    assert read_figure({"parts": [{"name": "a b", "value": 3}]}, "parts[0].value") == Figure(3.0, 3.0, 3.0)
    rows = {"S1": {"pred": "2", "pred_low": "1", "pred_high": "3"}}
    assert read_figure(rows, "S1.pred * 2") == Figure(4.0, 2.0, 6.0)


def test_a_verdict_measures_between_the_near_ends() -> None:
    case = Case("X1", "what", "twofold", "value", 10.0, 8.0, 12.0, "h", "source", "because")
    assert off_by(case, Figure(20.0, 15.0, 30.0)) == pytest.approx(0.25)
    assert off_by(case, Figure(3.0, 2.0, 4.0)) == pytest.approx(-0.5)
    assert verdict(case, Asked(0, Figure(7.0, 6.0, 8.0))) == "inside"
    assert verdict(case, Asked(0, Figure(3.0, 2.0, 4.0))) == "**outside by -50%**: because"
    assert verdict(case, Asked(3, None)) == "**refused**: because"
    assert verdict(case, None) == "not answerable: because"


def test_a_section_is_put_before_the_peers_and_replaced_after() -> None:
    page = "# A\n\n## Peers and baselines, on the same rows\n\nrest\n"
    once = with_section(page, ["## Published plans", "", "one", ""])
    assert once == "# A\n\n## Published plans\n\none\n\n## Peers and baselines, on the same rows\n\nrest\n"
    assert with_section(once, ["## Published plans", "", "two", ""]) == once.replace("one", "two")
