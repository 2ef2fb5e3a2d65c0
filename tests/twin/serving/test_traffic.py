"""Traffic has the rate, clumps, shape and lengths that it is asked for, and comes again from its seed."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.twin.serving.profiles import Profile, hourly_weights
from twofold.twin.serving.traffic import Lengths, Sessions, Surge, TrafficModel, generate


def times(model: TrafficModel, until_s: float, seed: int = 1) -> np.ndarray:
    return np.array([arrival.arrival_s for arrival in generate(model, seed, until_s)])


@given(
    rate=st.floats(0.1, 5.0),
    cv=st.floats(0.3, 6.0),
    profile=st.sampled_from(Profile),
    seed=st.integers(0, 99),
)
@settings(max_examples=15)
def test_arrivals_come_in_order_within_their_span_and_again_from_their_seed(
    rate: float, cv: float, profile: Profile, seed: int
) -> None:
    model = TrafficModel(rate, gap_cv=cv, profile=profile, day_s=240.0)
    first, second = (list(generate(model, seed, 60.0, 20.0)) for _ in range(2))
    assert first == second
    at = [arrival.arrival_s for arrival in first]
    assert at == sorted(at) and all(20.0 <= s <= 60.0 for s in at)
    assert all(arrival.input_tokens >= 1 and arrival.output_tokens >= 1 for arrival in first)


@pytest.mark.parametrize("cv", [0.5, 1.0, 4.0])
def test_gaps_have_the_rate_and_the_variation_that_were_asked_for(cv: float) -> None:
    gaps = np.diff(times(TrafficModel(10.0, gap_cv=cv), 2000.0))
    # 20,000 gaps: the mean is known to cv/√n, the variation to a few parts in a hundred.
    assert gaps.mean() == pytest.approx(0.1, rel=4.0 * cv / 141.0)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)


@pytest.mark.parametrize("profile", [Profile.CONSUMER, Profile.BUSINESS])
@pytest.mark.parametrize("peak_ratio", [1.5, 2.0, 4.0])
def test_a_profile_has_mean_one_and_its_peak(profile: Profile, peak_ratio: float) -> None:
    week = hourly_weights(profile, peak_ratio)
    assert np.mean(week) == pytest.approx(1.0)
    assert max(week) == pytest.approx(peak_ratio, rel=1e-6)


def test_a_day_is_busiest_where_its_profile_says_and_a_surge_adds_to_it() -> None:
    model = TrafficModel(20.0, profile=Profile.CONSUMER, peak_ratio=3.0, day_s=240.0)
    hours = np.histogram(times(model, 240.0), bins=24)[0]
    assert hours.argmax() in (19, 20, 21)
    assert hours.max() / hours.mean() == pytest.approx(3.0, rel=0.2)
    flat = times(TrafficModel(20.0, surges=(Surge(50.0, 75.0, 4.0),)), 100.0)
    surged, rest = ((flat >= 50) & (flat < 75)).sum() / 25.0, (flat < 50).sum() / 50.0
    assert surged / rest == pytest.approx(4.0, rel=0.2)


def test_clumps_stay_clumps_where_the_rate_is_low() -> None:
    model = TrafficModel(20.0, gap_cv=4.0, profile=Profile.CONSUMER, day_s=2400.0)
    at = times(model, 1500.0)
    early = np.diff(at[(at > 1200) & (at < 1400)])  # hours 12 and 13: a third of the mean rate
    assert len(early) > 300 and early.std() / early.mean() > 2.5


def test_lengths_have_their_mean_and_their_long_ones() -> None:
    drawn = np.array(list(islice(Lengths(1155.0, 4083.0).drawn(np.random.default_rng(3)), 100_000)))
    assert drawn.mean() == pytest.approx(1155.0, rel=0.03)
    assert np.percentile(drawn, 95) == pytest.approx(4083.0, rel=0.05)
    assert (
        np.array(list(islice(Lengths(100.0, 300.0, 150).drawn(np.random.default_rng(3)), 1000))).max() == 150
    )


def test_another_rate_leaves_the_lengths_as_they_are() -> None:
    slow, fast = (list(generate(TrafficModel(rate), 5, 100.0)) for rate in (2.0, 4.0))
    assert [a.input_tokens for a in slow] == [a.input_tokens for a in fast][: len(slow)]


def test_a_session_says_again_what_was_said_and_begins_with_its_prompt() -> None:
    model = TrafficModel(
        2.0,
        Lengths(2000.0, 4000.0, 60_000),
        sessions=Sessions(turns_mean=6.0),
        shared_prefix_fraction=0.6,
        prompt_count=1,
        block_tokens=100,
    )
    sessions = list(generate(model, 2, 60.0))
    long = [(arrival, list(arrival.turns)) for arrival in sessions]
    assert 1.0 < np.mean([1 + len(turns) for _, turns in long]) < 10.0
    for arrival, turns in long:
        said, blocks = arrival.input_tokens + arrival.output_tokens, arrival.prefix_blocks
        for turn in turns:
            assert turn.input_tokens > said and turn.prefix_blocks[: len(blocks)] == blocks
            assert len(turn.prefix_blocks) == turn.input_tokens // 100
            said, blocks = turn.input_tokens + turn.output_tokens, turn.prefix_blocks
    own = [set(arrival.prefix_blocks[12:]) for arrival in sessions]
    assert all(
        arrival.prefix_blocks[:12] == tuple(range(12))[: len(arrival.prefix_blocks)] for arrival in sessions
    )
    assert sum(map(len, own)) == len(set().union(*own))


def test_tenants_send_their_shares_and_zones_evenly() -> None:
    model = TrafficModel(50.0, tenants=(("a", 3.0), ("b", 1.0)), zones=("x", "y"))
    sent = list(generate(model, 1, 100.0))
    assert sum(a.tenant == "a" for a in sent) / len(sent) == pytest.approx(0.75, abs=0.03)
    assert sum(a.zone == "x" for a in sent) / len(sent) == pytest.approx(0.5, abs=0.03)
