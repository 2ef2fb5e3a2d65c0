"""The page of claims is that of the table and of the quantities' docstrings."""

import inspect
from pathlib import Path

import pytest

from fits.page_claims import main, reference_page
from twofold.verdicts.quantities import QUANTITIES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "claims.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference_page(), (
        "run python -m fits.page_claims docs/reference/claims.md"
    )


@pytest.mark.parametrize("name", sorted(QUANTITIES))
def test_every_quantity_says_what_it_is(name: str) -> None:
    text = inspect.getdoc(QUANTITIES[name].function) or ""
    assert text.split("\n")[0].rstrip().endswith("."), name
    assert next(iter(inspect.signature(QUANTITIES[name].function).parameters)) == "world"


def test_the_page_is_written_where_it_is_asked(tmp_path: Path) -> None:
    main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text("utf-8").startswith("# Claims and their predicates")
