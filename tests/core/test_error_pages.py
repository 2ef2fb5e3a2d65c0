"""Every section of docs/errors.md runs: its files are written, its Python executed, its commands compared."""

import re
import shlex
from pathlib import Path

import pytest

from twofold.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
SECTIONS = dict(
    re.findall(r"^## (E-[a-z-]+)$(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
)
FENCE = re.compile(r"^```(\w+)(?: ([\w.-]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def transcript(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    exit_code = main(shlex.split(command)[2:])
    streams = capsys.readouterr()
    return f"{command}\n{(streams.out + streams.err).rstrip()}\n[exit {exit_code}]\n"


@pytest.mark.parametrize("code", SECTIONS)
def test_the_example_of_a_code_runs_as_printed(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if code == "E-run":
        pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
    monkeypatch.chdir(tmp_path)
    blocks = FENCE.findall(SECTIONS[code])
    assert any(kind in ("console", "python") for kind, _, _ in blocks), "a section has an example that runs"
    assert any(f"[{code}]" in body or f'"{code}"' in body or code == "E-infeasible" for _, _, body in blocks)
    for kind, name, body in blocks:
        if name:
            Path(name).write_text(body, "utf-8")
        elif kind == "python":
            exec(compile(body, str(PAGE), "exec"), {})
        elif kind == "console":
            assert transcript(body.splitlines()[0], capsys) == body
