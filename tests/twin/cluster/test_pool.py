"""One pool for training and serving: more training by night, and serving as before."""

from functools import partial
from math import inf

import numpy as np
import pytest

from bench.worlds.serving_day import accelerators_for, day_profile, serving_load
from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.settings import ClusterSettings
from twofold.rehearse.training import compare_pool
from twofold.twin.cluster.cluster import simulate_cluster
from twofold.twin.cluster.cluster_types import (
    CheckpointModel,
    CheckpointStore,
    ClusterWorld,
    NodeGroup,
    ServingLoad,
    StepModel,
    Use,
)
from twofold.twin.cluster.figures import ServingAccount
from twofold.twin.cluster.jobs import JobArrival

DAY_S = 86_400.0
CAPACITY = tuple((8 * count, float(count)) for count in range(1, 21))  # one request per second and node


def test_a_table_of_capacity_gives_the_fewest_accelerators() -> None:
    assert accelerators_for(0.5, CAPACITY) == 8
    assert accelerators_for(1.0, CAPACITY) == 8
    assert accelerators_for(1.01, CAPACITY) == 16
    assert accelerators_for(40.0, CAPACITY) == 320  # beyond the table: as its last row


def test_a_day_has_its_peak_and_its_trough() -> None:
    profile = day_profile(0.2, peak_hour=15.0)
    assert max(profile) == pytest.approx(1.0, abs=0.01)
    assert min(profile) == pytest.approx(0.2, abs=0.01)
    assert max(range(24), key=profile.__getitem__) in (14, 15)


def test_what_is_asked_for_is_never_less_than_what_is_needed() -> None:
    load = serving_load(day_profile(0.2), 20.0, CAPACITY, days=3)

    def at(steps: tuple[tuple[float, int], ...], now_s: float) -> int:
        return next(count for at_s, count in reversed(steps) if at_s <= now_s)

    for now_s in np.arange(300.0, 3 * DAY_S, 1700.0):
        assert at(load.asked, now_s) >= at(load.needed, now_s)


def test_missing_accelerators_are_counted_while_they_are_missing() -> None:
    account = ServingAccount(ServingLoad((), ()))
    account.change(0.0, needed=16, ready=8)
    account.change(100.0, ready=8)
    account.change(200.0, slowdown_factor=2.0)
    figures = account.figures(300.0)
    assert figures.shortfall_s == 200.0  # none ready enough at first, too slow at last
    assert figures.shortfall_h == pytest.approx((8 * 100 + 8 * 100) / 3600)
    assert figures.needed_h == pytest.approx(16 * 300 / 3600)
    assert figures.slowdown_factor == pytest.approx((8 + 16 + 32) / (8 + 16 + 16))


def pool(seed: int = 0, **steps: float) -> ClusterWorld:
    """32 nodes; serving needs up to about 60 % of them by day and a fifth of that by night."""
    return ClusterWorld(
        nodes=tuple(NodeGroup(f"r{number}n", 8, 8, ("z", f"r{number}")) for number in range(4)),
        new_brain=partial(ClusterBrain, ClusterSettings()),
        horizon_s=DAY_S,
        checkpoint=CheckpointModel(1e9, snapshot_s=5.0, restart_s=120.0),
        store=CheckpointStore(50e9),
        serving=serving_load(day_profile(0.2), 20.0, CAPACITY, days=1, lead_s=2400.0, seed=seed),
        step=StepModel(**steps),
        seed=seed,
    )


def jobs() -> list[JobArrival]:
    generator = np.random.default_rng(0)
    return [
        JobArrival(
            0.0,
            float(generator.lognormal(10.0, 0.7)),
            int(generator.choice([8, 16, 32, 64])),
            minimum_count=8 if generator.random() < 0.5 else None,
        )
        for _ in range(60)
    ]


def test_sharing_by_the_day_trains_40_percent_more_at_unchanged_serving() -> None:
    for seed in range(2):
        figures, results = compare_pool(pool(seed), jobs)
        assert figures.training_gain_fraction > 0.4
        assert figures.shared_shortfall_s == figures.split_shortfall_s == 0
        assert figures.shared_utilisation_fraction > figures.split_utilisation_fraction + 0.1
        for result in results:
            assert sum(result.figures.accelerator_h.values()) == pytest.approx(result.capacity_h, rel=1e-12)


def test_neighbours_slow_each_other_and_both_are_told() -> None:
    steps = {"training_interference_fraction": 0.5, "serving_interference_fraction": 0.2}
    result = simulate_cluster(pool(**steps), jobs())
    assert result.serving is not None
    assert 1.0 < result.figures.slowdown_factor < 1 + 0.2 * 0.5  # a fifth of a step communicates
    assert 1.0 < result.serving.slowdown_factor < 1.2
    apart = simulate_cluster(pool(), jobs())
    assert apart.serving is not None
    assert apart.figures.slowdown_factor == apart.serving.slowdown_factor == 1.0


def test_serving_alone_gets_what_it_asks_for_after_its_start() -> None:
    load = ServingLoad(needed=((0.0, 0), (600.0, 64)), asked=((0.0, 64),), start_s=60.0)
    world = ClusterWorld(
        nodes=(NodeGroup("n", 16),),
        new_brain=partial(ClusterBrain, ClusterSettings()),
        horizon_s=DAY_S,
        serving=load,
        checkpoint=CheckpointModel(),
        store=CheckpointStore(inf),
    )
    result = simulate_cluster(world, ())
    assert result.serving is not None
    assert result.serving.shortfall_s == 0
    assert result.figures.accelerator_h[Use.SERVING] >= 64 * 24
