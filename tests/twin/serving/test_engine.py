"""What holds for every engine, over a table of settings: conservation, order, and skipping = stepping."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.step_tables import linear
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import (
    EngineSettings,
    EngineWork,
    Finished,
    FirstToken,
    Output,
    Preemption,
    PrefillMode,
    Reservation,
)

TABLE = linear(0.008, 2e-5, 2e-5, 2e-9)
SMALL = EngineSettings(max_batch=12, chunk_tokens=256, kv_tokens=4096, block_tokens=16)
KINDS = {
    "mixed": SMALL,
    "exclusive": replace(SMALL, prefill_mode=PrefillMode.EXCLUSIVE),
    "short of cache": replace(SMALL, kv_tokens=1600, watermark_fraction=0.0),
    "swapping": replace(
        SMALL, kv_tokens=1600, preemption=Preemption.SWAP, host_kv_tokens=800, swap_token_s=1e-6
    ),
    "drafting": replace(SMALL, draft_tokens=3, draft_accept_fraction=0.6, kv_tokens=1600),
    "reserving": replace(SMALL, reservation=Reservation.ANSWER),
    "contiguous": replace(SMALL, reservation=Reservation.CONTEXT, context_tokens=1024),
    "static": replace(SMALL, static_wait_s=0.3),
    "prefix cache": replace(SMALL, prefix_cache_tokens=1024, kv_tokens=1600),
    "late": replace(SMALL, first_token_s=0.05, first_token_steps=0.3),
}

Job = tuple[float, EngineWork]


def jobs_of(seed: int, count: int = 60, rate_per_s: float = 12.0) -> list[Job]:
    """Random requests, some of which begin alike."""
    random = np.random.default_rng(seed)
    at_s, jobs = 0.0, []
    for key in range(count):
        at_s += float(random.exponential(1.0 / rate_per_s))
        blocks = (*range(int(random.integers(0, 8))), 1000 + key)
        work = EngineWork(
            key,
            int(random.integers(1, 500)),
            int(random.integers(1, 200)),
            blocks,
            64,
            answered_blocks=blocks,
        )
        jobs.append((at_s, work))
    return jobs


def serve(engine: Engine, jobs: Iterable[Job]) -> list[Output]:
    """Drive an engine as a world does: from event to event."""
    out: list[Output] = []
    for at_s, work in jobs:
        while (next_s := engine.next_at_s()) is not None and next_s <= at_s:
            out += engine.advance(next_s)
        engine.submit(work, at_s)
    while (next_s := engine.next_at_s()) is not None:
        out += engine.advance(next_s)
    return out


def finishes(out: Iterable[Output]) -> dict[int, Finished]:
    return {each.key: each for each in out if isinstance(each, Finished)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_skipping_steps_changes_nothing(kind: str, seed: int) -> None:
    jobs = jobs_of(seed)
    skipping, stepping = Engine(TABLE, KINDS[kind]), Engine(TABLE, replace(KINDS[kind], longest_run_steps=1))
    fast, slow = serve(skipping, jobs), serve(stepping, jobs)
    assert [(each.key, type(each)) for each in fast] == [(each.key, type(each)) for each in slow]
    assert [each.at_s for each in fast] == pytest.approx([each.at_s for each in slow], rel=1e-9)
    assert skipping.preempted_count == stepping.preempted_count
    assert skipping.busy_s == pytest.approx(stepping.busy_s, rel=1e-9)
    assert (skipping.prefill_tokens, skipping.decode_tokens) == (
        stepping.prefill_tokens,
        stepping.decode_tokens,
    )


@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(sorted(KINDS)),
    blocks=st.sampled_from([1, 7, 16]),
    kv_tokens=st.integers(900, 3000),
    rate_per_s=st.floats(3.0, 60.0),
)
@settings(max_examples=20, deadline=None)
def test_skipping_changes_nothing_when_clients_leave_and_speeds_change(
    seed: int, kind: str, blocks: int, kv_tokens: int, rate_per_s: float
) -> None:
    own = replace(KINDS[kind], block_tokens=blocks, kv_tokens=kv_tokens)
    outs = []
    for longest in (1, 1 << 60):
        random, engine, out = (
            np.random.default_rng(seed),
            Engine(TABLE, replace(own, longest_run_steps=longest)),
            [],
        )
        for at_s, work in jobs_of(seed, 30, rate_per_s):
            out += engine.advance(at_s)
            engine.submit(work, at_s)
            if random.random() < 0.2:
                engine.cancel(int(random.integers(0, work.key + 1)), at_s + 1e-4)
            if random.random() < 0.2:
                engine.set_speed(float(random.uniform(0.5, 2.0)), at_s + 2e-4)
        outs.append(out + engine.advance(1e6))
        assert engine.report() == (0, 0, 0.0)
    assert [(each.key, type(each)) for each in outs[0]] == [(each.key, type(each)) for each in outs[1]]
    assert [each.at_s for each in outs[0]] == pytest.approx([each.at_s for each in outs[1]], rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_and_token_comes_out_once(kind: str) -> None:
    jobs = jobs_of(3)
    engine = Engine(TABLE, KINDS[kind])
    out = serve(engine, jobs)
    first = [each.key for each in out if isinstance(each, FirstToken)]
    assert sorted(first) == sorted(finishes(out)) == [work.key for _, work in jobs]
    assert len(out) == 2 * len(jobs)
    assert all(finishes(out)[work.key].output_tokens == work.output_tokens for _, work in jobs)
    assert [each.at_s for each in out] == sorted(each.at_s for each in out)
    assert engine.report() == (0, 0, 0.0)
    whole = sum(work.input_tokens for _, work in jobs)
    # A token that was computed twice was preempted; the first of each answer comes with its prompt.
    if engine.preempted_count == 0 or kind == "swapping":
        assert engine.prefill_tokens + engine.hit_tokens == whole
    again = sum(work.output_tokens - 1 for _, work in jobs) - engine.decode_tokens
    assert 0 <= again <= engine.preempted_count


@pytest.mark.parametrize("kind", ["short of cache", "swapping", "drafting", "prefix cache"])
def test_the_cache_is_never_overfull(kind: str) -> None:
    engine = Engine(TABLE, replace(KINDS[kind], longest_run_steps=1))
    used = []
    for at_s, work in jobs_of(4, 80, 40.0):
        engine.advance(at_s)
        engine.submit(work, at_s)
        used.append(engine.report()[2])
    while (next_s := engine.next_at_s()) is not None:
        engine.advance(next_s)
        used.append(engine.report()[2])
    assert 0.9 < max(used) <= 1.0
    assert used[-1] == 0.0


def test_the_cache_runs_short_in_these_tests() -> None:
    for kind in ("short of cache", "swapping"):
        engine = Engine(TABLE, KINDS[kind])
        serve(engine, jobs_of(1))
        assert engine.preempted_count > 3, kind
    assert engine.swapped_tokens > 0


@pytest.mark.parametrize("kind", KINDS)
def test_requests_are_let_in_in_the_order_they_came(kind: str) -> None:
    """With prompts of one length and no preemption, first tokens come in order of arrival."""
    jobs = [(at_s, work._replace(input_tokens=100, prefix_blocks=())) for at_s, work in jobs_of(5)]
    out = serve(Engine(TABLE, replace(KINDS[kind], kv_tokens=1 << 30)), jobs)
    first = [each.key for each in out if isinstance(each, FirstToken)]
    assert first == sorted(first)


def test_a_lone_request_takes_its_prefill_and_its_steps() -> None:
    out = serve(Engine(TABLE, SMALL), [(1.0, EngineWork(7, 100, 5))])
    first_s = 1.0 + TABLE.mixed_s(100, 50.0, 0, 0.0)
    assert out == [
        FirstToken(7, pytest.approx(first_s)),
        Finished(7, pytest.approx(first_s + TABLE.decode_s(1, 100.0, 4)), 5),
    ]


def test_a_prompt_longer_than_the_budget_takes_several_steps() -> None:
    out = serve(Engine(TABLE, SMALL), [(0.0, EngineWork(1, 600, 1))])
    assert out[0].at_s == pytest.approx(3 * 0.008 + 600 * 2e-5)


@given(seed=st.integers(0, 1000), busy_per_s=st.floats(1.0, 40.0))
@settings(max_examples=15, deadline=None)
def test_no_load_makes_a_request_faster_than_idle(seed: int, busy_per_s: float) -> None:  # INV-9
    jobs = jobs_of(seed, 25, busy_per_s)
    out = serve(Engine(TABLE, SMALL), jobs)
    for at_s, work in jobs:
        alone = serve(Engine(TABLE, SMALL), [(at_s, work)])
        assert finishes(out)[work.key].at_s >= alone[-1].at_s - 1e-9


@given(seed=st.integers(0, 1000), factor=st.floats(1.0, 4.0))
@settings(max_examples=10, deadline=None)
def test_a_faster_engine_is_done_no_later(seed: int, factor: float) -> None:
    jobs = jobs_of(seed, 30)
    usual, faster = Engine(TABLE, SMALL), Engine(TABLE, SMALL)
    faster.set_speed(factor, 0.0)
    assert serve(faster, jobs)[-1].at_s <= serve(usual, jobs)[-1].at_s + 1e-9


def test_a_change_of_speed_counts_from_its_moment_on() -> None:
    engine = Engine(TABLE, SMALL)
    engine.submit(EngineWork(1, 100, 101), 0.0)
    engine.advance(0.5)
    engine.set_speed(0.5, 0.5)
    (finished,) = [each for each in engine.advance(100.0) if isinstance(each, Finished)]
    alone_s = serve(Engine(TABLE, SMALL), [(0.0, EngineWork(1, 100, 101))])[-1].at_s
    assert finished.at_s == pytest.approx(0.5 + 2 * (alone_s - 0.5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("longest", [1, 1 << 60])
def test_who_leaves_takes_nothing_along(kind: str, longest: int) -> None:
    engine = Engine(TABLE, replace(KINDS[kind], longest_run_steps=longest))
    random, left, out = np.random.default_rng(3), set(), []
    for at_s, work in jobs_of(6):
        out += engine.advance(at_s)
        engine.submit(work, at_s)
        if random.random() < 0.4:
            key = int(random.integers(0, work.key + 1))
            engine.cancel(key, at_s)
            left.add(key)
    while (next_s := engine.next_at_s()) is not None:
        out += engine.advance(next_s)
    done = set(finishes(out))
    assert done | left == set(range(60)) and len(done) > 30
    assert engine.report() == (0, 0, 0.0)


def test_what_can_never_fit_is_turned_away_at_once() -> None:
    engine = Engine(TABLE, KINDS["short of cache"])
    engine.submit(EngineWork(1, 1500, 200), 1.0)
    assert engine.advance(1.0) == [Finished(1, 1.0, 0)]
    assert engine.next_at_s() is None


def test_asking_what_comes_next_changes_nothing() -> None:
    jobs = jobs_of(8)
    asked, unasked = Engine(TABLE, KINDS["short of cache"]), Engine(TABLE, KINDS["short of cache"])
    out = []
    for at_s, work in jobs:
        unasked.submit(work, at_s)
    out += unasked.advance(1e6)
    assert serve(asked, jobs) == out


def test_a_prefix_that_is_cached_is_not_computed_again() -> None:
    blocks = tuple(range(6))
    jobs = [(float(key), EngineWork(key, 400, 2, blocks, 64)) for key in range(3)]
    engine = Engine(TABLE, KINDS["prefix cache"])
    out = serve(engine, jobs)
    assert engine.hit_tokens == 2 * 6 * 64
    assert engine.saved_s == pytest.approx(2 * 384 * 2e-5)
    first = [each.at_s - key for key, each in enumerate(out[::2])]
    assert first[1] == pytest.approx(first[0] - 384 * 2e-5 - 0.008)  # and one step fewer


@pytest.mark.parametrize("block_tokens", [1, 16, 64, 128])
def test_prompts_asked_before_the_run_are_cached_from_its_first_request_on(block_tokens: int) -> None:
    engine = Engine(TABLE, replace(KINDS["prefix cache"], block_tokens=block_tokens))
    engine.remember([tuple(range(6)), tuple(range(100, 104))], 64)
    assert engine.report() == (0, 0, 0.0)
    jobs = [
        (0.0, EngineWork(0, 400, 2, tuple(range(6)), 64)),
        (1.0, EngineWork(1, 300, 2, (100, 101, 7), 64)),
    ]
    serve(engine, jobs)
    assert engine.hit_tokens == (6 + 2) * 64


def test_of_prompts_too_long_for_the_cache_the_ends_are_lost() -> None:
    engine = Engine(TABLE, KINDS["prefix cache"])  # that keeps 1024 tokens
    engine.remember([tuple(range(30)), tuple(range(100, 130))], 64)
    serve(engine, [(0.0, EngineWork(0, 1400, 2, tuple(range(20)), 64))])
    assert engine.hit_tokens == 1024 // 2
    plain = Engine(TABLE, KINDS["mixed"])  # that keeps none
    plain.remember([tuple(range(6))], 64)
    serve(plain, [(0.0, EngineWork(0, 400, 2, tuple(range(6)), 64))])
    assert plain.hit_tokens == 0


def test_the_next_turn_finds_the_answer_in_the_cache() -> None:
    jobs = [
        (0.0, EngineWork(0, 128, 129, (1, 2), 64, answered_blocks=(1, 2, 3, 4))),
        (9.0, EngineWork(1, 300, 2, (1, 2, 3, 4), 64)),
    ]
    engine = Engine(TABLE, KINDS["prefix cache"])
    serve(engine, jobs)
    assert engine.hit_tokens == 256


@pytest.mark.parametrize("block_tokens", [1, 16, 64, 128])
def test_hashes_of_other_lengths_than_the_engine_s_blocks_hit_alike(block_tokens: int) -> None:
    blocks = tuple(range(8))
    jobs = [(float(key), EngineWork(key, 520, 2, blocks, 64)) for key in range(3)]
    engine = Engine(TABLE, replace(KINDS["prefix cache"], block_tokens=block_tokens))
    serve(engine, jobs)
    assert engine.hit_tokens == 2 * 512
    assert engine.report() == (0, 0, 0.0)


def test_a_next_turn_that_begins_otherwise_finds_only_what_is_the_same() -> None:
    jobs = [
        (0.0, EngineWork(0, 128, 129, (), 64, answered_blocks=(1, 2, 3, 4))),
        (5.0, EngineWork(1, 130, 129, (1, 9), 64, answered_blocks=(7, 8, 3))),
        (9.0, EngineWork(2, 300, 2, (1, 9, 3), 64)),
    ]
    engine = Engine(TABLE, KINDS["prefix cache"])
    serve(engine, jobs)
    assert engine.hit_tokens == 64 + 192
    assert engine.report() == (0, 0, 0.0)


def test_drafts_shorten_answers_by_what_they_gain() -> None:
    drafting = replace(SMALL, draft_tokens=3, draft_accept_fraction=0.5)
    plain_s, drafted_s = (
        serve(Engine(TABLE, kind), [(0.0, EngineWork(1, 10, 1501))])[-1].at_s for kind in (SMALL, drafting)
    )
    assert plain_s / drafted_s == pytest.approx(1.875, rel=0.01)


def test_a_static_batch_starts_full_or_late_and_ends_together() -> None:
    static = Engine(TABLE, replace(SMALL, max_batch=2, static_wait_s=0.5))
    out = serve(
        static, [(0.0, EngineWork(0, 10, 3)), (0.1, EngineWork(1, 10, 9)), (0.2, EngineWork(2, 10, 3))]
    )
    ends = finishes(out)
    assert ends[0].at_s == ends[1].at_s > 0.1
    assert ends[2].at_s > 0.2 + 0.5


def test_continuous_batching_beats_static_batches() -> None:
    jobs = [(0.0, work) for _, work in jobs_of(9)]
    continuous, static = (serve(Engine(TABLE, KINDS[kind]), jobs)[-1].at_s for kind in ("mixed", "static"))
    assert continuous < 0.8 * static


def test_exclusive_prefill_holds_up_who_decodes() -> None:
    jobs = [(0.0, EngineWork(0, 10, 100)), (0.1, EngineWork(1, 2000, 2))]
    mixed, exclusive = (finishes(serve(Engine(TABLE, KINDS[kind]), jobs)) for kind in ("mixed", "exclusive"))
    assert exclusive[1].at_s < mixed[1].at_s
    assert exclusive[0].at_s > mixed[0].at_s


@pytest.mark.parametrize("kind", ["mixed", "exclusive", "static"])
def test_gaps_between_tokens_sum_to_what_answers_take(kind: str) -> None:
    jobs = jobs_of(11)
    engine = Engine(TABLE, replace(KINDS[kind], kv_tokens=1 << 30))
    first, whole_s = {}, 0.0
    for each in serve(engine, jobs):
        if isinstance(each, FirstToken):
            first[each.key] = each.at_s
        else:
            whole_s += each.at_s - first[each.key]
    rel = 0.02 if kind == "mixed" else 0.1
    assert engine.gaps.mean * engine.gaps.count == pytest.approx(whole_s, rel=rel)


def test_prompts_in_chunks_keep_the_gaps_between_tokens_short() -> None:
    chats = [(0.01 * key, EngineWork(key, 100, 400)) for key in range(4)]
    long = [(0.5 + 0.4 * key, EngineWork(10 + key, 3000, 2)) for key in range(4)]
    gaps = {}
    for kind in ("mixed", "exclusive"):
        engine = Engine(TABLE, KINDS[kind])
        serve(engine, chats + long)
        gaps[kind] = engine.gaps
    assert gaps["mixed"].quantile(0.999) < 0.2 * gaps["exclusive"].quantile(0.999)
    assert gaps["mixed"].quantile(0.5) == pytest.approx(gaps["exclusive"].quantile(0.5), rel=0.05)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"prefix cache"}))
def test_no_more_is_filled_than_is_held(kind: str) -> None:
    engine = Engine(TABLE, KINDS[kind])
    serve(engine, jobs_of(12))
    assert 0 < engine.used_token_s <= engine.held_token_s


def test_paged_blocks_waste_little_and_contiguous_ones_most() -> None:
    filled = {}
    for kind in ("mixed", "reserving", "contiguous"):
        engine = Engine(TABLE, KINDS[kind])
        serve(engine, jobs_of(12))
        filled[kind] = engine.used_token_s / engine.held_token_s
    assert filled["mixed"] > 0.95 > 0.9 > filled["reserving"] and filled["contiguous"] < 0.5


def test_paged_blocks_hold_more_requests_than_contiguous_ones() -> None:
    jobs = [(0.0, work) for _, work in jobs_of(10)]
    paged, contiguous = Engine(TABLE, KINDS["mixed"]), Engine(TABLE, KINDS["contiguous"])
    assert serve(paged, jobs)[-1].at_s < serve(contiguous, jobs)[-1].at_s
    assert paged.sequence_s / paged.busy_s > 1.5 * contiguous.sequence_s / contiguous.busy_s
