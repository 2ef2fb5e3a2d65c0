"""What the faults of training came to: read from the reports that pytest wrote of them, one case a seed."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

FAULTS = {
    "test_worker_launcher_and_driver_killed_at_random_leave_the_last_loss_as_it_is": (
        "worker, launcher, the job's shell and the queue's driver killed at random moments, each once;"
        " the driver again in saving and in exporting"
    ),
    "test_kills_in_saving_and_exporting_cost_no_loss": (
        "a rank or the launcher killed in saving, then the other in exporting"
    ),
    "test_broken_newest_checkpoints_and_a_half_export_are_passed_over": (
        "the two newest checkpoints spoilt (nested 200,000 deep, changed, cut, emptied), half an export"
    ),
    "test_a_limit_on_the_size_of_files_costs_checkpoints_and_no_loss": (
        "a limit on the size of files for some steps, so that no checkpoint is written"
    ),
    "test_a_disk_without_room_for_a_line_costs_no_loss": "a disk full to the last byte for some steps",
    "test_a_disk_that_is_full_when_it_exports_costs_no_loss": "a disk without room for what is exported",
    "test_a_second_trainer_of_one_folder_is_refused_and_harms_nothing": "a second trainer on the folder",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One seed of one fault."""

    fault: str
    seed: str
    seconds: float
    wrong: str  # "": it held


def cases_of(reports: Iterable[Path]) -> list[Case]:
    """The cases of these reports, other tests and skipped ones left out; a later report's seed counts."""
    found: dict[tuple[str, str], Case] = {}
    for report in reports:
        for each in ElementTree.parse(report).getroot().iter("testcase"):
            name, _, seed = each.get("name", "").rstrip("]").partition("[")
            if name not in FAULTS or each.find("skipped") is not None:
                continue
            wrong = [part for kind in ("failure", "error") for part in each.iter(kind)]
            said = re.sub(r"\s+", " ", wrong[0].get("message", "it failed"))[:200] if wrong else ""
            found[name, seed] = Case(name, seed, float(each.get("time", "0")), said)
    return list(found.values())


def rows_of(cases: Sequence[Case]) -> list[str]:
    """A row per fault: seeds, how many held, how long one took."""
    by_fault: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_fault[case.fault].append(case)
    return [
        f"| {said} | {len(done)} | {sum(not each.wrong for each in done)}"
        f" | {max(each.seconds for each in done):.0f} s |"
        for name, said in FAULTS.items()
        if (done := by_fault[name])
    ]
