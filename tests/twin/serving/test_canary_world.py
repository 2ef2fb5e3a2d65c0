"""Releases tried in the serving world, on engines that batch: an equal one passes, worse ones do not."""

from functools import partial

from twofold.policy.gate.settings import (
    Beliefs,
    CanarySettings,
    GateSettings,
    HedgeSettings,
    RolloutSettings,
    Routing,
    Stage,
)
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings
from twofold.twin.serving.fault_types import Release
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.fleet_types import FleetResult, FleetWorld, ReplicaGroup, ReplicaModel
from twofold.twin.serving.step_table import StepTable
from twofold.twin.serving.traffic import Lengths, TrafficModel, generate

# A step takes 10 ms, and more with what it reads and with how many it writes for.
TABLE = StepTable(
    [0.0, 8192.0],
    [0.0, 256.0],
    [0.0, 8192.0],
    [[[0.01, 0.01], [0.06, 0.06]], [[0.17, 0.17], [0.22, 0.22]]],
)
GATE = GateSettings(
    routing=Routing.PREFIX,
    hedge=HedgeSettings(),
    canary=CanarySettings((Stage(0.1, 50), Stage(0.25, 100), Stage(0.5, 300))),
    rollout=RolloutSettings(tick_s=1.0),
)


def tried(release: Release, seed: int) -> FleetResult:
    """Four replicas, of which the release gets one at first, at two fifths of the others' load."""
    world = FleetWorld(
        models={("", ""): ReplicaModel(partial(Engine, TABLE, EngineSettings()), in_flight_limit=64)},
        replicas=(ReplicaGroup(4),),
        gate=GATE,
        beliefs=Beliefs(2e-5, 2e-4),
        faults=(release,),
        error_fraction=0.002,
        seed=seed,
    )
    traffic = TrafficModel(40.0, Lengths(500.0, 1200.0), Lengths(60.0, 150.0))
    return simulate_fleet(world, generate(traffic, seed, 140.0))


def test_an_equal_release_is_promoted_though_it_begins_on_one_replica_with_little_load() -> None:
    result = tried(Release(2.0, "next"), 1)
    assert (
        result.figures.effects.get("PromoteRelease") == 1 and "RollBackRelease" not in result.figures.effects
    )


def test_a_release_that_writes_15_percent_slower_is_rolled_back() -> None:
    result = tried(Release(2.0, "next", step_factor=1.15), 1)
    assert (
        result.figures.effects.get("RollBackRelease") == 1 and "PromoteRelease" not in result.figures.effects
    )
