import pytest

from twofold.catalog.tables import slots_of
from twofold.core.csv_lines import CsvLine, csv_lines
from twofold.core.errors import CatalogError, InputErrors


def lines(text: str) -> list[CsvLine]:
    return list(csv_lines(text.encode(), "t.csv", 1 << 20, CatalogError))


def test_empty_lines_are_left_out_and_the_others_keep_their_numbers() -> None:
    assert [(each.number, each.cells) for each in lines("a,b\n\n,,\n 1 ,2\n")] == [
        (1, ["a", "b"]),
        (4, ["1", "2"]),
    ]


def test_a_cell_is_found_behind_quoted_commas_and_blanks() -> None:
    (line,) = lines('"a, b",  c,d')
    assert [line.place(index).column for index in range(3)] == [1, 10, 12]


def test_a_quote_that_does_not_open_its_cell_quotes_nothing() -> None:
    (line,) = lines('a 5" disk,b "c, d",e,"say ""hi"", you",f')
    assert [line.place(index).column for index in range(6)] == [1, 11, 17, 20, 22, 40]
    assert len(line.cells) == 6


def test_a_cell_behind_a_line_break_inside_quotes_stands_where_its_line_begins() -> None:
    first, last = lines('"a\nb",c\nd,e\n')
    assert (first.number, first.place(1).column, last.number) == (1, 1, 3)


@pytest.mark.parametrize("data", [b"a,b\n\xff", b"a\0b", b'a\n"b', b"x" * 100])
def test_what_is_no_table_is_refused_with_its_line(data: bytes) -> None:
    with pytest.raises(CatalogError) as caught:
        list(csv_lines(data, "t.csv", 64, CatalogError))
    assert caught.value.place and caught.value.place.line == 1 + data.count(b"\n")


def test_a_header_of_another_kind_of_file_is_told_in_fifty_mistakes() -> None:
    header = CsvLine("prices.csv", 1, "x", [f"foreign{number}" for number in range(3000)])
    with pytest.raises(InputErrors) as told:
        slots_of((), (), header)
    assert len(told.value.errors) == 50
