"""Parts of a programme: what was solved is not solved again, what ran out of time is."""

from dataclasses import replace

import numpy as np
import pytest

from twofold.portfolio.programme import Known, Programme, Solved, by_parts, run

# Two weeks that share no row: at least one unit in each, the second at twice the price.
PROGRAMME = Programme(
    cost_usd=np.array([3.0, 6.0]),
    lower=np.zeros(2),
    upper=np.full(2, 9.0),
    integer=np.ones(2, bool),
    row_lower=np.ones(2),
    row_upper=np.full(2, np.inf),
    row_starts=np.array([0, 1, 2]),
    columns=np.array([0, 1]),
    values=np.ones(2),
)
FREE, NOTHING = np.ones(2, bool), np.zeros(2)
LATE = Solved(None, np.inf, 0.0, infeasible=False)


def ones(part: Programme) -> Solved:
    usd = float(part.cost_usd.sum())
    return Solved(np.ones(len(part.cost_usd)), usd, usd, infeasible=False)


def unasked(part: Programme) -> Solved:
    raise AssertionError(f"a part that is known is solved again: {part}")


def test_a_part_that_ran_out_of_time_is_tried_again() -> None:
    known: Known = {}
    assert by_parts(PROGRAMME, NOTHING, FREE, lambda _: LATE, known).values is None
    assert by_parts(PROGRAMME, NOTHING, FREE, ones, known).usd == 9.0


def test_equal_parts_are_solved_once_and_what_has_no_answer_is_not_asked_again() -> None:
    known: Known = {}
    by_parts(PROGRAMME, NOTHING, FREE, ones, known)
    assert len(known) == 1
    assert by_parts(PROGRAMME, NOTHING, FREE, unasked, known).usd == 9.0
    never: Known = {}
    by_parts(PROGRAMME, NOTHING, FREE, lambda _: replace(LATE, infeasible=True), never)
    assert by_parts(PROGRAMME, NOTHING, FREE, unasked, never).infeasible


def test_a_solver_says_nothing_where_answers_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS 1.16 greets on stdout when it is made, in front of a plan's JSON: see `pyproject.toml`."""
    assert run(PROGRAMME, 0.0, 5.0).usd == 9.0
    assert capfd.readouterr() == ("", "")
