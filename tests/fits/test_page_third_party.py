"""The notice names every source, and the page in the repository is the generated one."""

import subprocess
import sys
from pathlib import Path

from fits.page_third_party import third_party_notice
from twofold.catalog.catalog import load_catalog

PAGE = Path(__file__).parents[2] / "THIRD_PARTY_DATA.md"
CATALOG = load_catalog()


def test_the_page_is_the_generated_one() -> None:
    text = PAGE.read_text("utf-8")
    assert text == third_party_notice(CATALOG), (
        "write it: python -m fits.page_third_party THIRD_PARTY_DATA.md"
    )


def test_every_source_and_licence_is_named() -> None:
    notice = third_party_notice(CATALOG)
    for table in CATALOG.table_names():
        for row in CATALOG.table(table).rows:
            assert str(row["source"]) in notice
            assert str(row["licence"]) in notice


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fits.page_third_party"]
    subprocess.run([*command, str(tmp_path / "page.md")], check=True)
    assert (tmp_path / "page.md").read_text("utf-8") == third_party_notice(CATALOG)
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "usage" in refused.stderr
