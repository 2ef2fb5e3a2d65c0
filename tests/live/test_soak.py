"""One seed of each fault that `make soak` does many of: what must hold then holds here."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")

from tests.soak.faults import FAULTS
from tests.soak.memory import over
from tests.soak.page import Setting, kept_sections, training_section, with_section
from tests.soak.rounds import run_trial
from tests.soak.services import real_service, stub_service
from tests.soak.training import cases_of


def test_whatever_is_hit_nothing_is_lost_and_the_service_comes_back(tmp_path: Path) -> None:
    told = asyncio.run(run_trial(stub_service(tmp_path), tuple(FAULTS), seed="test"))
    assert told.wrong == [] and [each.wrong for each in told.rounds] == [[]] * len(FAULTS)
    assert told.books.count("completed") > 50


REPORT = """\
<testsuites><testsuite>
<testcase name="test_a_disk_without_room_for_a_line_costs_no_loss[0]" time="20.4"/>
<testcase name="test_a_disk_without_room_for_a_line_costs_no_loss[1]" time="31">
<failure message="assert
  False">long</failure></testcase>
<testcase name="test_kills_in_saving_and_exporting_cost_no_loss[0]" time="2"><skipped/></testcase>
<testcase name="test_another"/>
</testsuite></testsuites>"""


def test_the_page_tells_of_training_what_its_reports_say(tmp_path: Path) -> None:
    first, second = tmp_path / "first.xml", tmp_path / "second.xml"
    first.write_text(REPORT)
    setting = Setting("abc", "2026-11-27", "", 2, False, 1.0, 4, 20.0, 60.0, 2.0)
    page = training_section(cases_of([first]), setting)
    assert (
        "| a disk full to the last byte for some steps | 2 | 1 | 31 s |" in page
        and "killed in saving, then" not in page
    )
    assert "seed 1: assert False" in page
    second.write_text(REPORT.replace("<failure", "<system-out").replace("failure>", "system-out>"))
    again = with_section(f"# Page\n\n{page}", training_section(cases_of([first, second]), setting))
    assert "| a disk full to the last byte for some steps | 2 | 2 | 31 s |" in again and "All held." in again
    assert again.count("## Training") == 1 and kept_sections(again)[0].startswith("## Training")


def test_so_it_is_with_the_real_default_engine(tmp_path: Path) -> None:
    for library in ("torch", "transformers"):
        pytest.importorskip(library, reason="needs the extra [train]: `make extras`")
    faults = ("prompts around the bounds", "engine killed")
    told = asyncio.run(run_trial(real_service(tmp_path), faults, seed="real"))
    assert told.wrong == [] and [each.wrong for each in told.rounds] == [[], []]


def test_the_memory_of_a_gateway_stays_as_it_is(tmp_path: Path) -> None:
    """A leak of a kilobyte a request would show; a hundred thousand of them: `make soak`."""
    memory = asyncio.run(over(tmp_path, 3000))
    assert memory.grown_bytes < 2 << 20, memory
