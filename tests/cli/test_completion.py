"""`completion`: the scripts in the shells that they are for, and what each place is completed by."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.cli.names import accelerators, models, scenarios, tables
from twofold.cli.verbs import SHELLS, VERBS

BASH = """
source ./script
COMP_WORDS=({words}); COMP_CWORD={at}
_twofold_completion twofold 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
autoload -U compinit && compinit -u -d dump
source ./script
[[ $_comps[twofold] == _twofold_completion ]] || exit 9
compadd() {{ print -l -- $completions }}
_describe() {{ print -l -- ${{completions_with_descriptions%%:*}} }}
words=({words}); CURRENT=$(({at} + 1))
_twofold_completion
"""


@pytest.fixture
def shell(tmp_path: Path, run):
    """Asks a shell, which starts the command by its name, what words go on with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "twofold"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m twofold "$@"\n')
    command.chmod(0o755)
    settings = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def ask(name: str, line: str) -> list[str]:
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed")
        (tmp_path / "script").write_text(run(f"twofold completion {name}").out)
        words = line.split(" ")
        said = {"words": " ".join(word or "''" for word in words), "at": len(words) - 1}
        texts = {"bash": BASH.format(**said), "zsh": ZSH.format(**said)}
        text = texts.get(name, f"source ./script; complete -C '{line}'")
        flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
        done = subprocess.run(
            [name, *flags, "-c", text],
            cwd=tmp_path,
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [each.partition("\t")[0] for each in done.stdout.splitlines() if each]

    return ask


@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_completes_verbs_options_and_names(name, shell) -> None:
    assert shell(name, "twofold comp") == ["compare", "completion"]
    assert shell(name, "twofold plan --det") == ["--details"]
    assert shell(name, "twofold estimate train llama-3.1-4") == ["llama-3.1-405b"]
    assert shell(name, "twofold render spec --target sl") == ["slurm"]


def test_every_verb_begins_somehow(shell) -> None:
    assert shell("bash", "twofold ") == list(VERBS)


def test_what_is_wrong_already_goes_on_with_nothing(shell) -> None:
    assert shell("bash", "twofold bogus --") == []
    assert shell("bash", "twofold estimate --on x") == []


def test_names_are_those_that_the_tables_and_the_package_have() -> None:
    held = load_catalog()
    assert list(models()) == [row["name"] for row in held.table("models").rows]
    assert list(accelerators()) == [row["name"] for row in held.table("accelerators").rows]
    assert set(tables()) == {*held.table_names(), "kernels", "refresh-prices"}
    assert {"as-planned", "zone-loss"} <= set(scenarios())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("catalog mod", "plain,models"),
        ("catalog partitions H100-S", "plain,H100-SXM5-80GB"),
        ("simulate spec --scenario as-pl", "plain,as-planned"),
        ("simulate spec --scenario my/own", "file,my/own"),
        ("plan exam", "file,exam"),
        ("validate --by", "plain,--by"),
    ],
)
def test_a_place_is_completed_by_what_may_stand_there(line, found, run_words, monkeypatch) -> None:
    words = f"twofold {line}"
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    monkeypatch.setenv("_TWOFOLD_COMPLETE", "bash_complete")
    assert found in run_words([]).out.split()


@pytest.mark.parametrize("asked", ["bash_complete", "tcsh_complete", "bash", "x"])
def test_what_no_shell_asks_is_answered_with_nothing(asked, run_words, monkeypatch) -> None:
    monkeypatch.delenv("COMP_WORDS", raising=False)
    monkeypatch.setenv("_TWOFOLD_COMPLETE", asked)
    done = run_words(["plan", "x"])
    assert (done.out, done.err) == ("", "")


def test_another_shell_is_refused(run) -> None:
    done = run("twofold completion tcsh")
    assert done.code == 2 and "tcsh" in done.err and "fish" in done.err
