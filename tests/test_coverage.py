"""docs/coverage.csv: every requirement that is shown has a test of its own and a command that shows it."""

import ast
import csv
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
COVERAGE = ROOT / "docs" / "coverage.csv"
REQUIREMENTS = ROOT.parent / "shared" / "design" / "requirements.csv"
PART, TWIN, SUPPLY, SCALE, REPORT, LIVE = "plan", "twin", "supply", "scale", "report", "live"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


ROWS = read(COVERAGE)


def test_no_requirement_of_the_plan_is_missing_or_invented() -> None:
    if not REQUIREMENTS.exists():
        pytest.skip(f"needs ../shared/design/{REQUIREMENTS.name}")
    parts = {row["id"]: row["part"].split(";") for row in read(REQUIREMENTS)}
    shown = [row["id"] for row in ROWS]
    planned = [name for name, part in parts.items() if PART in part]
    assert shown[: len(planned)] == planned  # in their order; what the twin alone shows stands behind
    assert [
        name
        for name in shown[len(planned) :]
        if not {TWIN, SUPPLY, SCALE, REPORT, LIVE} & set(parts.get(name, ()))
    ] == []


def test_no_requirement_of_supply_is_missing() -> None:
    if not REQUIREMENTS.exists():
        pytest.skip(f"needs ../shared/design/{REQUIREMENTS.name}")
    wanted = {row["id"] for row in read(REQUIREMENTS) if SUPPLY in row["part"].split(";")}
    assert sorted(wanted - {row["id"] for row in ROWS}) == []


def test_every_row_is_whole_and_stands_once() -> None:
    assert list(ROWS[0]) == ["id", "test", "command", "prints", "exits"]
    assert all(cell.strip() for row in ROWS for cell in row.values())
    assert all((row["exits"] == "3") >= row["prints"].startswith("infeasible") for row in ROWS)
    for column in ("id", "test"):
        cells = [row[column] for row in ROWS]
        assert len(cells) == len(set(cells)), column


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_named_test_exists_under_the_id_of_its_row(row: dict[str, str]) -> None:
    file, _, name = row["test"].partition("::")
    functions = [
        node.name
        for node in ast.parse((ROOT / file).read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
    ]
    assert functions.count(name) == 1
    assert name.startswith(f"test_{row['id'].lower().replace('-', '_')}_")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_command_of_a_row_prints_what_it_says(
    row: dict[str, str], ask: Callable[[str], Any], tmp_path: Path
) -> None:
    """`prints` is a regular expression; where a line breaks does not matter. `exits` is 3 where none fits.

    Of several commands, parted by ` && `, the last counts; `{scratch}` is a folder that is gone afterwards.
    """
    *before, last = row["command"].replace("{scratch}", str(tmp_path)).split(" && ")
    assert [ask(line).code for line in before] == [0] * len(before)
    done = ask(last)
    assert re.search(row["prints"], " ".join(done.text.split())), done.text
    assert done.code == int(row["exits"])


def test_commands_read_files_of_the_repository_only() -> None:
    for row in ROWS:
        for word in shlex.split(row["command"]):
            assert not word.startswith(("/", "~", "..")), word
            if word.startswith(("examples/", "tests/")):
                for path in word.split(","):  # two of `--compare`, each with or without its variant
                    assert (ROOT / path.partition(":")[0]).exists(), path
