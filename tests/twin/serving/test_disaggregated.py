from dataclasses import replace

import numpy as np
import pytest

from tests.step_tables import linear
from twofold.twin.serving.disaggregated import HANDOFF_S, DisaggregatedEngine
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings, EngineWork, Finished, FirstToken, PrefillMode

TABLE = linear(0.008, 2e-5, 2e-5, 2e-9)
DECODE = EngineSettings(max_batch=16, chunk_tokens=1024, kv_tokens=16_000)
PREFILL = replace(DECODE, prefill_mode=PrefillMode.EXCLUSIVE)
TRANSFER_TOKEN_S = 5e-6


def pair(
    prefill_count: int = 1, decode_count: int = 1, decode: EngineSettings = DECODE
) -> DisaggregatedEngine:
    return DisaggregatedEngine(
        [Engine(TABLE, PREFILL) for _ in range(prefill_count)],
        [Engine(TABLE, decode) for _ in range(decode_count)],
        TRANSFER_TOKEN_S,
    )


def jobs(seed: int, rate_per_s: float, count: int = 80) -> list[tuple[float, EngineWork]]:
    random = np.random.default_rng(seed)
    at_s = np.cumsum(random.exponential(1 / rate_per_s, count)).tolist()
    return [
        (now_s, EngineWork(key, int(random.integers(1, 900)), int(random.integers(1, 80))))
        for key, now_s in enumerate(at_s)
    ]


def serve(engine: DisaggregatedEngine | Engine, work: list[tuple[float, EngineWork]]):
    out = []
    for at_s, each in work:
        while (next_s := engine.next_at_s()) is not None and next_s <= at_s:
            out += engine.advance(next_s)
        engine.submit(each, at_s)
    while (next_s := engine.next_at_s()) is not None:
        out += engine.advance(next_s)
    return out


def test_a_lone_request_is_prefilled_moved_and_decoded():
    first_s = 1.0 + TABLE.mixed_s(100, 50.0, 0, 0.0) + HANDOFF_S + 100 * TRANSFER_TOKEN_S
    assert serve(pair(), [(1.0, EngineWork(7, 100, 5))]) == [
        FirstToken(7, pytest.approx(first_s)),
        Finished(7, pytest.approx(first_s + TABLE.decode_s(1, 100.0, 4)), 5),
    ]


@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (1, 3)])
@pytest.mark.parametrize("kv_tokens", [16_000, 1600])
def test_every_request_comes_out_once_in_order_of_time(counts, kv_tokens):
    work = jobs(1, 20.0)
    engine = pair(*counts, replace(DECODE, kv_tokens=kv_tokens))
    out = serve(engine, work)
    assert [each.at_s for each in out] == sorted(each.at_s for each in out)
    for kind in (FirstToken, Finished):
        assert sorted(each.key for each in out if isinstance(each, kind)) == list(range(len(work)))
    assert engine.report() == (0, 0, 0.0)
    assert engine.spent().decode_tokens <= sum(each.output_tokens - 1 for _, each in work)


def test_decode_is_not_held_up_by_prompts():
    """What a pair is for: further tokens come steadily, though prompts arrive all the time."""
    work = [(at_s, each._replace(output_tokens=40)) for at_s, each in jobs(2, 15.0)]

    def mean_tpot_s(engine):
        first, gaps = {}, []
        for each in serve(engine, work):
            if isinstance(each, FirstToken):
                first[each.key] = each.at_s
            else:
                gaps.append((each.at_s - first[each.key]) / 39)
        return np.mean(gaps)

    assert mean_tpot_s(pair()) < 0.9 * mean_tpot_s(Engine(TABLE, DECODE))


def test_more_prefill_workers_answer_sooner():
    work = jobs(3, 30.0)

    def mean_first_s(engine):
        return np.mean(
            [each.at_s - work[each.key][0] for each in serve(engine, work) if isinstance(each, FirstToken)]
        )

    assert mean_first_s(pair(3)) < mean_first_s(pair(1))


def test_who_leaves_is_gone_wherever_it_was():
    engine, random, left, out = pair(2, 2), np.random.default_rng(4), set(), []
    for at_s, each in jobs(4, 20.0):
        out += engine.advance(at_s)
        engine.submit(each, at_s)
        if random.random() < 0.4:
            key = int(random.integers(max(0, each.key - 8), each.key + 1))
            engine.cancel(key, at_s)
            left.add(key)
    while (next_s := engine.next_at_s()) is not None:
        out += engine.advance(next_s)
    done = {each.key for each in out if isinstance(each, Finished)}
    assert done | left == set(range(80))
    assert engine.report() == (0, 0, 0.0)


def test_a_first_token_waits_until_the_answer_has_room():
    work = [(0.0, EngineWork(key, 900, 60)) for key in range(4)]
    narrow = replace(DECODE, kv_tokens=2000, watermark_fraction=0.0)
    wide, tight = (
        [each.at_s for each in serve(pair(decode=kind), work) if isinstance(each, FirstToken)]
        for kind in (DECODE, narrow)
    )
    assert tight[:2] == wide[:2] and tight[2] > wide[2] + 0.1


def test_what_can_never_fit_is_turned_away():
    out = serve(pair(), [(0.0, EngineWork(1, 20_000, 5))])
    assert [type(each) for each in out] == [Finished] and out[0].output_tokens == 0
