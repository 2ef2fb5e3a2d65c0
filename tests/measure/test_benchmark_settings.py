"""What public scripts set: which rows it holds for, and that each setting names where it was read."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.measure.benchmark_settings import FILE, SchedulerSettings, scheduler_settings

ROW = {
    "isl_dist": "uniform 0.8-1.0 of 1024/1024 (nominal)",
    "mode": "aggregated",
    "tp": "4",
    "concurrency": "64",
    "framework_version": "",
}


def told(engine="trtllm", model="dense", family="blackwell", weights="fp8", **changes):
    return scheduler_settings({**ROW, **changes}, engine, model, family, weights, 921.6)


def test_a_row_that_names_no_benchmark_keeps_the_engine_s_defaults():
    assert told(isl_dist="sharegpt") == SchedulerSettings()
    assert told(mode="offline") == SchedulerSettings()


def test_a_wait_for_company_holds_where_the_script_sets_it():
    assert told().wait_steps == 20.0
    assert told(tp="8").wait_steps == 0.0
    assert told(isl_dist="uniform 0.8-1.0 of 1024/8192 (nominal)").wait_steps == 0.0


def test_an_engine_that_does_not_split_prompts_carries_whole_ones():
    assert told().chunk_tokens == pytest.approx(17 * 921.6)
    assert told(engine="sglang", model="mla", weights="nvfp4").chunk_tokens == 16384.0


def test_later_rows_win_and_releases_compare_as_numbers():
    old, new = (told(model="mla", framework_version=each) for each in ("1.1.0rc2", "1.2.0rc6.post2"))
    assert old.chunk_tokens < new.chunk_tokens
    few, many = (told("sglang", "mla", weights="nvfp4", concurrency=each) for each in ("8", "16"))
    assert (few.poll_steps, many.poll_steps) == (10.0, 30.0)


def test_every_rank_waits_for_a_prompt_of_its_own():
    found = told(model="mla", tp="1", dp="8")
    assert (found.wait_steps, found.wait_tokens) == (60.0, pytest.approx(8 * 921.6))


def test_a_script_of_one_checkpoint_holds_for_no_other():
    served = {"model": "moe", "weights": "fp8", "framework_version": "0.19.0"}
    found = scheduler_settings(
        {**ROW, "model": "MiniMaxAI/MiniMax-M2.5", "framework_version": "0.19.0"},
        *("vllm", "moe", "blackwell", "fp8", 921.6),
    )
    assert (found.chunk_tokens, found.cache_bytes) == (2048.0, 1.0)
    assert told("vllm", **served) == SchedulerSettings()


AGAIN = SchedulerSettings(prepared_prompts=45.0, stage_s=600.0, block_tokens=16.0)
FEW = st.floats(1e-3, 1e3)


def test_prepared_prompts_come_again_where_a_script_prepares_them():
    paced = {"isl_dist": "near_fixed_shared_prefix", "mode": "online", "concurrency": ""}
    assert told("vllm", **paced) == AGAIN
    assert told("vllm", **{**paced, "mode": "aggregated"}) == SchedulerSettings()
    assert told("sglang", **paced) == SchedulerSettings()  # what its cache's blocks hold is not in the table


def test_all_whole_blocks_of_a_prompt_that_came_before_are_found():
    # 4,800 requests, 45 of them the first of their prompt; 34 blocks of 16 in 547 tokens, 34 of 35 in 560.
    assert AGAIN.found_fraction(8.0, 547.0) == pytest.approx((4755 / 4800) * (544 / 547))
    assert AGAIN.found_fraction(8.0, 560.0) == pytest.approx((4755 / 4800) * (544 / 560))


@given(rate_per_s=FEW, faster=st.floats(1.0, 100.0), input_tokens=st.floats(1.0, 1e5))
def test_more_of_the_input_is_found_the_more_often_prompts_come_and_never_all(
    rate_per_s, faster, input_tokens
):
    found = AGAIN.found_fraction(rate_per_s, input_tokens)
    assert 0.0 <= found <= AGAIN.found_fraction(rate_per_s * faster, input_tokens)
    assert found * input_tokens <= input_tokens - 1.0  # the last token is always computed


@given(rate_per_s=FEW, input_tokens=st.floats(1.0, 1e5))
def test_nothing_is_found_where_no_prompt_comes_twice(rate_per_s, input_tokens):
    assert SchedulerSettings().found_fraction(rate_per_s, input_tokens) == 0.0
    assert AGAIN.found_fraction(min(rate_per_s, 45 / 600), input_tokens) == 0.0
    assert AGAIN.found_fraction(rate_per_s, min(input_tokens, 16.0)) == 0.0


def test_every_setting_names_its_source():
    with FILE.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert rows and all(row["source"] and row["note"] and row["setting"] for row in rows)
