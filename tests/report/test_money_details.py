"""What `--money` prints below the plan."""

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[[str], Any]
SPEC = "tests/requirements/specs/hosted.yaml"
HEADS = ("BILL", "UNIT COST", "LIFETIME", "OWNED", "CASH FLOW", "OUTAGES", "LEVERS", "TORNADO", "MEASURING")


@pytest.fixture(scope="module")
def screen(ask: Ask) -> list[str]:
    lines: list[str] = ask(f"twofold plan {SPEC} --money").out.splitlines()
    return lines


def test_no_line_is_wider_than_the_screen(screen: list[str]) -> None:
    assert max(map(len, screen)) <= 100


def test_the_bill_of_the_table_is_the_bill_of_the_block(screen: list[str]) -> None:
    total = next(line for line in screen if line.startswith("  total  ")).split()[1]
    assert any(line.startswith("MONEY") and total in line for line in screen)


def test_tables_stand_in_their_order(screen: list[str]) -> None:
    places = [
        next(index for index, line in enumerate(screen) if line.strip().startswith(head)) for head in HEADS
    ]
    assert places == sorted(places)
