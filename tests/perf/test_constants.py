"""The table of constants: the narrowest scope answers, ties and gaps are errors, fits own their rows."""

from dataclasses import replace

import pytest

from twofold.core.errors import ConstantsError
from twofold.core.estimate import Source
from twofold.perf.constants import Constants, load_constants

TABLE = """# version 3
name,scope,value,low,high,unit,source,rows,fitted_by,note
speed,,1,0.5,2,ratio,a,0,none,
speed,family=hopper,2,1,3,ratio,f,9,kernels,
speed,family=hopper;format=fp8,3,2,4,ratio,f,9,kernels,
speed,format=int8,4,2,8,ratio,a,0,none,
"""


@pytest.fixture
def small() -> Constants:
    return Constants.parse(TABLE)


def test_the_narrowest_scope_answers(small: Constants) -> None:
    assert small.get("speed") == 1
    assert small.get("speed", family="ada", format="bf16") == 1
    assert small.get("speed", family="hopper", format="bf16") == 2
    assert small.get("speed", family="hopper", format="fp8", accelerator="any") == 3


def test_a_tie_and_a_gap_are_errors(small: Constants) -> None:
    with pytest.raises(ConstantsError, match="ambiguous"):
        small.get("speed", family="hopper", format="int8")
    with pytest.raises(ConstantsError, match="no constant 'sped'"):
        small.get("sped")


def test_an_estimate_carries_range_and_source(small: Constants) -> None:
    one = small.estimate("speed", family="hopper")
    assert (one.low, one.value, one.high, one.source) == (1, 2, 3, Source.FITTED)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (TABLE.replace("# version 3", "version 3"), "first line"),
        (TABLE.replace("2,1,3", "9,1,3"), "outside its own range"),
        (TABLE.replace("2,1,3", "two,1,3"), "cannot be read"),
        (TABLE + "speed,,1,1,1,ratio,a,0,none,\n", "two rows"),
    ],
)
def test_a_broken_table_is_refused_with_the_reason(wrong: str, said: str) -> None:
    with pytest.raises(ConstantsError, match=said):
        Constants.parse(wrong)


def test_rows_replace_those_of_their_scope(small: Constants) -> None:
    row = replace(small.rows[1], value=2.9)
    assert small.with_rows([row]).get("speed", family="hopper") == 2.9
    assert len(small.with_rows([row]).rows) == len(small.rows)
    assert small.with_rows([row]).digest != small.digest


def test_the_shipped_table_is_sorted_and_physical() -> None:
    rows = load_constants().rows
    assert [(row.name, row.pairs) for row in rows] == sorted((row.name, row.pairs) for row in rows)
    for row in rows:
        assert row.low <= row.value <= row.high, row
        if row.name.endswith("efficiency_fraction"):
            assert 0.0 < row.value <= 1.0, row
        assert (
            (row.rows > 0)
            or row.source is not Source.FITTED
            or row.note == "moved with its parent"
            or row.fitted_by == "training"
        ), row
