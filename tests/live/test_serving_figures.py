"""Quantiles with ranges that hold, and the knee among rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.results.served import Latency, Ranged, ServedLoad
from twofold.live.loads.serving_figures import growth_of, knee_of, latency_of, ranks


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_nine_of_ten_ranges_hold_the_true_quantile_whatever_the_distribution(share: float) -> None:
    random = np.random.default_rng(7)
    low, high = ranks(400, share)
    assert low is not None and high is not None
    for draw, quantile in ((random.exponential, -np.log1p(-share)), (random.random, share)):
        held = 0
        for _ in range(2000):
            ordered = np.sort(draw(size=400))
            held += ordered[low - 1] <= quantile <= ordered[high - 1]
        assert 0.88 <= held / 2000 <= 0.98  # at least 90 % by the law, a little more as ranks are whole


@given(count=st.integers(1, 2000), share=st.sampled_from([0.5, 0.95, 0.99]))
def test_a_range_narrows_with_requests_and_lies_among_them(count: int, share: float) -> None:
    low, high = ranks(count, share)
    assert low is None or 1 <= low <= count
    assert high is None or (low or 1) <= high <= count
    if low and high:
        more_low, more_high = ranks(4 * count, share)
        assert more_low and more_high
        assert (more_high - more_low) / (4 * count) <= (high - low) / count + 1e-9


def test_a_tail_is_open_above_until_enough_requests_came() -> None:
    few, enough = latency_of([float(n) for n in range(1, 299)]), latency_of([float(n) for n in range(1, 300)])
    assert few and few.p99_s and few.p99_s.high is None and few.p99_s.low is not None
    assert enough and enough.p99_s and enough.p99_s.high == 299.0
    assert latency_of([]) is None
    alone = latency_of([2.0])
    assert alone and alone.p50_s == Ranged(2.0) and alone.mean_s == 2.0


def load(rate_per_s: float, p95_s: float, **other: float) -> ServedLoad:
    sent = round(100 * rate_per_s)
    told = {"finished": sent, "refused": 0, "failed": 0, "requests_per_s": rate_per_s} | other
    latency = Latency(p95_s / 2, Ranged(p95_s / 2), Ranged(p95_s), Ranged(p95_s))
    return ServedLoad(
        f"open-{rate_per_s:g}", "open", None, rate_per_s, sent=sent, ttft=latency, e2e=latency,
        duration_s=100.0, **told,
    )  # fmt: skip


def test_the_knee_is_the_largest_rate_up_to_which_all_held() -> None:
    knee = knee_of([load(4, 0.19), load(1, 0.1), load(8, 0.3), load(16, 0.15)], None, "ttft")
    assert knee and (knee.rate_per_s, knee.broken_per_s) == (4, 8)  # 16 is above one that broke: by chance
    assert "300 ms of 200" in knee.why and "twice that at 1/s" in knee.method
    told = knee_of([load(1, 0.1), load(4, 0.19), load(8, 0.3)], 0.35, "e2e")
    assert told and (told.rate_per_s, told.broken_per_s) == (8, None) and "350 ms" in told.method
    below = knee_of([load(1, 0.1)], 0.05, "ttft")
    assert below and (below.rate_per_s, below.broken_per_s) == (None, 1)
    assert knee_of([ServedLoad("closed-4", "closed", 4.0)], None, "ttft") is None


def test_refusals_and_a_growing_queue_break_a_rate_whatever_its_p95() -> None:
    lost = knee_of([load(1, 0.1), load(4, 0.1, refused=8)], 1.0, "ttft")
    assert lost and lost.broken_per_s == 4 and "2.0 % refused" in lost.why
    slow = knee_of([load(1, 0.1), load(4, 0.1, requests_per_s=3.5)], 1.0, "ttft")
    assert slow and slow.broken_per_s == 4 and "finished" in slow.why
    kept = knee_of([load(1, 0.1), load(4, 0.1, refused=4)], 1.0, "ttft")
    assert kept and kept.rate_per_s == 4


def test_a_rate_that_the_loader_itself_could_not_send_says_so() -> None:
    late = knee_of([load(1, 0.1), load(4, 0.9, lag_s_p99=0.5)], None, "ttft")
    assert late and "the loader was late" in late.why


def held(tokens: float, memory_bytes: float) -> ServedLoad:
    return ServedLoad("", "closed", memory_peak_bytes=round(memory_bytes), peak_held_tokens=tokens)


def test_memory_that_grows_by_a_token_is_found_whatever_lies_below_it() -> None:
    loads = [held(tokens, 2e9 + 57344 * tokens) for tokens in (500, 4000, 1000, 2000)]
    found = growth_of(loads)
    assert found and found.bytes_per_token == pytest.approx(57344, rel=1e-6)
    assert found.base_bytes == pytest.approx(2e9) and found.load_count == 4 and found.worst_fraction < 1e-6
    off = growth_of([*loads, held(3000, 2e9 + 57344 * 3000 + 50e6)])
    assert off and 0.05 < off.worst_fraction < 0.5 and off.bytes_per_token > found.bytes_per_token
    flat = growth_of([held(tokens, 2e9) for tokens in (500, 1000, 2000)])
    assert flat and flat.bytes_per_token == pytest.approx(0.0, abs=1e-3)


def test_no_line_is_drawn_through_too_few_loads_or_those_that_hardly_differ() -> None:
    assert growth_of([held(500, 2e9), held(1000, 3e9)]) is None
    assert growth_of([held(500, 2e9), held(600, 3e9), held(700, 3e9)]) is None
    assert growth_of([ServedLoad("", "closed", peak_held_tokens=9.0)] * 3) is None
