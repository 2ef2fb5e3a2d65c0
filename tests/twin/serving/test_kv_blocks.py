from hypothesis import given
from hypothesis import strategies as st

from twofold.twin.serving.kv_blocks import KvBlocks


@given(
    held=st.lists(st.integers(1, 200), min_size=1, max_size=12),
    block=st.sampled_from([1, 4, 16, 64]),
    clock=st.integers(0, 500),
    tokens=st.integers(0, 300),
)
def test_growth_of_all_is_the_sum_over_each(held, block, clock, tokens):
    blocks = KvBlocks(10_000, block)
    for each in held:
        blocks.join(each - clock)
    alone = sum(blocks.blocks_of(each + tokens) - blocks.blocks_of(each) for each in held)
    assert blocks.growth_count(clock, tokens) == alone


@given(
    held=st.lists(st.integers(1, 200), min_size=1, max_size=12),
    block=st.sampled_from([1, 4, 16]),
    clock=st.integers(0, 500),
    free=st.integers(0, 60),
)
def test_the_cache_runs_short_exactly_after_the_tokens_it_says(held, block, clock, free):
    blocks = KvBlocks(10_000, block)
    for each in held:
        blocks.join(each - clock)
    fit = blocks.tokens_until_short(clock, free)
    assert blocks.growth_count(clock, fit) <= free < blocks.growth_count(clock, fit + 1)


def test_who_left_grows_no_more():
    blocks = KvBlocks(1000, 16)
    blocks.join(5)
    blocks.join(-7)
    blocks.leave(5)
    blocks.leave(-7)
    assert blocks.growth_count(3, 100) == 0 and blocks.growing_count == 0
