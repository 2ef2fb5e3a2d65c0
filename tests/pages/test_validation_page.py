"""The page of a validation: read back from its own JSON, missed goals first, errors as scores have them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.pages.test_plan_page import LARGEST_BYTES, Tags
from twofold.app.saved_answers import saved_answer
from twofold.charts.chart import Bars
from twofold.measure.results import Column
from twofold.pages.validation_page import charts_of_validation, validation_page
from twofold.report.validate import Validated


@pytest.fixture(scope="module")
def validated(ask: Callable[[str], Any]) -> Validated:
    """As a file of `validate training --json` gives it."""
    printed = ask("twofold validate training --json").out
    made = saved_answer(json.loads(printed))
    assert isinstance(made, Validated) and json.loads(made.json) == json.loads(printed)
    return made


def test_missed_goals_stand_before_the_pictures_and_are_those_of_the_json(validated: Validated) -> None:
    judged = [
        each for goal in validated.goals for each in goal.reached.values() if each.missed_by is not None
    ]
    missed = [goal for goal in validated.goals for each in goal.reached.values() if each.missed_by]
    assert judged and missed
    for made in (validation_page(validated).html, validation_page(validated).markdown):
        before = made.partition("Pictures")[0]
        assert f"{len(judged) - len(missed)} of {len(judged)} goals are met" in before
        assert all(f"✗ {goal.title}" in before for goal in missed)


def test_the_page_is_one_small_file_without_script(validated: Validated) -> None:
    made = validation_page(validated).html
    seen = Tags()
    seen.feed(made)
    assert not seen.open and "script" not in seen.tags and len(made.encode()) <= LARGEST_BYTES


def test_bars_are_errors_over_their_limits_and_groups_the_worst_first(validated: Validated) -> None:
    goals, *errors = charts_of_validation(validated.goals, validated.groups)
    assert isinstance(goals, Bars) and errors
    limits = [
        each.value / each.limit
        for goal in validated.goals
        for column in (Column.LEFT_OUT, Column.SEEN)
        if (each := goal.reached.get(column)) and each.limit and each.value is not None and not goal.at_least
    ]
    assert [bar.pieces[0].value for bar in goals.bars] == limits
    for chart in errors:
        assert isinstance(chart, Bars)
        values = [bar.pieces[0].value for bar in chart.bars]
        assert values == sorted(values, reverse=True) and values
