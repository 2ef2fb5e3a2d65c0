"""Every block of the docs runs: `python` blocks top to bottom, `console` blocks print what they show.

A line that is only `…` in a console block stands for any lines. What commands print is rewritten by
`pytest tests/cli tests/test_docs.py --golden`.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from twofold.cli import main
from twofold.cli.verbs import VERBS

ROOT = Path(__file__).parents[1]
RUN_ELSEWHERE = {"errors.md"}  # its blocks are fragments, run by the test of errors
PAGES = [
    path
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/howto").glob("*.md")),
    )
    if path.name not in RUN_ELSEWHERE
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANYTHING = "…"


class Command(NamedTuple):
    line: str
    shown: list[str]


def commands(block: str) -> Iterator[Command]:
    """Each `$ twofold …` of a console block with the lines below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, *shown = part.rstrip("\n").split("\n")
        yield Command(line, shown)


def fits(shown: list[str], printed: list[str]) -> bool:
    """Whether the lines printed are those shown, where `…` stands for any."""
    pattern = "\n".join(".*" if line.strip() == ANYTHING else re.escape(line) for line in shown)
    return re.fullmatch(pattern, "\n".join(printed), re.DOTALL) is not None


def elided(shown: list[str], printed: list[str]) -> list[str]:
    """What was printed, as long before and after `…` as the page had it; lines between two are lost."""
    marks = [index for index, line in enumerate(shown) if line.strip() == ANYTHING]
    if not marks:
        return printed
    behind = len(shown) - marks[-1] - 1
    return [*printed[: marks[0]], shown[marks[0]], *printed[len(printed) - behind :]]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_blocks_of_a_page_run_and_print_what_they_show(
    page: Path,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795219200")  # 2026-11-21: prices do not age in the docs
    text = page.read_text("utf-8")
    namespace: dict[str, object] = {}
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            exec(compile(block, str(page), "exec"), namespace)
        for command in commands(block) if kind == "console" else ():
            program, *words = shlex.split(command.line)
            assert program == "twofold", f"{page.name}: only twofold runs in a console block"
            capsys.readouterr()
            main(words)
            printed = [line.rstrip() for line in "".join(capsys.readouterr()).rstrip("\n").split("\n")]
            if request.config.getoption("--golden", default=False):
                if command.shown.count(ANYTHING) > 1 and fits(command.shown, printed):
                    continue  # lines picked by hand between ellipses still stand
                old, new = (
                    "\n".join([command.line, *lines])
                    for lines in (command.shown, elided(command.shown, printed))
                )
                text = text.replace(old, new, 1)
                page.write_text(text, "utf-8")
            else:
                assert fits(command.shown, printed), f"$ {command.line}\n" + "\n".join(printed)


def test_the_readme_shows_a_whole_plan_and_the_commands_that_make_it() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for needed in (
        "make demo",
        "make test",
        "pip install .",
        "$ twofold plan examples/assistant",
        "DO THIS",
        "--full",
    ):
        assert needed in text, needed


def test_the_readme_lists_the_verbs_that_there_are() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| ?(\w*) *\| `(\w+)` \| (.*?) \|$", text, re.MULTILINE)
    assert [(name, summary) for _, name, summary in rows] == [(n, verb.summary) for n, verb in VERBS.items()]
    assert [group for group, *_ in rows if group] == list(
        dict.fromkeys(verb.group for verb in VERBS.values())
    )


def test_ellipses_stand_for_any_lines() -> None:
    assert fits(["a", "…", "d"], ["a", "b", "c", "d"])
    assert not fits(["a", "…", "d"], ["a", "b", "c"])
    assert elided(["x", "…", "y"], ["a", "b", "c"]) == ["a", "…", "c"]
