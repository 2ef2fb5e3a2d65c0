"""Nodes of a rehearsed cluster fail as its scenario says, or the scenario is refused."""

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.simulated import TrainingFigures
from twofold.contracts.spec.scenario import Scenario, parse_scenario
from twofold.core.errors import InputErrors, TwofoldError
from twofold.perf.constants import load_constants
from twofold.policy.cluster.events import FaultCause
from twofold.rehearse.faults import node_losses
from twofold.rehearse.training import rehearse_training
from twofold.twin.cluster.cluster_types import NodeLoss

CLUSTER = "{nodes: 4, failures: 1e-9 /d, given: [{accelerators: 24, for: 2 h, team: plan}]}"


def scenario(faults: str = "[]", cluster: str = CLUSTER, more: str = "") -> Scenario:
    return parse_scenario(f"horizon: 6 h\ncluster: {cluster}\nfaults: {faults}\n{more}", "s.yaml")


def figures(read: Scenario) -> TrainingFigures:
    return rehearse_training((), read, 0, load_catalog(), load_constants())


def test_a_failure_of_nodes_hits_their_job_and_is_told_by_its_cause() -> None:
    sound = figures(scenario())
    back = figures(scenario("{kind: node-failure, at: 1 h, nodes: 3, cause: power, back_after: 1 h}"))
    lost = figures(scenario("{kind: node-failure, at: 1 h, nodes: 2}"))
    assert not sound.failures_by_cause and not sound.failure_count
    assert back.failures_by_cause == {"power": 3} and back.failure_count >= 1
    assert lost.failures_by_cause == {"host": 2}
    assert sound.outcomes == back.outcomes == {"completed": 1}
    assert back.duration_s > sound.duration_s + 3600
    assert lost.outcomes == {"queued": 1}  # two nodes are left for a gang of three
    assert lost.duration_s == 6 * 3600


def test_the_first_nodes_fail_for_good_unless_they_are_said_to_come_back() -> None:
    faults = scenario(
        "[{kind: node-failure, at: 1 h, nodes: 2, cause: host, back_after: 1 h}, "
        "{kind: node-failure, at: 2 h}]"
    ).faults
    assert node_losses(faults, 4, 120.0, 21_600.0) == (
        NodeLoss(3600.0, "node-0", FaultCause.HOST, 3600.0),
        NodeLoss(3600.0, "node-1", FaultCause.HOST, 3600.0),
        NodeLoss(7200.0, "node-0"),
    )


def test_what_hangs_and_nobody_tells_of_is_found_by_its_silence() -> None:
    sound = figures(scenario())
    hung = figures(scenario("{kind: node-hang, at: 1 h}"))
    assert hung.effects["StopJob"] == 1 and hung.outcomes == {"completed": 1} == sound.outcomes
    assert not hung.failures_by_cause and hung.failure_count == 1  # nothing failed that anybody was told of
    assert hung.duration_s > sound.duration_s + 300.0  # so long a job may say nothing


def test_a_device_that_is_slow_is_noticed_and_left_where_another_node_is_free() -> None:
    slow = CLUSTER.replace("nodes: 4", "nodes: 4, slow: [{node: 0, device: 3x}, {node: 1, device: 1.2x}]")
    assert figures(scenario()).effects.get("SlowNode") is None
    left = figures(scenario(cluster=slow))
    assert left.effects["SlowNode"] >= 1 and left.effects["SwapNode"] == 1
    kept = figures(scenario(cluster=slow.replace("nodes: 4", "nodes: 3")))
    assert kept.effects["SlowNode"] == 1 and "SwapNode" not in kept.effects
    assert left.duration_s < kept.duration_s / 1.5


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("{kind: node-hang, at: 1 h, nodes: 5}", "5 nodes are to hang, where the cluster has 4"),
        ("{kind: node-failure, at: 1 h, nodes: 5}", "5 nodes are to fail, where the cluster has 4"),
        ("{kind: node-failure, at: 1 h, cause: gpu}", "`gpu` is no cause of a node-failure"),
        ("{kind: node-failure, at: 1 h, back_after: 1 s}", "has not been missed yet"),
    ],
)
def test_a_failure_that_the_cluster_cannot_have_is_refused(fault: str, why: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        figures(scenario(fault))
    assert why in caught.value.message


def test_a_failure_after_a_week_that_nobody_wrote_is_refused() -> None:
    faults = parse_scenario("cluster: {nodes: 4}\nfaults: {kind: node-failure, at: 8 d}", "s.yaml").faults
    with pytest.raises(TwofoldError, match=r"begins after the 7\.0 d that are simulated"):
        node_losses(faults, 4, 120.0, 7 * 86_400.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("faults: {kind: node-failure, at: 1 h}", "befalls a training cluster, and this scenario has none"),
        ("faults: {kind: node-hang, at: 1 h}", "`node-hang` befalls a training cluster, and this scenario"),
        ("cluster: {}\nfaults: {kind: zone-loss, at: 1 h}", "a `zone-loss` befalls serving"),
        ("cluster: {}\nfaults: {kind: release, at: 1 h, errors: 90 %}", "a `release` befalls serving"),
        *(
            (f"cluster: {{}}\n{key}", f"`{key.partition(':')[0]}` is of serving")
            for key in (
                "warm_up: 1 min",
                "traffic: {scale: 3x}",
                "clients: {retry: immediate}",
                "fleet: {replicas: 1}",
                "engine: {max_batch: 8}",
                "policies: {scaling: on}",
                "beliefs: {error: 90 %}",
                "metrics: {every: 1 s}",
            )
        ),
    ],
)
def test_what_a_cluster_or_serving_cannot_use_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputErrors) as caught:
        parse_scenario(text, "s.yaml")
    assert why in str([error.message for error in caught.value.errors])
