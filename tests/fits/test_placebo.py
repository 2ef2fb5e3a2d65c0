"""Placebos: what a term says against as many constants dealt by lot."""

from collections.abc import Mapping, Sequence

import numpy as np

from fits.placebo import Columns, Study, judged, placebo_table, shuffled, terms_of
from fits.robust import Values

SOURCES = np.repeat(["a", "b", "c", "d", "e", "f"], 8)
REAL = np.repeat([0, 1, 0, 1, 0, 1], 8)  # every other source has a constant of its own
TRUE = np.where(REAL == 1, 2.0, 1.0)


def study(told: Values) -> Study:
    """Rows whose logarithms are `told`; a fit is the mean of each constant's seen rows."""

    def fits(name: str, columns: Columns, hidden: Sequence[str]) -> Mapping[str, Values]:
        errors = {}
        for each in hidden:
            seen = each != SOURCES
            rows = [told[seen & (columns[name] == place)] for place in range(2)]
            means = np.array([np.mean(each) if each.size else 0.0 for each in rows])
            errors[each] = np.abs(told - means[columns[name]])
        return errors

    return Study(
        half="training",
        scopes=(("host_s", ""), ("host_s", "software=x")),
        columns={"host_s": REAL, "same_s": np.zeros(REAL.size, dtype=np.int64)},
        hidden={"source": SOURCES},
        row_of=np.arange(REAL.size),
        figure=np.full(REAL.size, "step"),
        fits=fits,
    )


def test_a_term_that_tells_rows_apart_beats_its_placebo_and_one_that_does_not_is_called_so() -> None:
    helps = list(judged(study(TRUE), "host_s"))
    assert [row[-1] for row in helps] == ["yes"] and helps[0][-2] == "0.0 %"
    noise = np.random.default_rng(5).normal(0.0, 1.0, 6)[np.searchsorted(np.unique(SOURCES), SOURCES)]
    assert [row[-1] for row in judged(study(noise), "host_s")] == ["no"]


def test_only_constants_that_some_rows_have_for_themselves_are_terms() -> None:
    assert terms_of(study(TRUE)) == ["host_s"]


def test_a_shuffled_column_keeps_groups_whole_and_how_many_take_each_scope() -> None:
    for lot in range(20):
        dealt = shuffled(REAL, SOURCES, lot)
        assert all(np.unique(dealt[each == SOURCES]).size == 1 for each in np.unique(SOURCES))
        assert sorted(dealt) == sorted(REAL)


def test_the_page_has_both_kinds_of_unseen_rows_in_one_line_and_what_helps_nowhere_last() -> None:
    row = {
        "half": "training",
        "figure": "step",
        "term": "x",
        "scopes": "2",
        "sources": "3",
        "left out": "source",
    }
    row |= {"without": "16.0 %", "shuffled": "14.0 %", "as it is": "8.0 %", "helps": "yes"}
    idle = row | {"term": "y", "helps": "no"}
    lines = placebo_table([idle, row, row | {"left out": "configuration", "helps": "no"}])
    assert lines[-3] == (
        "| training | step | x | 2 | 3 | 16.0 %, 14.0 %, 8.0 % | 16.0 %, 14.0 %, 8.0 % | source |"
    )
    assert lines[-2].endswith("| not moved | **neither** |") and placebo_table([]) == []
