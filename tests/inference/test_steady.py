"""How prompts are let in, and what a running sequence keeps from others."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.inference.replica import Admission
from twofold.inference.steady import (
    Lengths,
    admission_steps,
    attended_tokens,
    batch_limit,
    carried_tokens,
    gathered_prompts,
    late_step,
    longest_ratio,
)

PROMPT = 1000.0


@pytest.fixture(scope="module")
def replica(replica_of):
    return replica_of("llama-3.1-8b", "H100-SXM", tp=1.0)


def with_admission(replica, wait_steps=0.0, wait_tokens=0.0, poll_steps=1.0):
    return replace(replica, admission=Admission(wait_steps, wait_tokens, poll_steps))


@given(arrivals=st.floats(1e-6, 4.0))
def test_a_scheduler_that_waits_for_nothing_lets_prompts_in_at_once(replica, arrivals):
    assert admission_steps(replica, PROMPT, arrivals) == 0.0
    assert gathered_prompts(replica, PROMPT, arrivals) == 1.0


@given(arrivals=st.floats(1e-6, 4.0), wait=st.floats(1.0, 60.0), prompts=st.floats(2.0, 32.0))
def test_no_prompt_waits_longer_than_the_limit(replica, arrivals, wait, prompts):
    waiting = with_admission(replica, wait, prompts * PROMPT)
    assert 0.0 <= admission_steps(waiting, PROMPT, arrivals) <= wait
    assert 1.0 <= gathered_prompts(waiting, PROMPT, arrivals) <= prompts


@pytest.mark.parametrize("arrivals", [0.01, 0.1, 0.6])
@pytest.mark.parametrize("prompts", [4.0, 16.0])
def test_waiting_for_company_agrees_with_a_count_of_steps(replica, arrivals, prompts):
    """Prompts arrive at random; the first waits 20 steps, or until the group is full."""
    random = np.random.default_rng(3)
    waits: list[float] = []
    group: list[float] = []
    for step, count in enumerate(random.poisson(arrivals, 40_000).tolist()):
        group += [float(step)] * count
        if group and (step - group[0] >= 20 or len(group) >= prompts):
            waits += [step - each for each in group]
            group = []
    told = admission_steps(with_admission(replica, 20.0, prompts * PROMPT), PROMPT, arrivals)
    # The formula takes the shorter of two means, which is longer than the mean of the shorter.
    assert told == pytest.approx(np.mean(waits), rel=0.3, abs=0.5)


def test_rare_looks_cost_half_of_their_distance(replica):
    assert admission_steps(with_admission(replica, poll_steps=31.0), PROMPT, 0.1) == pytest.approx(15.0)


def test_prompts_that_waited_together_are_prefilled_together(replica):
    waiting = with_admission(replica, 20.0, 4 * PROMPT)
    assert carried_tokens(replica, PROMPT, 100.0, 8.0) == PROMPT
    assert carried_tokens(waiting, PROMPT, 100.0, 8.0) == pytest.approx(3 * PROMPT)


def test_room_for_whole_answers_holds_fewer_sequences(replica):
    long = Lengths(1000.0, 8000.0)
    whole = replace(replica, engine=replace(replica.engine, reserved_output_fraction=1.0))
    assert batch_limit(whole, long) == pytest.approx(batch_limit(replica, long) * 5000 / 9000, rel=0.01)


@given(cached=st.floats(0.0, 0.95), spread=st.floats(0.0, 1.5))
def test_computed_tokens_attend_to_what_lies_before_them_in_prompts_drawn(replica, cached, spread):
    """Long prompts hold most of the tokens, and the same part of each is cached."""
    lengths = Lengths(1000.0, 200.0, spread)
    normal, weights = np.polynomial.hermite_e.hermegauss(40)
    sigma = np.sqrt(np.log1p(spread**2))
    prompts = 1000.0 * np.exp(sigma * normal - 0.5 * sigma**2)
    computed, middle = (1.0 - cached) * prompts, (cached + (1.0 - cached) / 2.0) * prompts
    drawn = np.sum(weights * computed * middle) / np.sum(weights * computed)
    keeping = replace(replica, cache=replace(replica.cache, shared_prefix_fraction=cached))
    assert attended_tokens(keeping, lengths) == pytest.approx(drawn, rel=1e-6)
    tokens, late, _ = late_step(keeping, lengths)
    assert tokens == replica.chunk_tokens and late >= attended_tokens(keeping, lengths) * (1 - 1e-9)
    longest = float(longest_ratio(keeping, lengths))
    assert late == pytest.approx(max(longest, 1.0 + spread**2) * (1.0 + cached) / 2.0 * 1000.0, rel=1e-6)
