"""docs/coverage.csv: every requirement that is shown has a test of its own and a command that shows it."""

import ast
import csv
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.openai_service import Service, served
from tests.slow_files import slow_files
from tests.standing import service_in, taught_in

ROOT = Path(__file__).parents[1]
COVERAGE = ROOT / "docs" / "coverage.csv"
REQUIREMENTS = ROOT.parent / "shared" / "design" / "requirements.csv"
COPIED = re.compile(r"\{copy:([^}]+)\}")
MADE = ("standing", "own", "taught")  # places that fixtures make, by name
OTHER_PROGRAMS = {"cat", "curl", "python"}  # what a row may show of a verb's files, pages and cost
LIMIT_S = 120.0  # of one of them
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


@pytest.mark.parametrize("part", [SUPPLY, LIVE])
def test_no_requirement_of_a_whole_part_is_missing(part: str) -> None:
    if not REQUIREMENTS.exists():
        pytest.skip(f"needs ../shared/design/{REQUIREMENTS.name}")
    wanted = {row["id"] for row in read(REQUIREMENTS) if part in row["part"].split(";")}
    assert sorted(wanted - {row["id"] for row in ROWS}) == []


def test_every_row_is_whole_and_stands_once() -> None:
    assert list(ROWS[0]) == ["id", "test", "command", "prints", "exits"]
    assert all(cell.strip() for row in ROWS for cell in row.values())
    assert all((row["exits"] == "3") >= row["prints"].startswith("infeasible") for row in ROWS)
    for names in (("test",), ("id", "command"), ("id", "half")):
        cells = [tuple({**row, "half": half_of(row)}[name] for name in names) for row in ROWS]
        assert len(cells) == len(set(cells)), names


def half_of(row: dict[str, str]) -> str:
    """Where its test stands: the live half may show a requirement beside the twin, in a row of its own."""
    return "live" if row["test"].startswith(("tests/live/", "tests/app/")) else "planned"


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


