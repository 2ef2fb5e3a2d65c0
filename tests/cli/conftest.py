"""Runs command lines in this process, in an empty folder, and keeps what they print as transcripts."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from twofold.cli import main

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="rewrite the transcripts in tests/cli/golden")


@dataclass(frozen=True, slots=True)
class Done:
    """One command line and what came of it, folders and digests masked."""

    line: str
    code: int
    out: str
    err: str

    @property
    def transcript(self) -> str:
        return f"$ {self.line}\n{self.out}{self.err}[exit {self.code}]\n"


@pytest.fixture
def run_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], Done]:
    """`run_words(["check", "spec.yaml"])`, in a working directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TWOFOLD_DEBUG", raising=False)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795219200")  # 2026-11-21: prices do not age in transcripts

    def run_all(words: list[str]) -> Done:
        capsys.readouterr()
        code = main(words)
        out, err = (_masked(text, tmp_path) for text in capsys.readouterr())
        return Done(f"twofold {shlex.join(words)}", code, out, err)

    return run_all


@pytest.fixture
def run(run_words: Callable[[list[str]], Done]) -> Callable[[str], Done]:
    """`run("twofold check spec.yaml")`; a transcript shows the line as it is written here."""

    def run_line(line: str) -> Done:
        program, *words = shlex.split(line)
        assert program == "twofold"
        return replace(run_words(words), line=line)

    return run_line


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, transcript)` holds a transcript equal to the one kept; `--golden` rewrites it."""

    def compare(name: str, transcript: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--golden", default=False):
            path.parent.mkdir(exist_ok=True)
            path.write_text(transcript, "utf-8")
        kept = path.read_text("utf-8") if path.exists() else ""
        assert transcript == kept, "the screen changed: read the difference, then `make golden`"

    return compare


def _masked(text: str, folder: Path) -> str:
    return re.sub(
        r"(?<!\.)\b(?=\d*[a-f])[0-9a-f]{12,64}\b", "<digest>", text.replace(str(folder), "<folder>")
    )
