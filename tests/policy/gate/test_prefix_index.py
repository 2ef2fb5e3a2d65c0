from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.prefix_index import PrefixIndex

BLOCKS = st.lists(st.integers(0, 8), max_size=6, unique=True)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), BLOCKS, st.booleans()), max_size=25)


@given(STEPS, BLOCKS)
def test_hits_are_the_leading_blocks_among_the_most_recent_of_each_replica(
    steps: list[tuple[str, list[int], bool]], asked: list[int]
) -> None:
    limit = 4
    index, model = PrefixIndex(limit), dict[str, OrderedDict[int, None]]()
    for name, blocks, forget in steps:
        if forget:
            index.forget(name)
            model.pop(name, None)
            continue
        index.insert(name, blocks)
        held = model.setdefault(name, OrderedDict())
        for block in reversed(blocks[:limit]):
            held.pop(block, None)
            held[block] = None
        while len(held) > limit:
            held.popitem(last=False)
    expected = {}
    for name, held in model.items():
        depth = next((i for i, block in enumerate(asked) if block not in held), len(asked))
        if depth:
            expected[name] = depth
    assert index.hits(asked) == expected
    assert sum(map(len, index._recent.values())) == sum(map(len, model.values()))


def test_heads_outlive_tails() -> None:
    index = PrefixIndex(4)
    index.insert("a", [1, 2, 3, 4])
    index.insert("a", [9])
    assert index.hits([1, 2, 3, 4]) == {"a": 3} and index.hits([9]) == {"a": 1}


def test_nothing_is_left_of_replicas_that_are_forgotten() -> None:
    index = PrefixIndex(100)
    for number in range(300):
        index.insert(f"r{number}", [number, number + 1])
        index.forget(f"r{number}")
    assert not index._recent and index.hits([299, 300]) == {} and not index._holders
