from hypothesis import given
from hypothesis import strategies as st

from twofold.twin.serving.engine_memory import KvBlocks, PrefixCache


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


def test_a_prompt_hits_as_far_as_it_is_the_same():
    cache = PrefixCache()
    cache.take((1, 2, 3))
    assert cache.held_hit_count((1, 2, 9, 3)) == 2
    assert cache.take_hits((1, 2, 9, 3)) == (2, 0)
    cache.give_back((1, 2))
    cache.give_back((1, 2, 3))
    assert cache.held_hit_count((1, 2, 9, 3)) == 0
    assert cache.take_hits((1, 2, 9, 3)) == (2, 2)


def test_the_oldest_go_first_and_of_a_prompt_its_end():
    cache = PrefixCache()
    for prompt in ((1, 2), (3, 4)):
        cache.take(prompt)
        cache.give_back(prompt)
    cache.shrink(3)
    assert cache.take_hits((1, 2)) == (1, 1) and cache.take_hits((3, 4)) == (2, 2)


def test_what_somebody_holds_is_never_dropped():
    cache = PrefixCache()
    cache.take((1,))
    cache.take((1,))
    assert cache.give_back((1,)) == 0
    cache.shrink(0)
    assert cache.take_hits((1,)) == (1, 0)


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 5), unique=True, max_size=4))))
def test_taken_minus_left_are_in_use(moves):
    cache, held, used = PrefixCache(), [], 0
    for takes, hashes in moves:
        if takes or not held:
            used += cache.take(tuple(hashes))
            held.append(tuple(hashes))
        else:
            used -= cache.give_back(held.pop())
        assert used == len(cache._users) == len({each for prompt in held for each in prompt})
