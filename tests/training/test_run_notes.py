"""What a run's figures are said to follow from is what moves them, and nothing else does."""

from dataclasses import replace

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.core import record
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.types import Cluster
from twofold.training.run import Reliability, RunWork, run_plan

USUAL = {
    "run.steps_count": 1000.0,
    "step_s": 5.0,
    "accelerators": 512.0,
    "write": 60.0,
    "failures": 50_700.0,
    "stop": 420.0,
    "headroom": 0.1,
    "watts": 700.0,
}


def noted(**changed: float) -> record.Book:
    told = USUAL | changed
    part, constants = load_catalog().accelerator("H100-SXM5-80GB"), load_constants()
    machine = replace(device(part, constants), tdp_w=told["watts"])
    links = network(part, 8, 50e9, "infiniband", constants)
    stops = Reliability(told["failures"], detection_s=120.0, restart_s=told["stop"] - 120.0)
    with record.recording() as book:
        run_plan(
            RunWork(int(told["run.steps_count"]), None, None, told["write"]),
            told["step_s"],
            Cluster(machine, links, int(told["accelerators"])),
            {"retries": told["headroom"]},
            stops,
        )
    return book


def ends(book: record.Book, name: str) -> set[str]:
    return {end for each in book[name].inputs for end in (ends(book, each) if each in book else {each})}


@pytest.mark.parametrize("moved", USUAL)
def test_a_figure_moves_with_what_its_tree_ends_in_and_with_nothing_else(moved: str) -> None:
    before, after = noted(), noted(**{moved: 2 * USUAL[moved]})
    assert len(before) > 9
    for name, note in before.items():
        same = after[name].value == pytest.approx(note.value, rel=1e-9)
        # Pure shares: twice the steps are twice the wall, and the share of compute in it stays.
        assert same is not (moved in ends(before, name)) or (name == "run.goodput_fraction" and same), name


def test_a_sum_is_that_of_its_parts_and_a_share_that_of_its_whole() -> None:
    value = {name: note.value for name, note in noted().items()}
    parts = [value[each] for each in ("run.compute_s", "run.checkpoint_stall_s", "run.failure_s")]
    assert value["run.wall_s"] == pytest.approx(sum(parts))
    assert value["run.goodput_fraction"] == pytest.approx(value["run.compute_s"] / value["run.wall_s"])
    assert value["run.total_accelerator_h"] == pytest.approx(value["run.total_s"] * 512 / 3600)


def test_nothing_is_kept_while_nobody_records() -> None:
    with record.recording() as outer:
        assert noted() and not outer
    with record.recording() as book:
        pass
    noted()
    assert not book
