"""The stream of tokens: each document once an epoch, the same from any step on, whoever reads it."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.errors import ValueRefusedError
from twofold.live.training.data_order import HELD_OUT_EVERY, TokenStream, held_out
from twofold.live.training.token_shard import Shard

LENGTHS = st.lists(st.lists(st.integers(1, 9), max_size=60), min_size=1, max_size=5)


def shards_of(lengths: list[list[int]]) -> list[Shard]:
    """Documents whose every token is their own number, over all shards."""
    shards, number = [], 0
    for documents in lengths:
        tokens = [number + at for at, length in enumerate(documents) for _ in range(length)]
        number += len(documents)
        shards.append(Shard(np.array(tokens, np.uint16), np.cumsum([*documents], dtype=np.int64)))
    return shards


def stream_of(shards: list[Shard], seed: int = 1) -> TokenStream:
    return TokenStream(shards.__getitem__, len(shards), seed)


def trained_tokens(lengths: list[list[int]]) -> Counter[int]:
    """How often each document's token is in an epoch."""
    counted, number = Counter[int](), 0
    for documents in lengths:
        for at, length in enumerate(documents):
            if at % HELD_OUT_EVERY != HELD_OUT_EVERY - 1:
                counted[number + at] = length
        number += len(documents)
    return counted


@given(LENGTHS, st.integers(0, 2**31))
def test_every_epoch_reads_each_document_once_and_whole(lengths: list[list[int]], seed: int) -> None:
    wanted = trained_tokens(lengths)
    epoch = wanted.total()
    if not epoch:
        with pytest.raises(ValueRefusedError, match="no text"):
            stream_of(shards_of(lengths), seed).read(0, 1)
        return
    stream = stream_of(shards_of(lengths), seed)
    for number in range(3):
        tokens = stream.read(number * epoch, epoch)
        assert Counter(tokens.tolist()) == wanted
        # Whole: a document's tokens stand together.
        assert 1 + int((np.diff(tokens) != 0).sum()) == len(wanted)
        assert stream.epoch_at(number * epoch) == number


@given(LENGTHS, st.integers(0, 40), st.integers(1, 7), st.sampled_from([1, 2, 4]))
def test_a_resumed_run_and_one_of_other_ranks_read_the_same(
    lengths: list[list[int]], first: int, tokens: int, rank_count: int
) -> None:
    if not trained_tokens(lengths).total():
        return
    whole = stream_of(shards_of(lengths))
    read = [whole.sequence(number, tokens) for number in range(first + 4)]
    resumed = stream_of(shards_of(lengths))  # knows nothing of what was read before
    dealt = [resumed.sequence(first + rank * (4 // rank_count) + at, tokens)
             for rank in range(rank_count) for at in range(4 // rank_count)]  # fmt: skip
    assert [each.tolist() for each in dealt] == [each.tolist() for each in read[first:]]
    # Each token but the very first is a target exactly once.
    assert np.concatenate([each[1:] for each in read]).tolist() == whole.read(1, len(read) * tokens).tolist()


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    lengths = [[1] * 40, [1] * 40, [1] * 40]
    stream, other = stream_of(shards_of(lengths)), stream_of(shards_of(lengths), 2)
    first, second = stream.read(0, 120).tolist(), stream.read(120, 120).tolist()
    assert first != second and sorted(first) == sorted(second)
    assert other.read(0, 120).tolist() != first
    assert stream.shards_until(0) == [stream.shard_at(0)]
    assert stream.shards_until(119) == [0, 1, 2]


def test_what_is_held_out_is_trained_on_by_nobody() -> None:
    shards = shards_of([[3] * 150])
    told = np.unique(np.concatenate(list(held_out(shards[0], 4, 100))))
    assert told.tolist() == [49, 99, 149]
    assert not set(stream_of(shards).read(0, 3 * 147).tolist()) & set(told.tolist())
    assert len(list(held_out(shards[0], 4, 1))) == 1
