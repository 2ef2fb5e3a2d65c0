"""The look of an error: place, line, caret under the value, hint, and the count."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twofold.contracts.render import render_error
from twofold.contracts.spec.reader import parse_spec
from twofold.core.errors import InputError, InputErrors, Place, UnitError

TEXT = """model: llama-3.1-70b
serving:
  classes:
    chat:
      traffic: {rate: 40 /s, scale_factor: 2x}
      slo: {ttft_p95: 500, tpot_p95: 40 ms}
"""
LOOK = """\
twofold.yaml:5:30: error[E-key]: `scale_factor` is not a key of `traffic`
    5 |       traffic: {rate: 40 /s, scale_factor: 2x}
      |                              ^^^^^^^^^^^^
hint: did you mean `scale`? keys: rate, peak, profile, input, output, trace, unit, scale,
      shared_prefix, tokens_per_day

twofold.yaml:6:23: error[E-unit]: `ttft_p95: 500` needs a unit
    6 |       slo: {ttft_p95: 500, tpot_p95: 40 ms}
      |                       ^^^
hint: write `500 ms`

2 errors"""


def test_the_look_of_the_example_page() -> None:
    with pytest.raises(InputErrors) as caught:
        parse_spec(TEXT, "twofold.yaml")
    assert render_error(caught.value, TEXT.splitlines()) == LOOK


@given(line=st.text(max_size=300), column=st.integers(1, 310), message=st.text(max_size=50))
@example(line="0" * 92, column=93, message="")  # a caret past the end of a line that just fits
def test_a_rendered_error_is_safe_for_a_terminal_and_fits(line: str, column: int, message: str) -> None:
    error = UnitError(message, place=Place("a.yaml", 1, column), hint=message)
    shown = render_error(error, [line])
    assert not any(ord(letter) < 32 and letter != "\n" for letter in shown)
    assert len(shown.split("\n")) <= 4 + error.hint.count("\n")  # a hint may have lines, a message has one
    assert all(len(text) <= 100 for text in shown.split("\n")[1:3])


def test_a_long_line_is_cut_around_the_value() -> None:
    source = "a: {" + "x: 1, " * 60 + "bad: 500}"
    column = source.index("500") + 1
    rendered = render_error(UnitError("m", place=Place("f", 1, column)), [source]).split("\n")
    start = rendered[2].index("^")
    assert rendered[1][start : start + 3] == "500"


def test_an_error_without_a_source_line_still_says_everything() -> None:
    error = UnitError("m", place=Place("f", 9, 1), hint="h")
    assert render_error(error, ["one line"]) == "f:9:1: error[E-unit]: m\nhint: h"
    assert render_error(UnitError("m")) == "error[E-unit]: m"


def test_of_a_table_only_the_cell_is_underlined_and_at_its_first_column_the_row() -> None:
    row = 'acme,"big, new",-3,2026'

    def carets(column: int) -> str:
        shown = render_error(UnitError("m", place=Place("a.csv", 1, column)), [row]).split("\n")
        start = shown[2].index("^")
        return shown[1][start : start + shown[2].count("^")]

    assert [carets(row.index(cell) + 1) for cell in ('"big', "-3")] == ['"big, new"', "-3"]
    assert len(carets(1)) > len("acme")


def test_messages_and_hints_break_at_spaces_and_leave_what_is_to_be_copied_whole() -> None:
    command = "`twofold estimate serve llama-3.1-8b --on 1xH100-SXM --input 1000 --output 100`"
    error = InputError("far " * 40 + "away", hint=f"keys: {'name, ' * 30}or write {command}")
    lines = render_error(error).splitlines()
    assert max(map(len, lines)) <= 100
    assert any(command in line for line in lines)
    assert " ".join(" ".join(lines).split()) == f"error[E-input]: {'far ' * 40}away hint: {error.hint}"
