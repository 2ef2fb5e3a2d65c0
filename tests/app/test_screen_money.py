"""The block MONEY and what `--money` adds: within the screen, and saying what it must."""

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[[str], Any]
SPEC = "tests/requirements/specs/hosted.yaml"


@pytest.fixture(scope="module")
def screen(ask: Ask) -> list[str]:
    lines: list[str] = ask(f"twofold plan {SPEC} --money").out.splitlines()
    return lines


def test_no_line_is_wider_than_the_screen(screen: list[str]) -> None:
    assert max(map(len, screen)) <= 100


def test_the_block_is_short_and_shows_the_bill_with_its_currency(screen: list[str]) -> None:
    start = next(index for index, line in enumerate(screen) if line.startswith("MONEY"))
    block = screen[start : start + screen[start:].index("")]
    assert 8 <= len(block) <= 22
    assert "$ v = " in block[0] and "EUR at 0.92" in block[0]
    assert any("discount 5 %, tax 19 % in it" in line for line in block)


def test_the_bill_of_the_table_is_the_bill_of_the_block(screen: list[str]) -> None:
    total = next(line for line in screen if line.startswith("  total  ")).split()[1]
    assert any(line.startswith("MONEY") and total in line for line in screen)


def test_tables_stand_in_their_order(screen: list[str]) -> None:
    heads = [
        "BILL",
        "UNIT COST",
        "LIFETIME",
        "OWNED",
        "CASH FLOW",
        "OUTAGES",
        "LEVERS",
        "TORNADO",
        "MEASURING",
    ]
    places = [
        next(index for index, line in enumerate(screen) if line.strip().startswith(head)) for head in heads
    ]
    assert places == sorted(places)
