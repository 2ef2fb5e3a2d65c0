from hypothesis import given
from hypothesis import strategies as st

from twofold.report.lines import INDENT, WIDTH, both_ends, field, heading, table

words = st.text(st.characters(categories=("L", "N", "P"), include_characters=" "), max_size=180)


@given(st.text("abcdefghij", min_size=1, max_size=30), st.lists(words, max_size=12))
def test_a_field_never_leaves_the_screen_and_loses_no_letter(label: str, pieces: list[str]) -> None:
    for lines in (field(label, *pieces), heading(label, *pieces)):
        assert all(len(line) <= WIDTH for line in lines)
        shown = "".join(line[INDENT:] if len(label) + 2 < INDENT else line for line in lines)
        for letter in set("".join(pieces)) - set(" ·"):
            assert shown.count(letter) >= "".join(pieces).count(letter)


@given(words, words)
def test_both_ends_stay_on_the_screen(left: str, right: str) -> None:
    lines = both_ends(left, right)
    assert all(len(line) <= WIDTH for line in lines)


def test_a_right_end_stands_at_the_margin() -> None:
    (line,) = both_ends("TRAINING  64 × 8 H100", "0.61 M$")
    assert len(line) == WIDTH
    assert line.endswith("  0.61 M$")


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.lists(st.lists(words, min_size=n, max_size=n), min_size=1, max_size=5)
    )
)
def test_a_table_never_leaves_the_screen(rows: list[list[str]]) -> None:
    headings = [f"c{index}" for index in range(len(rows[0]))]
    assert all(len(line) <= WIDTH for line in table(headings, rows, numbers=(0,)))


def test_pieces_break_between_numbers_not_inside_them() -> None:
    pieces = [f"{n}.5 s [{n}.1–{n}.9] f" for n in range(12)]
    lines = field("step", *pieces)
    assert len(lines) > 1
    assert " · ".join(line[INDENT:] for line in lines).split(" · ") == pieces


def test_a_narrowed_table_breaks_no_name_and_no_range() -> None:
    whole = ["8 × B200-SXM-180GB", "0.0535 $ [0.0362–0.2220] f", "compute: 20 % more gains 17 %"]
    shown = "\n".join(table(["", "per Mtok", "bound by", ""], [[*whole, "word " * 20]]))
    for kept in ("8 × B200-SXM-180GB", "[0.0362–0.2220] f", "20 %", "17 %"):
        assert kept in shown
