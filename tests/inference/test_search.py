from dataclasses import replace

import numpy as np
import pytest

from twofold.core.errors import InputError
from twofold.inference.fleet import ReplicaCount
from twofold.inference.replica import replica_of
from twofold.inference.search import LAYOUT_FIELDS, candidate_layouts, search, servers_of, spanning_layouts
from twofold.inference.slo import Slo, TrafficClass, rate_limit
from twofold.inference.steady import Lengths

CHAT = TrafficClass("chat", Lengths(1155.0, 211.0, 0.8, 0.6), 100.0, Slo({"ttft_p95": 0.6, "tpot_p95": 0.04}))
LONG = TrafficClass("documents", Lengths(8000.0, 300.0, 0.4, 0.4), 6.0, Slo({"e2e_p95": 20.0}))
NIGHT = TrafficClass("batch", Lengths(1500.0, 300.0), 10.0, Slo(finish_within_s=6 * 3600.0))


@pytest.fixture(scope="module")
def offers(offer_of):
    return [offer_of("H100-SXM", 2.5), offer_of("H200", 3.0), offer_of("L40S", 0.9), offer_of("L4", 0.5)]


def test_the_search_equals_brute_force(variant_of, offer_of):
    variant, offer = variant_of("llama-3.1-8b"), offer_of("H100-SXM", 2.5, ("bf16",))
    found = search([variant], [CHAT], [offer])
    layouts = candidate_layouts(variant.shape, offer.replica_accelerators_max)
    best = np.inf
    for index in range(len(layouts["tp"])):
        one = replace(
            replica_of(variant.shape, offer.cluster, offer.engine, "bf16"),
            **{name: float(column[index]) for name, column in layouts.items()},
        )
        limit = float(rate_limit(one, CHAT).requests_per_s)
        if limit > 1:
            best = min(best, ReplicaCount.of(CHAT.rate_per_s, limit).total * float(one.accelerator_count))
    assert found.best.accelerators == best
    assert found.best.usd_per_h == pytest.approx(best * 2.5)


def test_every_class_is_met_at_its_share_of_the_peak(variant_of, offers):
    found = search([variant_of("llama-3.1-70b")], [CHAT, LONG], offers, zones=3)
    assert {name for pool in found.best.pools for name in pool.classes} == {"chat", "documents"}
    for pool in found.best.pools:
        assert pool.count.needed * pool.limit_per_s >= pool.peak_per_s
        if pool.classes == ("chat",):
            assert pool.served.ttft.p95_s <= 0.6
            assert pool.served.tpot.p95_s <= 0.04


def test_the_best_is_the_cheapest_and_every_other_offer_says_why_not(variant_of, offers):
    found = search([variant_of("llama-3.1-70b")], [CHAT], offers)
    assert all(fleet.usd_per_h >= found.best.usd_per_h for fleet in found.alternatives)
    names = {found.best.pools[0].offer} | {loser.offer for loser in found.losers}
    assert names == {offer.name for offer in offers}
    assert "misses" in next(loser.detail for loser in found.losers if loser.offer == "L4")


def test_nothing_meets_a_promise_below_physics_and_the_binding_one_is_named(variant_of, offers):
    hopeless = replace(CHAT, slo=Slo({"tpot_p95": 1e-4}))
    found = search([variant_of("llama-3.1-70b")], [hopeless], offers)
    assert found.best is None
    assert "TPOT p95" in found.binding
    assert found.would_fix


def test_a_model_that_fits_nowhere_is_told_in_memory(variant_of, offer_of):
    found = search([variant_of("deepseek-v3")], [CHAT], [offer_of("L4", 0.5, ("bf16",))])
    assert found.best is None
    assert found.binding.startswith("memory")
    assert found.refused["memory"] == found.candidates


def test_a_batch_class_is_sized_by_its_window(variant_of, offers):
    short = replace(NIGHT, slo=Slo(finish_within_s=3 * 3600.0))
    six, three = (search([variant_of("llama-3.1-70b")], [each], offers) for each in (NIGHT, short))
    assert three.best.pools[0].peak_per_s == pytest.approx(2 * six.best.pools[0].peak_per_s)
    assert three.best.usd_per_h > six.best.usd_per_h


def test_a_smaller_variant_wins_when_it_is_cheaper(variant_of, offers):
    large, small = variant_of("llama-3.1-70b"), replace(variant_of("llama-3.1-8b"), quality_note="distilled")
    alone, both = search([large], [CHAT], offers), search([large, small], [CHAT], offers)
    assert both.best.usd_per_h < alone.best.usd_per_h / 2
    assert both.best.pools[0].variant == "llama-3.1-8b"


