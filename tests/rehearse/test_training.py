"""A rehearsed cluster says what its plan's run and serving did not get, and takes no run that cannot fit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from twofold.app.simulating import SimulateOptions, simulate
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.simulated import Simulation, TrainingFigures
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.scenario import parse_scenario
from twofold.core.errors import EmptyError, ValueRefusedError
from twofold.core.quantity import DAY_S
from twofold.perf.constants import load_constants
from twofold.rehearse.training import left_out, rehearse_training
from twofold.rehearse.training_world import traced_jobs
from twofold.twin.cluster.jobs import JobEnd

SPEC = """\
name: small
model: llama-3.2-3b
training:
  tokens: 1 Gtok
  sequence: 4096 tok
  global_batch: 64 seq
  deadline: 2 d
  on: 2x8xH100-SXM
"""
ALONE = "failures: 1e-9 /d"


@pytest.fixture(scope="module")
def small(planned: Callable[[str], Plan]) -> Plan:
    return planned(SPEC)


@pytest.fixture(scope="module")
def run(small: Plan) -> TrainingPlan:
    return small.training[0]


def figures(run: TrainingPlan | None, cluster: str, horizon: str = "12 h") -> TrainingFigures:
    read = parse_scenario(f"horizon: {horizon}\ncluster: {{{cluster}}}\n", "s.yaml")
    return rehearse_training((run,) if run else (), read, 0, load_catalog(), load_constants())


def test_a_run_that_completes_in_time_misses_nothing(run: TrainingPlan) -> None:
    made = figures(run, ALONE)
    assert made.runs[0].state == "completed"
    assert not made.missed and not made.alarms


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        ("nodes: 40, failures: 20 /h", "gave up at "),
        ("failures: 10 /h", "waits for 16 accelerators at the end, 0 % of its work done"),
        (f"{ALONE}, serving: [{{at: 0 s, accelerators: 8}}]", "never started: it waited 12 h for 16 accel"),
        (f"{ALONE}, checkpoint_every: 1 s, storage: 0.05 GB/s", "at its pace of 12 h, its deadline is 2.0 d"),
        (f"{ALONE}, nodes: 4, serving: [{{at: 0 s, accelerators: 400}}]", "serving had "),
    ],
)
def test_what_the_run_or_serving_did_not_get_is_a_missed_goal(
    cluster: str, why: str, run: TrainingPlan
) -> None:
    assert any(why in text for text in figures(run, cluster).missed)


def test_a_run_is_late_by_its_own_deadline_alone(run: TrainingPlan) -> None:
    needed_s = figures(run, ALONE).duration_s
    late = figures(replace(run, deadline_s=0.9 * needed_s), ALONE)
    (text,) = late.missed
    assert "was complete after" in text
    assert not figures(replace(run, deadline_s=1.1 * needed_s), ALONE).missed
    assert not figures(replace(run, deadline_s=None), ALONE).missed
    half = "15 min"  # cut off: what is left is judged by the pace so far
    assert not figures(replace(run, deadline_s=10 * needed_s), ALONE, half).missed
    assert "at its pace" in figures(replace(run, deadline_s=0.1 * needed_s), ALONE, half).missed[0]


def test_jobs_that_are_refused_or_of_little_use_are_told() -> None:
    refused = figures(None, "nodes: 4, given: [{accelerators: 1000, for: 1 h}]")
    assert refused.alarms[0].startswith("1 of 1 jobs were refused") and not refused.missed
    short = figures(None, "nodes: 4, given: [{accelerators: 8, for: 10 s}]")
    assert short.alarms[0].startswith("goodput: ")
    waiting = figures(
        None, "nodes: 4, given: [{accelerators: 8, for: 1 h}], serving: [{at: 0 s, accelerators: 32}]"
    )
    assert "none of 1 jobs started" in waiting.alarms


@pytest.mark.parametrize("cluster", ["nodes: 1", "nodes: 4, spares: 3", "nodes: 2, accelerators_per_node: 4"])
def test_a_run_without_room_is_refused_with_the_nodes_that_it_may_have(
    cluster: str, run: TrainingPlan
) -> None:
    with pytest.raises(ValueRefusedError, match="does not fit the 8 that") as caught:
        figures(run, cluster)
    assert "`run_nodes: 1`" in caught.value.hint
    assert figures(run, f"{cluster}, run_nodes: 1").submitted_count == 1


def test_beside_jobs_of_its_own_a_scenario_leaves_the_run_out_and_says_so(run: TrainingPlan) -> None:
    given = "given: [{accelerators: 8, for: 1 h}]"
    assert figures(run, f"nodes: 1, {given}").submitted_count == 1
    cluster = parse_scenario(f"cluster: {{nodes: 1, {given}}}", "s.yaml").cluster
    assert cluster is not None
    (note,) = left_out((run,), cluster)
    assert note.endswith("does not fit the 8 that the cluster has: it is left out")
    assert not left_out((run,), cluster.model_copy(update={"nodes": 2})) and not left_out((), cluster)


def test_a_cluster_without_any_job_is_refused() -> None:
    with pytest.raises(EmptyError, match="submits no job"):
        figures(None, "nodes: 4")


def test_what_was_missed_decides_the_verdict_and_shows(small: Plan) -> None:
    text = "name: storm\nhorizon: 12 h\ncluster: {nodes: 40, failures: 20 /h}"
    made = simulate(small, SimulateOptions(parse_scenario(text, "s.yaml")))
    data: Simulation = made.data
    assert data.training is not None and data.training.missed
    assert not data.slos_met and data.broke_first == data.training.missed[0]
    assert (data.horizon_s, data.training.duration_s < data.horizon_s) == (DAY_S / 2, True)
    assert any(line.startswith("GOALS ") and "gave up at" in line for line in made.lines)


def test_tables_of_requests_are_refused_where_none_is_sent(small: Plan) -> None:
    scenario = parse_scenario("cluster: {}", "s.yaml")
    for table in ("requests", "timeline"):
        options = replace(SimulateOptions(scenario), **{table: "x.csv"})
        with pytest.raises(ValueRefusedError, match="no request is sent there"):
            simulate(small, options)


@pytest.mark.parametrize(
    ("cluster", "horizon", "why"),
    [
        ("nodes: 4", "99 y", "would not end: a year is the most"),
        ("nodes: 1000000", "1 h", "1e+06 nodes are more than"),
        ("failures: 1000 /s", "2 h", "1.44e+07 failures of nodes are more than"),
        ("given: [{accelerators: 1, for: 1 s, copies: 1000000}]", "1 h", "1e+06 jobs under `given`"),
        ("jobs: {rate: 10000 /s}", "1 h", "3.6e+07 drawn jobs"),
        ("checkpoint_every: 1 ms", "12 h", "4.32e+07 checkpoints"),
    ],
)
def test_a_cluster_that_would_not_end_is_refused_before_it_begins(
    cluster: str, horizon: str, why: str, run: TrainingPlan
) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        figures(run, cluster, horizon)
    assert why in caught.value.message and caught.value.hint


def test_rows_become_jobs_and_those_that_never_ran_do_not(tmp_path: Path) -> None:
    rows = "0,10,0.5,completed\n5,10,0,completed\n6,0,8,pending\n7,9,16,failed\n8,9,1,odd\n"
    (tmp_path / "jobs.csv").write_text(f"submit_s,duration_s,gpus,state\n{rows}", "utf-8")
    jobs = list(traced_jobs(tmp_path / "jobs.csv"))
    assert [(job.submit_s, job.accelerator_count, job.state) for job in jobs] == [
        (0.0, 1, JobEnd.COMPLETED),
        (7.0, 16, JobEnd.FAILED),
        (8.0, 1, JobEnd.COMPLETED),
    ]
