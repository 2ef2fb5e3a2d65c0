"""Split-conformal ranges by what is known of a row."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fits.ranges import Errors, groups, interval_rows, spread_rows, weighted_quantiles
from twofold.perf import load_constants, read_scope


def errors(*parts: tuple[str, str, str, Sequence[float]]) -> Errors:
    """Errors of (class, software, source, logarithms)."""
    log = np.concatenate([np.asarray(part[3], float) for part in parts])
    scope = tuple({"known": part[0], "software": part[1]} for part in parts for _ in part[3])
    source = np.array([part[2] for part in parts for _ in part[3]])
    return Errors(log, scope, source, np.full(log.size, "0"), np.arange(log.size))


def spread_about(middle: float, width: float, count: int = 200) -> Sequence[float]:
    return list(np.random.default_rng(7).normal(middle, width, count))


def test_quantiles_weigh_sources_alike() -> None:
    values = np.concatenate([np.zeros(1000), np.ones(100)])
    source = np.array(["large"] * 1000 + ["small"] * 100)
    assert weighted_quantiles(values, source, (0.10, 0.90), 1100) == (0.0, 1.0)


@settings(max_examples=30)
@given(st.integers(0, 1000))
def test_a_range_holds_further_rows_of_its_group_as_often_as_it_says(seed: int) -> None:
    generator = np.random.default_rng(seed)
    seen, further = generator.standard_t(5, 400) * 0.1, generator.standard_t(5, 4000) * 0.1
    rows = interval_rows("training_step", errors(("near", "x", "s", seen)), ("software",), {})
    found = {row.scope: row for row in rows if "95" not in row.name}["known=near;software=x"]
    inside = np.mean((further > np.log(found.low)) & (further < np.log(found.high)))
    assert 0.76 < inside < 0.92  # 84 % are meant: two per cent more than 80 % at either end


def test_what_is_less_known_is_never_surer() -> None:
    """INV-19."""
    of_parts = errors(
        ("near", "x", "a", spread_about(0.0, 0.3)),
        ("parts", "x", "a", spread_about(0.0, 0.1)),
        ("parts", "x", "b", spread_about(0.0, 0.1)),
    )
    found = {
        row.scope: row for row in interval_rows("training_step", of_parts, (), {}) if "95" not in row.name
    }
    assert found["known=parts"].low <= found["known=near"].low
    assert found["known=parts"].high >= found["known=near"].high


def test_a_group_of_few_errors_or_of_one_unseen_source_has_no_range_of_its_own() -> None:
    of_all = errors(
        ("near", "rare", "a", spread_about(0.0, 0.1, 10)),
        ("near", "usual", "a", spread_about(0.0, 0.1)),
        ("parts", "usual", "b", spread_about(0.0, 0.1)),
    )
    near = of_all.kept(np.array([each["known"] == "near" for each in of_all.scope]))
    parts = of_all.kept(np.array([each["known"] == "parts" for each in of_all.scope]))
    assert [path for path, _ in groups(near, ("software",), "near")] == [(), ("usual",)]
    assert list(groups(parts, ("software",), "parts")) == []


def test_ninety_five_per_cent_is_wider_than_eighty() -> None:
    rows = interval_rows(
        "serving", errors(("near", "x", "a", spread_about(0.1, 0.2))), (), {"metric": "tpot"}
    )
    by_name = {(row.name, row.scope): row for row in rows}
    narrow = by_name["interval_serving_ratio", "known=near;metric=tpot"]
    wide = by_name["interval_serving_95_ratio", "known=near;metric=tpot"]
    assert wide.low < narrow.low < narrow.high < wide.high


def test_memory_is_one_sided_and_its_upper_end_decides_what_fits() -> None:
    rows = interval_rows(
        "training_memory", errors(("near", "x", "a", spread_about(0.0, 0.1, 2000))), ("software",), {}
    )
    near = next(row for row in rows if row.scope == "known=near;software=x" and "95" not in row.name)
    assert np.log(near.high) == pytest.approx(0.1645, abs=0.01)
    assert np.log(near.low) == pytest.approx(-0.1175, abs=0.01)
    spread = {row.scope: row for row in spread_rows(rows)}
    assert spread["software=x"].value == near.high
    assert set(spread) == {"", "software=x"}
    assert spread[""].value >= spread["software=x"].value


def test_a_group_of_a_surer_class_is_no_surer_where_less_is_known() -> None:
    """INV-19, where the less known class has no such group of its own."""
    of_all = errors(
        ("near", "noisy", "a", spread_about(0.0, 0.5)),
        ("near", "calm", "b", spread_about(0.0, 0.05)),
        ("parts", "calm", "a", spread_about(0.0, 0.05)),
        ("parts", "calm", "b", spread_about(0.0, 0.05)),
    )
    found = {row.scope: row for row in interval_rows("training_step", of_all, ("software",), {})}
    near, parts = (found[f"known={known};software=noisy"] for known in ("near", "parts"))
    assert parts.low <= near.low and parts.high >= near.high


def test_no_shipped_range_is_narrower_where_less_is_known() -> None:
    """INV-19."""
    constants = load_constants()
    rows = [row for row in constants.rows if row.name.startswith("interval_") and row.fitted_by == "ranges"]
    for row in rows:
        scope = dict(read_scope(row.scope))
        for less in {"near": ("parts", "new"), "parts": ("new",)}.get(scope.get("known", ""), ()):
            other = constants.estimate(row.name, **{**scope, "known": less})
            assert other.low <= row.low * 1.0001 and other.high >= row.high / 1.0001, row
