"""The checked-in page is the one that the schema gives."""

from pathlib import Path

from fits.page_catalog import main, reference_page
from twofold.catalog.catalog import load_catalog

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "catalog.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference_page(load_catalog()), (
        "run python -m fits.page_catalog docs/reference/catalog.md"
    )


def test_the_page_describes_every_column_of_every_table() -> None:
    text = reference_page(load_catalog())
    for table in load_catalog().table_names():
        section = text.split(f"\n## {table}\n")[1].split("\n## ")[0]
        for column in load_catalog().table(table).columns:
            assert f"| `{column.name}` |" in section


def test_a_call_without_a_file_is_refused() -> None:
    assert main([]) == 2
