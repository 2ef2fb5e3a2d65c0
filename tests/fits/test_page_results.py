from pathlib import Path

import pytest

from fits.page_results import INTRODUCTIONS, read_schema, reference_page, source_of

PAGES = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("page", INTRODUCTIONS)
def test_the_page_is_what_the_schema_says(page: str) -> None:
    hint = f"run: python -m fits.page_results docs/reference/{page}.md"
    assert (PAGES / f"{page}.md").read_text("utf-8") == reference_page(page), hint


@pytest.mark.parametrize("page", INTRODUCTIONS)
def test_every_field_says_what_it_means(page: str) -> None:
    parts = read_schema(source_of(page))
    silent = [f"{part.name}.{field.name}" for part in parts for field in part.fields if not field.meaning]
    assert silent == []


@pytest.mark.parametrize("page", INTRODUCTIONS)
def test_every_part_has_a_summary(page: str) -> None:
    assert [part.name for part in read_schema(source_of(page)) if not part.summary] == []
