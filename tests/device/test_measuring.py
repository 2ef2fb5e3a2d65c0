"""Ranks are processes that speak lines: what they say is gathered, and none outlives the measurement."""

import sys
from pathlib import Path

import pytest

from twofold.core import RunError
from twofold.device.measuring import default_rank_count, measure

TELL = "import json, os, sys\ndef say(**event): print(json.dumps(event), flush=True)\n"
RANK = (
    TELL
    + """
say(event="ready")
if os.environ["RANK"] == "0": say(event="stage", name="products")
print("a library's own words", flush=True)
say(event="sample", group="copy", sizes={"bytes": 8}, seconds=[1.0 + int(os.environ["RANK"])])
say(event="resident", bytes=100 + int(os.environ["RANK"]))
say(event="done", software="torch 9")
"""
)
FAILING = (
    TELL + "say(event='ready')\nif os.environ['RANK'] == '1': sys.exit('no memory left')\nsys.stdin.read()\n"
)


def test_samples_of_all_ranks_are_gathered_as_one() -> None:
    heard: list[str] = []
    found = measure(2, heard.append, (sys.executable, "-c", RANK))
    assert heard == ["products"]
    (sample,) = found.samples
    assert sorted(sample.seconds) == [1.0, 2.0]
    assert (found.software, found.rank_count, found.resident_bytes) == ("torch 9", 2, 101)


def test_a_rank_that_fails_ends_the_others_and_is_quoted(tmp_path: Path) -> None:
    mark = tmp_path / "process"
    program = f"import os\nopen({str(mark)!r} + os.environ['RANK'], 'w').write(str(os.getpid()))\n{FAILING}"
    with pytest.raises(RunError) as failed:
        measure(2, worker=(sys.executable, "-c", program))
    assert "no memory left" in failed.value.message
    other = int(Path(f"{mark}0").read_text())
    assert not Path(f"/proc/{other}").exists()


def test_a_machine_has_at_least_one_rank() -> None:
    assert default_rank_count() >= 1
