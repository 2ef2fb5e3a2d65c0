from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.inference import regimes
from twofold.inference.curve import load_axis
from twofold.inference.slo import (
    RateLimit,
    Slo,
    TrafficClass,
    bottleneck,
    limit_within,
    limits_within,
    loads_alone,
    loads_shared,
    rate_limit,
    relieved,
    shared_load,
    shared_rate_limit,
)
from twofold.inference.steady import Lengths

CHAT = TrafficClass("chat", Lengths(1155.0, 211.0, 0.8, 0.6), 40.0, Slo({"ttft_p95": 0.6, "tpot_p95": 0.04}))
LONG = TrafficClass("documents", Lengths(8000.0, 300.0, 0.4, 0.4), 4.0, Slo({"e2e_p95": 20.0}))


@pytest.fixture(scope="module")
def replica(replica_of):
    return replica_of("llama-3.1-70b", "H200", "fp8", tp=4.0)


def test_the_limit_holds_the_promise_and_a_tenth_more_breaks_it(replica):
    limit = rate_limit(replica, CHAT)
    at, above = (shared_load(replica, (CHAT,), CHAT, factor * limit.requests_per_s) for factor in (1.0, 1.1))
    targets = {"ttft_p95": 0.6, "tpot_p95": 0.04}

    def worst(served):
        return max(served.ttft.p95_s / targets["ttft_p95"], served.tpot.p95_s / targets["tpot_p95"])

    assert worst(at) == pytest.approx(1.0, rel=0.06)
    assert worst(above) > 1.0


@given(slack=st.floats(1.0, 5.0))
@settings(max_examples=15, deadline=None)
def test_a_looser_promise_never_lowers_the_limit(replica, slack):
    tight, loose = CHAT, replace(CHAT, slo=Slo({"ttft_p95": 0.6 * slack, "tpot_p95": 0.04 * slack}))
    assert rate_limit(replica, loose).requests_per_s >= rate_limit(replica, tight).requests_per_s - 1e-9


@pytest.mark.parametrize("resource", ["bandwidth", "compute", "capacity", "link", "host"])
def test_more_of_a_resource_never_lowers_the_limit(replica, resource):
    assert (
        rate_limit(relieved(replica, resource), CHAT).requests_per_s
        >= 0.995 * rate_limit(replica, CHAT).requests_per_s
    )


def test_a_promise_below_physics_leaves_no_rate_and_names_what_binds(replica):
    limit = rate_limit(replica, replace(CHAT, slo=Slo({"tpot_p95": 1e-4})))
    assert limit.requests_per_s == 0
    assert str(limit.binding) == "tpot_p95"
    assert limit.idle_s > 1e-4


def test_without_a_promise_only_throughput_binds(replica):
    limit = rate_limit(replica, replace(CHAT, slo=Slo()))
    assert str(limit.binding) == "throughput"
    assert limit.requests_per_s == limit.saturation_requests_per_s


def test_the_knee_lies_below_saturation(replica):
    limit = rate_limit(replica, replace(CHAT, slo=Slo()))
    assert 0 < limit.knee_requests_per_s < limit.saturation_requests_per_s


def test_a_sweep_finds_what_each_candidate_finds_alone(replica_of):
    tp = np.array([2.0, 4.0, 8.0])
    swept = rate_limit(load_axis(replica_of("llama-3.1-70b", "H200", "fp8", tp=tp)), CHAT)
    alone = [
        float(rate_limit(replica_of("llama-3.1-70b", "H200", "fp8", tp=size), CHAT).requests_per_s)
        for size in tp
    ]
    assert np.allclose(swept.requests_per_s, alone)


@pytest.mark.parametrize("classes", [(CHAT,), (CHAT, LONG)])
def test_several_devices_and_formats_are_found_at_once_as_each_alone(replica_of, classes):
    def loads():
        for device, weights in (("H200", "fp8"), ("H200", "bf16"), ("H100-SXM5-80GB", "fp8")):
            sweep = load_axis(replica_of("llama-3.1-70b", device, weights, tp=np.array([4.0, 8.0])))
            yield loads_shared(sweep, classes) if len(classes) > 1 else loads_alone(sweep, *classes)

    slos = [each.slo for each in classes]
    together, alone = list(loads()), [limit_within(each, slos) for each in loads()]
    limits_within(together, slos)
    assert all(each.limits for each in together)
    for found, own in zip((limit_within(each, slos) for each in together), alone, strict=True):
        for name in (each.name for each in fields(RateLimit)):
            np.testing.assert_array_equal(getattr(found, name), getattr(own, name), name)


def test_long_prompts_in_the_mix_cost_the_chat_its_rate(replica):
    alone = rate_limit(replica, CHAT).requests_per_s
    together = shared_rate_limit(replica, (CHAT, LONG)).requests_per_s
    assert 0 < together < alone


def test_the_bottleneck_is_what_gains_most(replica):
    gains = bottleneck(replica, CHAT)
    assert set(gains) == {"bandwidth", "compute", "capacity", "link", "host"}
    assert list(gains.values()) == sorted(gains.values(), reverse=True)
    assert next(iter(gains.values())) > 0.03


def test_within_the_shared_limit_every_class_gets_what_it_was_promised(replica):
    classes = (CHAT, LONG)
    limit = float(np.max(shared_rate_limit(load_axis(replica), classes).requests_per_s))
    chat, documents = (shared_load(replica, classes, own, 0.95 * limit) for own in classes)
    assert chat.ttft.p95_s <= 0.6 and chat.tpot.p95_s <= 0.04
    assert documents.e2e.p95_s <= 20.0
    assert documents.ttft.mean_s > chat.ttft.mean_s  # eight thousand tokens to prefill against one
    assert documents.tpot.mean_s == chat.tpot.mean_s  # one batch


def test_a_class_that_shares_with_itself_is_alone(replica):
    alone = regimes.open_loop(replica, CHAT.lengths, 10.0, fleet_per_s=CHAT.rate_per_s)
    shared = shared_load(replica, (CHAT,), CHAT, 10.0)
    assert shared.ttft.p95_s == pytest.approx(alone.ttft.p95_s)
    assert shared.e2e.p50_s == pytest.approx(alone.e2e.p50_s, rel=0.05)
