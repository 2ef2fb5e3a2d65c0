from dataclasses import replace

import numpy as np
import pytest

from twofold.policy.gate.breaker import Circuit
from twofold.policy.gate.events import Effect, EjectReplica, ReadmitReplica, ReplicaAdded
from twofold.policy.gate.fleet_view import FleetView
from twofold.policy.gate.outliers import Outliers
from twofold.policy.gate.settings import Beliefs, GateSettings, OutlierSettings

SETTINGS = OutlierSettings(eject_s=30.0, eject_s_max=100.0)


def fleet(count: int) -> FleetView:
    view = FleetView(GateSettings(), Beliefs(0.001, 0.01))
    for number in range(count):
        view.add_replica(ReplicaAdded(f"r{number}", 8))
    return view


def run(
    view: FleetView, watch: Outliers, slow: dict[str, float], failing: dict[str, float], until_s: float,
    start_s: float = 0.0, seed: int = 1,
) -> list[tuple[float, Effect]]:  # fmt: skip
    """Each replica that is healthy ends a request per second; times are drawn about its own slowness."""
    draws, told = np.random.default_rng(seed), []
    for step in range(int(start_s), int(until_s)):
        now_s = float(step)
        for name, replica in view.replicas.items():
            if replica.healthy:
                times = draws.lognormal((-1.0, -4.0), (0.8, 0.3)) * slow.get(name, 1.0)
                failed = bool(draws.random() < failing.get(name, 0.01))
                watch.observe(name, now_s, failed=failed, ttft_s=times[0], tpot_s=times[1])
        if step % 5 == 0:
            for effect in watch.tick(view, now_s):
                told.append((now_s, effect))
                if isinstance(effect, EjectReplica):
                    view.replicas[effect.replica_id].ejected_until_s = effect.until_s
                elif isinstance(effect, ReadmitReplica):
                    view.replicas[effect.replica_id].ejected_until_s = None
    return told


def names(told: list[tuple[float, Effect]], kind: type) -> list[str]:
    return [effect.replica_id for _, effect in told if isinstance(effect, kind)]  # type: ignore[union-attr]


def test_a_fleet_of_equals_has_no_outliers() -> None:
    assert run(fleet(8), Outliers(SETTINGS), {}, {}, 600.0) == []


def test_a_fleet_that_is_slow_as_a_whole_has_no_outliers() -> None:
    assert run(fleet(4), Outliers(SETTINGS), dict.fromkeys(("r0", "r1", "r2", "r3"), 5.0), {}, 300.0) == []


@pytest.mark.parametrize(("slow", "failing"), [({"r2": 2.5}, {}), ({}, {"r2": 0.4})])
def test_a_replica_that_is_slow_or_fails_now_and_then_is_ejected(
    slow: dict[str, float], failing: dict[str, float]
) -> None:
    told = run(fleet(6), Outliers(SETTINGS), slow, failing, 60.0)
    assert names(told, EjectReplica) == ["r2"] and told[0][0] <= 50.0


def test_ejections_last_twice_as_long_each_time_up_to_their_limit_and_end_in_readmission() -> None:
    told = run(fleet(6), Outliers(SETTINGS), {"r2": 4.0}, {}, 900.0)
    lengths = [effect.until_s - at_s for at_s, effect in told if isinstance(effect, EjectReplica)]
    assert lengths[:4] == [30.0, 60.0, 100.0, 100.0]
    assert len(names(told, ReadmitReplica)) in (len(lengths), len(lengths) - 1)


def test_one_that_recovers_stays_and_is_forgiven_after_long_enough() -> None:
    view, watch = fleet(6), Outliers(SETTINGS)
    run(view, watch, {"r2": 4.0}, {}, 60.0)
    told = run(view, watch, {}, {}, 300.0, start_s=60.0)
    assert names(told, ReadmitReplica) == ["r2"] and not names(told, EjectReplica)
    told = run(view, watch, {"r2": 4.0}, {}, 400.0, start_s=300.0)
    at_s, first = told[0]
    assert isinstance(first, EjectReplica) and first.until_s - at_s == 30.0


