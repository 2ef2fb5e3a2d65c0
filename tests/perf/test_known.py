"""What the fits have seen, what is left when something is hidden, and the spread of repeats."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.perf.known import (
    ASSUMED_SPREAD_FRACTION,
    Seen,
    known_of,
    load_known,
    spread_factor,
    student_quantile,
)

ROWS = (
    Seen("training", "step", "llama", "H100", "megatron", ("a", "b"), ("0", "1")),
    Seen("training", "step", "mpt", "H100", "fsdp", ("b",), ("1",)),
    Seen("training", "step", "mpt", "A100", "fsdp", ("c",), ("0",)),
)


def test_seen_together_is_near_and_seen_apart_is_parts() -> None:
    known = known_of(ROWS)
    assert known.of("training", "step", "llama", "H100", "megatron") == "near"
    assert known.of("training", "step", "llama", "A100", "megatron") == "parts"
    assert known.of("training", "step", "llama", "B200", "megatron") == "new"
    assert known.of("training", "step", "llama", "H100", "jax") == "new"
    assert known.of("inference", "tpot open", "llama", "H100", "megatron") == "new"


def test_near_counts_by_what_was_measured() -> None:
    known = known_of(ROWS)
    assert known.of("training", "memory", "llama", "H100", "megatron") == "parts"
    names = "llama", "dense", "H100", "hopper", "megatron"
    scopes = {each: known.training_scope(each, *names) for each in ("step", "memory")}
    told = known.group_of("training", scopes)
    assert (told["known"], told["near"], told["few_sources"]) == ("near", "step", "step+memory")


def test_fewer_than_five_sources_are_few() -> None:
    five = replace(ROWS[0], sources=("a", "b", "c", "d", "e"))
    known = known_of([five])
    assert known.plenty == {("training", "step")}
    assert not known.without("source=e").plenty


def test_a_hidden_source_takes_along_what_it_alone_had_seen() -> None:
    without = known_of(ROWS).without("source=b")
    assert without.of("training", "step", "llama", "H100", "megatron") == "near"
    assert without.of("training", "step", "mpt", "H100", "fsdp") == "parts"
    assert known_of(ROWS).without("source=c").of("training", "step", "mpt", "A100", "fsdp") == "new"


def test_a_hidden_fold_takes_along_what_lies_in_it_alone() -> None:
    without = known_of(ROWS).without("fold=0")
    assert without.of("training", "step", "llama", "H100", "megatron") == "near"
    assert without.of("training", "step", "mpt", "A100", "fsdp") == "new"


def test_hiding_everything_leaves_nothing_known() -> None:
    assert known_of(ROWS).without("everything") == known_of(())


def test_the_shipped_table_knows_both_halves() -> None:
    assert {row.half for row in load_known().seen} == {"training", "inference"}


times = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("freedom", "published"), [(2, 1.886), (3, 1.638), (5, 1.476), (10, 1.372), (30, 1.310)]
)
def test_student_s_last_decile_is_the_published_one(freedom: int, published: float) -> None:
    assert student_quantile(0.9, freedom) == pytest.approx(published, rel=0.01)


def test_one_row_of_each_kind_has_the_assumed_spread() -> None:
    assert spread_factor([[1.0], [7.0]]) == 1 + ASSUMED_SPREAD_FRACTION


@given(groups=st.lists(times, min_size=1, max_size=4), scale=st.floats(1e-3, 1e3))
def test_a_spread_is_at_least_one_and_has_no_unit(groups: list[list[float]], scale: float) -> None:
    factor = spread_factor(groups)
    assert factor >= 1
    scaled = [[seconds * scale for seconds in group] for group in groups]
    assert spread_factor(scaled) == pytest.approx(factor, rel=1e-6)


def test_equal_repeats_leave_no_doubt() -> None:
    assert spread_factor([[2.0, 2.0], [3.0]]) == 1


def test_four_of_five_further_times_lie_within_it() -> None:
    """Brute force: draw repeats and one more, and count."""
    generator = np.random.default_rng(3)
    logs = generator.normal(0.0, 0.1, (4000, 2, 3))
    further = generator.normal(0.0, 0.1, 4000)
    held = [
        abs(one - np.mean(pair[0])) <= np.log(spread_factor(np.exp(pair).tolist()))
        for pair, one in zip(logs, further, strict=True)
    ]
    assert np.mean(held) == pytest.approx(0.8, abs=0.02)
