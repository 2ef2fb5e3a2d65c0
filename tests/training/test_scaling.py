import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.training.search import straggler_loss_fraction


def test_mixed_parts_lose_what_the_faster_could_have_done() -> None:
    # Half H100 at 1 s, half A100 at 3 s: 16/3 against 8/1 + 8/3.
    assert straggler_loss_fraction(np.array([1.0, 3.0]), [8, 8]) == pytest.approx(0.5)


@given(slow=st.floats(1, 100), counts=st.tuples(st.integers(1, 99), st.integers(1, 99)))
def test_a_mixed_pool_loses_between_nothing_and_all(slow: float, counts: tuple[int, int]) -> None:
    loss = straggler_loss_fraction(np.array([1.0, slow]), counts)
    assert -1e-12 <= loss < 1
    assert straggler_loss_fraction(np.array([1.0, 2 * slow]), counts) >= loss - 1e-12
