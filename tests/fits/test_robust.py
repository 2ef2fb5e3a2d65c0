import numpy as np
import pytest

from fits.robust import Ridge, solve

FREE = Ridge(np.zeros(2), np.zeros((2, 2)), np.zeros(2), np.full(2, -5.0), np.full(2, 5.0))
AWAY = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


def line(logs):  # type: ignore[no-untyped-def]
    """Errors of rows that know the first constant, the second, and their sum; the truth is (0.5, -0.25)."""
    return (logs - np.array([0.5, -0.25])) @ AWAY.T


def test_a_fit_without_ridge_finds_what_made_the_rows() -> None:
    assert solve(line, np.ones(3), 0.1, FREE) == pytest.approx([0.5, -0.25], abs=1e-3)


def test_rows_of_no_weight_leave_every_constant_at_its_prior() -> None:
    ridge = Ridge(np.full(2, 0.1), np.eye(2), np.full(2, 0.1), FREE.low, FREE.high)
    assert solve(line, np.zeros(3), 0.1, ridge) == pytest.approx([0.1, 0.1])


def test_no_constant_leaves_its_bounds() -> None:
    bounded = Ridge(np.zeros(2), np.zeros((2, 2)), np.zeros(2), np.full(2, -0.1), np.full(2, 0.2))
    found = solve(line, np.ones(3), 0.1, bounded)
    assert found == pytest.approx([0.2, -0.1])


def test_one_wild_row_moves_a_constant_little() -> None:
    def with_outlier(logs):  # type: ignore[no-untyped-def]
        return np.concatenate([np.repeat(line(logs)[:, :2], 10, axis=1), logs[:, :1] - 9.0], axis=1)

    assert solve(with_outlier, np.ones(21), 0.1, FREE)[0] == pytest.approx(0.5, abs=0.1)


def test_a_constant_that_no_row_tells_follows_its_parent() -> None:
    ridge = Ridge(np.zeros(2), np.array([[1.0, 0.0], [-1.0, 1.0]]), np.zeros(2), FREE.low, FREE.high)

    def only_parent(logs):  # type: ignore[no-untyped-def]
        return np.repeat(logs[:, :1] - 0.5, 50, axis=1)

    parent, child = solve(only_parent, np.ones(50), 0.1, ridge)
    assert parent > 0.45 and child == pytest.approx(parent, abs=1e-3)
