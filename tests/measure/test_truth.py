"""Tables of measured rows are read as they were meant, or refused with the line."""

from pathlib import Path

import pytest

from twofold.core import InputError
from twofold.measure.truth import read_rows


def written(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "runs.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_a_mark_of_byte_order_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    assert read_rows(written(tmp_path, "id,gpu\n1,H100\n", "utf-8-sig")) == [{"id": "1", "gpu": "H100"}]


def test_a_short_row_is_filled_with_blanks_and_blank_lines_are_none(tmp_path: Path) -> None:
    assert read_rows(written(tmp_path, "id,gpu\n\n1\n")) == [{"id": "1", "gpu": ""}]


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("gpus,gpus\n1,2\n", "has two columns `gpus`", 1),
        ("id;gpu\n1;H100\n", "separates its columns by other than commas", 1),
        ("id,tokens\n1,2\n2,1,234\n", "3 cells where the header has 2", 3),
    ],
)
def test_what_would_put_figures_under_a_wrong_name_is_refused(
    tmp_path: Path, text: str, what: str, line: int
) -> None:
    with pytest.raises(InputError, match=what) as caught:
        read_rows(written(tmp_path, text))
    assert caught.value.place is not None and caught.value.place.line == line
    assert caught.value.hint


def test_trailing_empty_cells_harm_nobody(tmp_path: Path) -> None:
    assert read_rows(written(tmp_path, "id,gpu\n1,H100,,\n")) == [{"id": "1", "gpu": "H100"}]
