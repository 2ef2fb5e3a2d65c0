"""Ways that nobody decided on: what they carry is what the same way carries when it is asked for directly."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from twofold.inference.choices import apart, drafted
from twofold.inference.fleet import ReplicaCount
from twofold.inference.iteration import iteration_s, tokens_per_step
from twofold.inference.parted import parted
from twofold.inference.replica import Replica
from twofold.inference.search import PoolChoice, search
from twofold.inference.slo import Slo, TrafficClass, rate_limit
from twofold.inference.steady import Lengths
from twofold.perf.types import one

CHAT = TrafficClass("chat", Lengths(1155.0, 211.0, 0.8, 0.6), 100.0, Slo({"ttft_p95": 0.6, "tpot_p95": 0.03}))
LONG = TrafficClass("documents", Lengths(8000.0, 300.0, 0.4, 0.4), 6.0, Slo({"e2e_p95": 20.0}))
SIZED = partial(ReplicaCount.of, zones=2, availability_fraction=0.999)


@pytest.fixture(scope="module")
def pools(variant_of, offer_of) -> dict[str, PoolChoice]:
    found = search(
        [variant_of("llama-3.1-70b")], [CHAT, LONG], [offer_of("H100-SXM", 2.5, ("fp8",))], zones=2
    )
    separate = {pool.classes[0]: pool for pool in found.best.pools}
    assert set(separate) == {"chat", "documents"}
    return separate


def on_fabric(pool: PoolChoice, factor: float) -> PoolChoice:
    cluster = pool.replica.cluster
    network = replace(cluster.network, nic_bytes_per_s=cluster.network.nic_bytes_per_s * factor)
    return replace(pool, replica=replace(pool.replica, cluster=replace(cluster, network=network)))


@pytest.mark.parametrize("classes", [(CHAT,), (LONG,), (CHAT, LONG)])
def test_workers_apart_meet_every_goal_when_the_whole_is_priced(pools, classes):
    """What an answer saves by them is never less than what the same workers then give (issue 17)."""
    pool = pools[classes[0].name]
    peak = sum(each.rate_per_s for each in classes)
    way = apart(replace(pool, peak_per_s=peak, count=SIZED(peak, 2.0)), classes, SIZED, 8)
    assert way is not None
    counts = way.prefill_count, way.decode_count
    rates = [one(each) for each in way.limits(way.prefill, way.decode)]
    for count, rate in zip(counts, rates, strict=True):
        assert count == SIZED(peak, rate)
    for own in classes:
        found = parted(way.prefill, way.decode, classes, own, peak, *(count.needed for count in counts))
        for name, limit_s in own.slo.latencies_s.items():
            metric, _, which = name.partition("_")
            assert one(getattr(getattr(found, metric), f"{which}_s")) <= limit_s
    sizes = [one(each.accelerator_count) for each in (way.prefill, way.decode)]
    assert way.accelerators == sum(size * count.total for size, count in zip(sizes, counts, strict=True))


def test_a_slower_fabric_never_needs_fewer_workers(pools):
    found = [apart(on_fabric(pools["documents"], factor), (LONG,), SIZED, 8) for factor in (1.0, 0.2, 0.05)]
    counts = [np.inf if each is None else each.accelerators for each in found]
    assert counts == sorted(counts) and np.isfinite(counts[0])
    assert found[1] is None or found[1].transfer_s > found[0].transfer_s
    assert apart(on_fabric(pools["documents"], 1e-4), (LONG,), SIZED, 8) is None


def test_workers_are_as_large_as_they_must_be(pools):
    way = apart(pools["documents"], (LONG,), SIZED, 8, least=8)
    assert way is None or {one(way.prefill.accelerator_count), one(way.decode.accelerator_count)} == {8.0}


def test_two_workers_are_never_fewer_than_one_replica(pools):
    assert apart(replace(pools["chat"], count=ReplicaCount(1, 0, 1)), (CHAT,), SIZED, 8) is None


def test_drafts_carry_what_the_same_replica_carries_with_them(pools):
    pool = pools["documents"]
    tokens, rates = drafted(pool, (LONG,), (0.5, 0.7, 0.85), 1.0)
    assert tokens > 0 and rates[0] <= rates[1] <= rates[2] and rates[1] > pool.limit_per_s
    drafts = {"draft_tokens": float(tokens), "draft_accept_fraction": 0.7, "draft_layers": 1.0}
    directly = one(rate_limit(replace(pool.replica, **drafts), LONG).requests_per_s)
    assert rates[1] == pytest.approx(directly, rel=1e-6)


def test_drafts_that_are_never_accepted_are_not_taken(pools):
    pool = pools["documents"]
    assert drafted(pool, (LONG,), (0.0, 0.0, 0.0), 1.0) == (0, (pool.limit_per_s,) * 3)


@pytest.mark.parametrize("accept", [0.3, 0.6, 0.9])
def test_longer_drafts_give_ever_less_and_are_worth_more_where_more_is_accepted(pools, accept):
    replica = replace(pools["chat"].replica, draft_tokens=np.arange(0.0, 9.0), draft_accept_fraction=accept)
    gained = np.asarray(tokens_per_step(replica))
    assert gained[0] == 1.0 and np.all(np.diff(gained) > 0) and np.all(np.diff(gained, 2) < 0)
    assert gained[-1] < 1.0 / (1.0 - accept)
    lengths = [drafted(pools["documents"], (LONG,), (each,) * 3, 1.0)[0] for each in (0.1, 0.4, 0.7)]
    assert lengths == sorted(lengths)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "deepseek-v3", "qwen3.5-35b-a3b"])
def test_a_head_of_one_layer_costs_the_small_part_of_a_step_that_published_ones_do(replica_of, model):
    """EAGLE, Medusa and multi-token prediction: 1 to 25 % of a step for each drafted token."""
    replica: Replica = replica_of(model, "H200", "fp8")
    bare = replace(replica, draft_tokens=0.0)
    heads = [replace(replica, draft_tokens=1.0, draft_layers=layers) for layers in (0.0, 1.0, 2.0)]
    plain, free, own, two = (one(iteration_s(each, 0.0, 0.0, 8.0, 2000.0).total_s) for each in (bare, *heads))
    assert free < own < two
    assert 0.01 < (own - free) / plain < 0.25
