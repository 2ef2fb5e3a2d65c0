"""Measured services are rehearsed by their rows, each class in replicas of its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from twofold.app.planning import plan_to_json
from twofold.app.simulate_inputs import Rehearsable, opened, rehearsable
from twofold.app.simulating import SimulateOptions, simulate
from twofold.contracts.spec.scenario import Scenario, parse_scenario
from twofold.contracts.spec.scenario_fleet import EngineChange
from twofold.core.errors import TableError, ValueRefusedError
from twofold.inference.fleet import ReplicaCount
from twofold.rehearse.pools import measured_pools, measured_world
from twofold.rehearse.run import pools_of

SPEC = """\
name: vision
serving:
  name: eyes
  model: {measured: ROWS}
  on: 1xL4
  zones: 2
  classes:
    live: {traffic: {rate: 20 /s, peak: 2x}, slo: {e2e_p95: 200 ms}}
    slow: {traffic: {rate: 5 /s, peak: 2x}, slo: {e2e_p95: 5 s, tpot_p95: 50 ms}}
"""
ROWS = "batch_size,service_s\n1,0.02\n8,0.05\n32,0.15\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("measured")
    (path / "rows.csv").write_text(ROWS)
    (path / "spec.yaml").write_text(SPEC.replace("ROWS", str(path / "rows.csv")))
    return path


@pytest.fixture(scope="module")
def given(folder: Path) -> Rehearsable:
    return rehearsable(opened(folder / "spec.yaml", None))


def scenario(text: str = "") -> Scenario:
    return parse_scenario(f"horizon: 30 s\nwarm_up: 2 s\nbeliefs: {{error: 0 %}}\n{text}", "s.yaml")


def test_each_class_has_the_replicas_and_spares_that_the_plan_counted(given: Rehearsable) -> None:
    (service,) = given.plan.serving
    pools = pools_of(service)
    assert pools == measured_pools(service)
    assert [pool.classes for pool in pools] == [("live",), ("slow",)]
    assert sum(pool.replica_count for pool in pools) == service.replica_count
    assert sum(pool.spare_count for pool in pools) == service.spare_count
    for pool, planned in zip(pools, service.classes, strict=True):
        assert pool.replica_count - pool.spare_count == planned.replica_count
        # By the law of one class alone: as many as a zone's loss takes, and those of single failures.
        alone = ReplicaCount.with_spares(planned.replica_count, zones=2)
        assert pool.spare_count == planned.spare_count == alone.spare


def test_spares_are_of_the_class_that_they_were_counted_for(folder: Path) -> None:
    """Work of a day does not outlast a zone; shared by need it would have spares of those who wait."""
    text = (folder / "spec.yaml").read_text().replace("rate: 20 /s", "rate: 400 /s")
    day = "slow: {traffic: {tokens_per_day: 10 Gtok, input: 900 tok, output: 100 tok}"
    (folder / "day.yaml").write_text(f"{text.split('    slow')[0]}    {day}, slo: {{finish_within: 6 h}}}}\n")
    (service,) = rehearsable(opened(folder / "day.yaml", None)).plan.serving
    live, slow = service.classes
    assert live.spare_count == live.replica_count and 0 < (slow.spare_count or 0) < slow.replica_count
    assert [pool.spare_count for pool in pools_of(service)] == [live.spare_count, slow.spare_count]
    made = simulate(folder / "day.yaml", SimulateOptions(scenario())).data
    assert [fleet.spare_count for fleet in made.fleets] == [live.spare_count, slow.spare_count]


def test_a_plan_of_before_shares_its_spares_by_what_classes_need(given: Rehearsable) -> None:
    (service,) = given.plan.serving
    classes = tuple(replace(each, spare_count=None) for each in service.classes)
    many = replace(service, classes=classes, spare_count=3)
    assert sum(pool.spare_count for pool in measured_pools(many)) == 3


def test_a_request_takes_as_long_as_its_rows_say(folder: Path) -> None:
    made = simulate(folder / "spec.yaml", SimulateOptions(scenario())).data
    live, slow = made.classes
    assert live.finished_count == live.arrived_count  # nobody is refused at the peak
    assert live.e2e_s is not None
    assert live.e2e_s.p50 >= 0.02
    assert live.e2e_s.p99 <= 2 * 0.15 + 0.01
    by_metric = {slo.metric: slo.met for slo in slow.slos}
    assert by_metric == {"e2e_p95": True, "tpot_p95": None}  # answers come whole: no row says
    assert any("a start is taken to last 30 s" in note for note in made.notes)
    assert sum(fleet.arrived_count for fleet in made.fleets) > 0
    assert all(fleet.cost_usd for fleet in made.fleets)


def test_faults_and_policies_work_on_measured_replicas_too(folder: Path) -> None:
    text = "faults: [{kind: replica-crash, at: 10 s, pool: live, back_after: 5 s}]\nclients: {retry: backoff}"
    made = simulate(folder / "spec.yaml", SimulateOptions(scenario(text))).data
    live, slow = made.fleets
    assert live.after_fault is not None
    assert "OpenCircuit" in live.after_fault.first_effects_s
    assert slow.after_fault is None


def test_beliefs_are_of_the_rows_size(given: Rehearsable) -> None:
    (service,) = given.plan.serving
    world = measured_world(service, pools_of(service)[0], given.tables, EngineChange())
    rows = given.tables.measured["eyes"]
    planned = rows.latency(40.0 / service.classes[0].replica_count)
    assert planned is not None
    assert world.beliefs.first_token_s == pytest.approx(float(planned.mean_s))
    assert world.beliefs.input_token_s == pytest.approx(0.15 / 32)  # of the one token that stands for it
    assert world.model.busy_w > world.model.idle_w > 0
    assert world.model.in_flight_limit <= 2 * 32


def test_what_the_rows_do_not_say_is_refused(given: Rehearsable, folder: Path) -> None:
    (service,) = given.plan.serving
    with pytest.raises(ValueRefusedError, match="`max_batch` of `engine` would not change its times"):
        simulate(folder / "spec.yaml", SimulateOptions(scenario("engine: {max_batch: 4}")))
    plan = folder / "plan.json"
    plan.write_text(plan_to_json(given.plan))
    with pytest.raises(ValueRefusedError, match="a plan does not carry them") as caught:
        simulate(plan, SimulateOptions(scenario()))
    assert "twofold simulate SPEC" in caught.value.hint
    (folder / "rows.csv").write_text(ROWS.replace("0.05", "soon"))
    with pytest.raises(TableError, match="`soon` is not a number above 0") as wrong:
        simulate(folder / "spec.yaml", SimulateOptions(scenario()))
    assert wrong.value.place is not None
    assert wrong.value.place.line == 3
    assert service.name == "eyes"
