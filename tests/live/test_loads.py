"""The figures of loads whose answers are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.live.loads.loads import Answer, Load, Outcome, load_point, quantiles


def steady(concurrency: int, e2e_s: float, window_s: float, tokens: int) -> Load:
    """Clients whose every answer takes `e2e_s`, its tokens evenly spread; none begins after the window."""
    load = Load()
    load.begin(100.0, 100.0 + window_s)
    for number in range(concurrency):
        due_s = 100.0 - e2e_s * number / concurrency  # staggered: the load was running before it was watched
        while due_s < 100.0 + window_s:
            step_s = e2e_s / tokens
            texts_s = [due_s + step_s * (k + 1) for k in range(tokens)]
            inside = sum(text_s <= 100.0 + window_s for text_s in texts_s)
            if due_s >= 100.0:
                load.answers.append(
                    Answer(
                        due_s,
                        10,
                        Outcome.FINISHED,
                        texts_s[0],
                        texts_s[-1],
                        texts_s[-1],
                        tokens,
                        tokens,
                        inside,
                    )
                )
            due_s += e2e_s
    return load


@given(
    concurrency=st.integers(1, 8),
    e2e_s=st.floats(0.5, 3.0),
    answers_per_client=st.floats(3.0, 9.0),
    tokens=st.integers(2, 40),
)
def test_rates_follow_littles_law_wherever_the_window_cuts(
    concurrency: int, e2e_s: float, answers_per_client: float, tokens: int
) -> None:
    """Concurrency / latency, up to what clients who begin together cannot show in their first answer."""
    window_s = answers_per_client * e2e_s
    point = load_point("x", steady(concurrency, e2e_s, window_s, tokens), concurrency=concurrency)
    late_s = e2e_s * (concurrency - 1) / concurrency  # when the last client's first whole answer begins
    assert point.requests_per_s <= concurrency / e2e_s * (1 + 1e-9)
    assert point.requests_per_s >= concurrency / e2e_s * (1 - late_s / window_s) * (1 - 1e-9)
    per_request = point.output_tokens_per_s / point.requests_per_s
    assert per_request == pytest.approx(tokens, rel=1 / answers_per_client)


def test_latencies_are_what_they_are_called() -> None:
    load = Load()
    load.begin(0.0, 10.0)
    load.answers = [
        Answer(1.0, 100, Outcome.FINISHED, 1.5, 3.5, 3.6, 11, 11, 11),
        Answer(2.0, 200, Outcome.FINISHED, 2.1, 2.1, 2.2, 1, 1, 1),  # one token has no time per token
        Answer(3.0, 999, Outcome.REFUSED, ended_s=3.1),
        Answer(4.0, 999, Outcome.FAILED, ended_s=9.0),
    ]
    point = load_point("open-1", load, rate_per_s=1.0)
    assert (point.sent, point.finished, point.refused, point.failed) == (4, 2, 1, 1)
    assert (point.input_tokens, point.output_tokens) == (150.0, 6.0)
    assert point.requests_per_s == pytest.approx(0.2) and point.output_tokens_per_s == pytest.approx(1.2)
    assert point.ttft and point.tpot and point.e2e
    assert point.ttft.mean_s == pytest.approx(0.3)
    assert point.tpot.p50_s == point.tpot.p99_s == pytest.approx(0.2)
    assert point.e2e.mean_s == pytest.approx(1.4)


def test_nothing_finished_has_no_latency_and_no_rate() -> None:
    load = Load()
    load.begin(0.0, 1.0)
    load.answers = [Answer(0.5, 10, Outcome.REFUSED, ended_s=0.6)]
    point = load_point("closed-1", load, concurrency=1)
    assert point.ttft is point.tpot is point.e2e is None
    assert point.requests_per_s == point.output_tokens_per_s == point.output_tokens == 0.0


@given(latencies_s=st.lists(st.floats(0.0, 100.0), min_size=1))
def test_quantiles_are_ordered_and_within_what_was_measured(latencies_s: list[float]) -> None:
    of = quantiles(latencies_s)
    assert of is not None
    assert min(latencies_s) <= of.p50_s <= of.p95_s <= of.p99_s <= max(latencies_s)


def test_held_tokens_are_given_back_and_their_peak_kept() -> None:
    load = Load()
    for tokens in (10, 5, 100, -100, 1, -16):
        load.hold(tokens)
    assert (load.held_tokens, load.peak_held_tokens) == (0, 115)
