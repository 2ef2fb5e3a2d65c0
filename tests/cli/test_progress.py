"""Progress in a log: a line per stage, none per step; on stdout nothing at all."""

import os
import select
import subprocess
import sys

import pytest

from twofold.cli.progress import _bar, stage_bar, watched_bar


def test_a_log_gets_a_line_per_stage_and_not_one_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    with stage_bar() as tell:
        tell("measure this machine")
        for step in range(1, 111):
            tell(f"train: step {step} of 110: loss 8.0")
        tell("load: 4 clients in a closed loop")
    streams = capsys.readouterr()
    assert streams.out == ""
    lines = streams.err.splitlines()
    assert [line.split("] ")[1].lstrip("█· ")[:7] for line in lines] == ["measure", "train: ", "load: 4"]


def test_what_is_counted_has_a_bar() -> None:
    assert _bar("step 55 of 110") == "█" * 10 + "·" * 10 + " "
    assert _bar("step 0 of 0") == _bar("plan both halves") == ""


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are of POSIX")
def test_who_watches_a_plan_sees_at_once_that_it_is_under_way_and_the_decision_once() -> None:
    terminal, theirs = os.openpty()
    command = [sys.executable, "-m", "twofold", "plan", "examples/assistant"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as running:
        os.close(theirs)
        assert running.stdout is not None
        first = os.read(terminal, 4096).decode()  # before anything is printed, or this would wait for ever
        assert not select.select([running.stdout], [], [], 0)[0]
        printed = running.stdout.read()
    os.close(terminal)
    assert "planning" in first
    assert printed.count("DO THIS") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are of POSIX")
def test_who_watches_a_rehearsal_sees_at_once_that_it_is_under_way() -> None:
    terminal, theirs = os.openpty()
    command = [sys.executable, "-m", "twofold", "simulate", "no-such-plan.json"]
    with subprocess.Popen(command, stderr=theirs):  # refused only after what takes long to import
        os.close(theirs)
        assert b"preparing" in os.read(terminal, 4096)
    os.close(terminal)


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are of POSIX")
def test_what_was_frozen_stays_whole_where_somebody_watches() -> None:
    frozen = f"frozen: sha256 {'ab' * 32} at 2026-11-28T14:33:03.698+00:00"
    code = f"from twofold.cli.progress import stage_bar\nwith stage_bar() as t: t({frozen!r}); t('live')"
    terminal, theirs = os.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stderr=theirs) as running:
        os.close(theirs)
        running.wait()
        said = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    line, _, after = said.partition("\n")
    assert line.rstrip().endswith(frozen) and "live" in after


def test_a_log_hears_nothing_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    with watched_bar() as tell:
        tell("rehearsing")
    assert capsys.readouterr() == ("", "")
