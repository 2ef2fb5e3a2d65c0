"""The smooth maximum lies between the larger cost and the sum of both."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.perf import smooth_max

costs = st.floats(0.0, 1e6)


@given(a=costs, b=costs, p=st.sampled_from([1.0, 2.0, 4.0, 8.0]))
def test_it_lies_between_the_larger_and_the_sum(a: float, b: float, p: float) -> None:
    found = float(smooth_max(a, b, p))
    assert max(a, b) * (1 - 1e-12) <= found <= (a + b) * (1 + 1e-12)
    assert found == float(smooth_max(b, a, p))


def test_it_is_the_p_norm() -> None:
    a, b = np.array([1.0, 2.0, 5.0]), np.array([1.0, 3.0, 0.0])
    for p in (2.0, 4.0, 6.0):
        assert smooth_max(a, b, p) == pytest.approx(np.linalg.norm(np.stack([a, b]), ord=p, axis=0))
