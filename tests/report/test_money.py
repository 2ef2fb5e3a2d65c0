"""The block MONEY: short, and with the bill in the spec's currency."""

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[[str], Any]
SPEC = "tests/requirements/specs/hosted.yaml"


@pytest.fixture(scope="module")
def screen(ask: Ask) -> list[str]:
    lines: list[str] = ask(f"twofold plan {SPEC} --money").out.splitlines()
    return lines


def test_the_block_is_short_and_shows_the_bill_with_its_currency(screen: list[str]) -> None:
    start = next(index for index, line in enumerate(screen) if line.startswith("MONEY"))
    block = screen[start : start + screen[start:].index("")]
    assert 5 <= len(block) <= 12
    assert "$ v = " in block[0] and "EUR at 0.92" in block[0]
    assert any("discount 5 %, tax 19 % in it" in line for line in block)