def test_no_more_than_the_permitted_share_is_ever_out() -> None:
    view, watch = fleet(9), Outliers(SETTINGS)
    slow = {f"r{number}": 6.0 for number in range(4)}
    run(view, watch, slow, {}, 60.0)
    out = [name for name, replica in view.replicas.items() if replica.ejected_until_s is not None]
    assert len(out) == 3 and set(out) <= set(slow)


def test_those_that_survive_the_others_are_not_ejected_for_the_load_that_they_take_over() -> None:
    view, watch = fleet(3), Outliers(SETTINGS)
    run(view, watch, {}, {}, 60.0)
    for name in ("r0", "r1"):
        view.replicas[name].circuit = Circuit(until_s=9e9)
    assert run(view, watch, {"r2": 4.0}, {}, 300.0, start_s=60.0) == []


def test_who_is_lost_already_counts_to_the_permitted_share() -> None:
    view, watch = fleet(9), Outliers(SETTINGS)
    for name, spared in (("r5", "circuit"), ("r6", "circuit"), ("r7", "zone")):
        replica = view.replicas[name]
        replica.circuit = Circuit(until_s=9e9 if spared == "circuit" else None)
        replica.zone_lost = spared == "zone"
    slow = {f"r{number}": 6.0 for number in range(2)}
    assert run(view, watch, slow, {}, 60.0) == []
    view.replicas["r7"].zone_lost = False
    assert len(names(run(view, watch, slow, {}, 85.0, start_s=60.0), EjectReplica)) == 1


def test_who_is_lost_already_is_not_ejected_as_well_for_what_it_did_before() -> None:
    view, watch = fleet(6), Outliers(replace(SETTINGS, requests_min_count=10))
    assert run(view, watch, {"r2": 6.0}, {}, 14.0) == []
    view.replicas["r2"].circuit = Circuit(until_s=9e9)
    assert run(view, watch, {}, {}, 60.0, start_s=14.0) == []


def test_a_difference_that_may_be_chance_ejects_nobody() -> None:
    """Thirty answers each, of times that vary by far more than the limit: their means differ beyond it."""
    wide, ejected = replace(SETTINGS, window_s=1e6), 0
    for seed in range(40):
        view, watch, draws = fleet(4), Outliers(wide), np.random.default_rng(seed)
        for name in view.replicas:
            for tpot_s in draws.lognormal(-4.0, 1.5, 30):
                watch.observe(name, 0.0, failed=False, tpot_s=float(tpot_s))
        ejected += len(watch.tick(view, 0.0) + watch.tick(view, 5.0))
    assert ejected <= 2


def test_two_replicas_cannot_say_which_is_the_outlier() -> None:
    assert run(fleet(2), Outliers(SETTINGS), {"r1": 9.0}, {}, 200.0) == []


@pytest.mark.parametrize("of", [{"version": "new"}, {"model": "large"}, {"pool": "bulk"}])
def test_a_replica_of_another_version_model_or_pool_is_not_compared_with_the_rest(of: dict[str, str]) -> None:
    view = fleet(5)
    view.add_replica(ReplicaAdded("r4", 8, **of))
    assert run(view, Outliers(SETTINGS), {"r4": 9.0}, {}, 200.0) == []


def test_replicas_that_are_gone_are_forgotten() -> None:
    view, watch = fleet(4), Outliers(SETTINGS)
    run(view, watch, {}, {}, 20.0)
    view.remove_replica(view.replicas["r3"])
    watch.tick(view, 25.0)
    assert set(watch._records) == {"r0", "r1", "r2"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"tick_s": 0.0},
        {"slow_ratio": 1.0},
        {"peers_min_count": 1},
        {"ejected_max_fraction": 1.0},
        {"eject_s": 10.0, "eject_s_max": 5.0},
    ],
)
def test_settings_that_could_not_work_are_our_mistake(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        OutlierSettings(**wrong)  # type: ignore[arg-type]
