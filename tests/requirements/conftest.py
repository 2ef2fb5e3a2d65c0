"""What the tests of requirement rows share: the row's command of docs/coverage.csv, already run."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COVERAGE = Path(__file__).parents[2] / "docs" / "coverage.csv"
EXAMPLES = ("assistant", "finetune", "laptop", "moe", "portfolio")


@pytest.fixture(scope="session")
def commands() -> dict[str, str]:
    """The command of every row, by id; of what the live half shows as well, the twin's."""
    with COVERAGE.open(encoding="utf-8", newline="") as rows:
        return {row["id"]: row["command"] for row in reversed(list(csv.DictReader(rows)))}  # the first of two


@pytest.fixture
def command(request: pytest.FixtureRequest, commands: dict[str, str]) -> str:
    """The command of the row that the test is named after: `test_r_003_…` is R-003."""
    named = re.match(r"test_r_(\d{3})_", request.node.name)
    assert named, "a test of a requirement is named after its row"
    return commands[f"R-{named[1]}"]


@pytest.fixture
def screen(command: str, ask: Callable[[str], Any]) -> str:
    """What the row's command prints."""
    return str(ask(command).text)


@pytest.fixture
def data(command: str, ask: Callable[[str], Any]) -> Any:
    """The same as data."""
    return ask(f"{command} --json").data


@pytest.fixture(scope="session")
def plans(ask: Callable[[str], Any]) -> dict[str, Any]:
    """The plan of every example."""
    return {name: ask(f"twofold plan examples/{name} --json").data for name in EXAMPLES}


@pytest.fixture(scope="session")
def value() -> Callable[..., float]:
    """`value(parts, "weights")`: the middle of one of a list of named parts."""

    def of(parts: list[dict[str, Any]], *names: str) -> float:
        found = [part["value"]["value"] for part in parts if part["name"] in names]
        assert len(found) == len(names), (names, [part["name"] for part in parts])
        return float(sum(found))

    return of
