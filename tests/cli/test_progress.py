"""Progress in a log: a line per stage, none per step; on stdout nothing at all."""

import pytest

from twofold.cli.progress import _bar, stage_bar


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
