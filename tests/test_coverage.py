"""docs/coverage.csv: every requirement that is shown has a test of its own and a command that shows it."""

import ast
import csv
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.openai_service import Service, served
from tests.slow_files import slow_files

ROOT = Path(__file__).parents[1]
COVERAGE = ROOT / "docs" / "coverage.csv"
REQUIREMENTS = ROOT.parent / "shared" / "design" / "requirements.csv"
COPIED = re.compile(r"\{copy:([^}]+)\}")
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

    Of several commands, parted by ` && `, the last counts.
    """
    with placed(row["command"], tmp_path) as command:
        *before, last = command.split(" && ")
        earlier = [ask(line) for line in before]
        done = ask(last)
    for each in (*earlier, done):
        if "error[E-extra]" in each.text:
            pytest.skip(f"needs the extras, `make extras`: {each.text}")
    assert all(each.code == 0 for each in earlier), earlier
    assert re.search(row["prints"], " ".join(done.text.split())), done.text
    assert done.code == int(row["exits"])


@contextmanager
def placed(command: str, scratch: Path) -> Iterator[str]:
    """A row's command with its places: `{scratch}`, a folder that is gone afterwards, `{copy:FOLDER}`, one of
    ours copied there, `{service}`, the address of a stand-in for a server, `{slow}`, those of files that come
    slowly. What it left running is ended.
    """
    for folder in dict.fromkeys(COPIED.findall(command)):
        shutil.copytree(ROOT / folder, scratch / Path(folder).name)
    command = COPIED.sub(lambda found: str(scratch / Path(found[1]).name), command)
    command = command.replace("{scratch}", str(scratch))
    with ExitStack() as stack:
        if "{service}" in command:
            pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
            command = command.replace("{service}", stack.enter_context(served(Service(gap_s=0.01))).url)
        if "{slow}" in command:
            command = command.replace("{slow}", stack.enter_context(slow_files(12, 2.0)))
        try:
            yield command
        finally:
            for state in scratch.rglob(".twofold"):
                from twofold.live.control.supervisor import bring_down

                bring_down(state)


def test_commands_read_files_of_the_repository_only() -> None:
    for row in ROWS:
        assert all((ROOT / folder).is_dir() for folder in COPIED.findall(row["command"])), row
        for word in shlex.split(row["command"]):
            assert not word.startswith(("/", "~", "..")), word
            if word.startswith(("examples/", "tests/")):
                for path in word.split(","):  # two of `--compare`, each with or without its variant
                    assert (ROOT / path.partition(":")[0]).exists(), path