def test_no_row_is_shown_by_a_page_of_help() -> None:
    assert [row["id"] for row in ROWS if "--help" in shlex.split(row["command"])] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_command_of_a_row_prints_what_it_says(
    row: dict[str, str], ask: Callable[[str], Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`prints` is a regular expression; where a line breaks does not matter. `exits` is 3 where none fits.

    Of several commands, parted by ` && `, the last counts; `cd` is where the next ones run, and what stands
    before ` & ` runs beside the one after it. What stands before ` || ` is refused, exit 3, and what stands
    behind it shows that.
    """
    with placed(row["command"], tmp_path, request) as command:
        folder, answers = ROOT, []
        for line in command.split(" && "):
            if line.startswith("cd "):
                folder = Path(line.removeprefix("cd "))
            else:
                answers.append(said(line, folder, ask))
        *earlier, done = answers
    for each in (*earlier, done):
        if "error[E-extra]" in each.text:
            pytest.skip(f"needs the extras, `make extras`: {each.text}")
        if "no networks can be made here" in each.text:  # `tests.two_hosts` says so
            pytest.skip(each.text)
    assert all(each.code == 0 for each in earlier), earlier
    assert re.search(row["prints"], " ".join(done.text.split())), done.text
    assert done.code == int(row["exits"])


@dataclass(frozen=True, slots=True)
class Said:
    """What a program that is not ours printed."""

    text: str
    code: int


def said(line: str, folder: Path, ask: Callable[[str], Any]) -> Any:
    """What a command line prints: of `twofold` in this process, else in one of its own."""
    beside, _, line = line.rpartition(" & ")
    if beside:
        with subprocess.Popen(
            words_of(beside), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as other:
            try:
                return said(line, folder, ask)
            finally:
                other.kill()
    refused, _, line = line.rpartition(" || ")
    if refused:
        answer = said(refused, folder, ask)
        assert answer.code == 3, answer
    if line.startswith("twofold ") and folder == ROOT:
        return ask(line)
    words = words_of(line)
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    return Said(done.stdout + done.stderr, done.returncode)


def words_of(line: str) -> list[str]:
    """A command line of a process of its own; a test that needs a program which is not here is skipped."""
    program, *words = shlex.split(line)
    if program == "twofold":
        return [sys.executable, "-m", "twofold", *words]
    assert program in OTHER_PROGRAMS, line
    found = sys.executable if program == "python" else shutil.which(program)
    if found is None:
        pytest.skip(f"needs `{program}`")
    return [found, *words]


@contextmanager
def placed(command: str, scratch: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A row's command with its places: `{scratch}`, a folder that is gone afterwards, `{copy:FOLDER}`, one of
    ours copied there, `{service}`, the address of a stand-in for a server, `{slow}`, those of files that come
    slowly. `{standing}` is a service to bring up on `{port}`, for all rows that leave it as it is, `{own}`
    one for this row; `{taught}` a model. What it left running is ended.
    """
    for folder in dict.fromkeys(COPIED.findall(command)):
        shutil.copytree(ROOT / folder, scratch / Path(folder).name)
    command = COPIED.sub(lambda found: str(scratch / Path(found[1]).name), command)
    command = command.replace("{scratch}", str(scratch))
    for name in (name for name in MADE if f"{{{name}}}" in command):
        folder = request.getfixturevalue(name)
        command = command.replace(f"{{{name}}}", str(folder))
        command = command.replace("{port}", (folder / "port").read_text()) if name != "taught" else command
    with ExitStack() as stack:
        if "{service}" in command:
            pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
            command = command.replace("{service}", stack.enter_context(served(Service(gap_s=0.01))).url)
        if "{slow}" in command:
            command = command.replace("{slow}", stack.enter_context(slow_files(12, 2.0)))
        try:
            yield command
        finally:
            end_all_in(scratch)


def end_all_in(folder: Path) -> None:
    """End what runs for any spec below a folder."""
    for state in folder.rglob(".twofold"):
        from twofold.live.control.supervisor import bring_down

        bring_down(state)


@pytest.fixture(scope="module")
def made_service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What nobody has brought up yet; it waits less for requests and starts than one that people ask."""
    for name in ("aiohttp", "psutil", "tokenizers", "uvicorn"):
        pytest.importorskip(name, reason="needs the extras [train] and [live]: `make extras`")
    return service_in(tmp_path_factory.mktemp("made") / "service")


def own_service(made: Path, folder: Path) -> Iterator[Path]:
    """A copy with a port of its own, ended afterwards."""
    from twofold.app import scaling_out, trying
    from twofold.live.processes import free_port

    shutil.copytree(made, folder)
    (folder / "port").write_text(str(free_port()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling_out, "LEAD_S", 2.0)
        patch.setattr(trying, "SEGMENT_S", 3.0)
        yield folder
    end_all_in(folder)


@pytest.fixture(scope="module")
def standing(made_service: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all rows that leave it as it is."""
    yield from own_service(made_service, tmp_path_factory.mktemp("standing") / "service")


@pytest.fixture
def own(made_service: Path, tmp_path: Path) -> Iterator[Path]:
    """One for a row alone."""
    yield from own_service(made_service, tmp_path / "service")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows a sentence, its registry, texts and samples."""
    for name in ("torch", "transformers"):
        pytest.importorskip(name, reason="needs the extra [train]: `make extras`")
    return taught_in(tmp_path_factory.mktemp("taught") / "model")


def test_commands_read_files_of_the_repository_only() -> None:
    for row in ROWS:
        assert all((ROOT / folder).is_dir() for folder in COPIED.findall(row["command"])), row
        for word in shlex.split(row["command"]):
            assert not word.startswith(("/", "~", "..")), word
            if word.startswith(("examples/", "tests/")):
                for path in word.split(","):  # two of `--compare`, each with or without its variant
                    assert (ROOT / path.partition(":")[0]).exists(), path