def test_hardware_without_a_price_ranks_behind_hardware_with_one(variant_of, offer_of):
    found = search(
        [variant_of("llama-3.1-8b")], [CHAT], [offer_of("H200", None), offer_of("A100-80GB", 50.0)]
    )
    assert found.best.pools[0].offer.startswith("A100")
    assert found.alternatives[0].usd_per_h is None


def test_a_thousand_requests_per_second_are_a_matter_of_replicas(variant_of, offers):
    found = search([variant_of("llama-3.1-8b")], [replace(CHAT, rate_per_s=1000.0)], offers, zones=3)
    pool = found.best.pools[0]
    assert pool.count.needed > 5
    assert pool.served.ttft.p95_s <= 0.6


def test_one_pool_for_all_classes_is_compared_with_their_own(variant_of, offers):
    found = search([variant_of("llama-3.1-70b")], [CHAT, LONG], offers)
    assert found.best.merged_accelerators is not None
    assert found.best.accelerators == min(found.best.merged_accelerators, found.best.separate_accelerators)


def test_a_search_over_nothing_is_refused(variant_of):
    with pytest.raises(InputError, match="needs"):
        search([variant_of("llama-3.1-8b")], [CHAT], [])


def joined(offer, counts=(2, 4, 8), engine="sglang"):
    return replace(offer, engine=replace(offer.engine, name=engine), server_counts=counts)


def test_a_model_that_fills_more_than_a_server_is_served_by_several_where_they_are_joined(
    variant_of, offer_of
):
    few = replace(CHAT, rate_per_s=5.0, slo=Slo({"tpot_p95": 0.2}))
    for name, formats in (("deepseek-v3", ("fp8",)), ("llama-3.1-405b", ("bf16",))):
        variant, alone = variant_of(name), offer_of("H100-SXM", 2.5, formats)
        assert search([variant], [few], [alone]).best is None
        pool = search([variant], [few], [joined(alone)]).best.pools[0]
        assert pool.accelerators == pool.count.total * float(pool.replica.accelerator_count)
        assert float(pool.replica.accelerator_count) >= 16


def test_experts_are_spread_over_servers_where_that_takes_fewer_and_not_for_little_traffic(
    variant_of, offer_of
):
    variant, offer = variant_of("kimi-k2"), offer_of("H200", 3.0, ("fp8",))  # leaves a server little cache
    for rate_per_s, spread in ((1.0, False), (50.0, True)):
        traffic = TrafficClass("chat", Lengths(2000.0, 1000.0), rate_per_s, Slo({"tpot_p95": 0.2}))
        narrow, wide = (search([variant], [traffic], [joined(offer, each)]).best for each in ((), (2, 4, 8)))
        assert (wide.accelerators < narrow.accelerators / 4) is spread
        sizes = [float(fleet.pools[0].replica.accelerator_count) for fleet in (narrow, wide)]
        assert sizes[0] <= 8 and (sizes[1] > 8) is spread
        if not spread:
            assert wide.pools[0].count == narrow.pools[0].count


def test_layouts_over_servers_are_as_many_as_the_engine_and_the_experts_allow(variant_of, offer_of):
    shape = variant_of("deepseek-v3").shape
    for engine, halves in (("sglang", {0.0, 1.0}), ("trtllm", {0.0})):
        offer = joined(offer_of("H100-SXM", 2.5), engine=engine)
        replica = replica_of(shape, offer.cluster, offer.engine, "fp8")
        found = spanning_layouts(replica, 8, (2, 18, 64), staged=False)
        assert set(found) == set(LAYOUT_FIELDS) and set(found["halved_fraction"]) == halves
        assert set(found["ep"]) == {16.0, 144.0}  # no more ranks than experts
        assert (found["ep"] == found["dp"]).all()
        assert list(servers_of(replace(replica, tp=1.0, pp=1.0, dp=np.array([8.0, 9.0])), 8)) == [1.0, 2.0]
    dense = replica_of(variant_of("llama-3.1-8b").shape, offer.cluster, offer.engine, "bf16")
    assert spanning_layouts(dense, 8, (2, 4), staged=False)["tp"].size == 0


def test_a_replica_of_many_servers_is_down_more_often_and_has_more_spares():
    spares = [ReplicaCount.of(100.0, 10.0, servers).spare for servers in (1, 4, 18)]
    assert spares == sorted(set(spares))
