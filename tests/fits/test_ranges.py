"""Ranges by what is known of a row, as wide as the errors on sources left out."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fits.left_out import held_widths, left_out, ranges_of, strays_of
from fits.ranges import Errors, groups, left_out_rows, memory_rows, spread_of, spread_rows
from twofold.perf.constants import load_constants, read_scope


def errors(*parts: tuple[str, str, str, Sequence[float]]) -> Errors:
    """Errors of (class, software, source, logarithms)."""
    log = np.concatenate([np.asarray(part[3], float) for part in parts])
    scope = tuple({"known": part[0], "software": part[1]} for part in parts for _ in part[3])
    source = np.array([part[2] for part in parts for _ in part[3]])
    return Errors(log, scope, source, np.full(log.size, "0"))


def spread_about(middle: float, width: float, count: int = 200) -> Sequence[float]:
    return list(np.random.default_rng(7).normal(middle, width, count))


def test_sources_weigh_alike_however_many_rows_they_have() -> None:
    found = spread_of(errors(("near", "x", "large", [0.0] * 1000), ("near", "x", "small", [1.0] * 10)))
    assert (found.middle, found.between, found.within) == pytest.approx((0.5, 0.5, 0.0))


def test_the_spread_within_a_source_and_between_sources_are_told_apart() -> None:
    generator = np.random.default_rng(3)
    middles = generator.normal(0.0, 0.2, 60)
    parts = [("near", "x", f"s{n}", generator.normal(middle, 0.1, 200)) for n, middle in enumerate(middles)]
    found = spread_of(errors(*parts))
    assert found.between**0.5 == pytest.approx(np.std(middles, ddof=1), rel=0.05)
    assert found.within**0.5 == pytest.approx(0.1, rel=0.05)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from([4, 8, 20]))
def test_a_range_holds_the_rows_of_further_sources(seed: int, count: int) -> None:
    """Over many further sources, each with an error of its own, and however few were seen."""
    generator = np.random.default_rng(seed)
    middles = generator.normal(0.0, 0.1, count)
    parts = [("near", "x", f"s{n}", generator.normal(middle, 0.1, 60)) for n, middle in enumerate(middles)]
    rows = memory_rows(errors(*parts))
    found = {row.scope: row for row in rows if "95" not in row.name}["known=near;software=x"]
    further = generator.normal(generator.normal(0.0, 0.1, 2000), 0.1)
    inside = np.mean((further > np.log(found.low)) & (further < np.log(found.high)))
    assert inside > (0.5 if count == 4 else 0.6)
    assert inside < 0.98


def test_ranges_hold_as_often_as_they_say_on_average() -> None:
    generator, held = np.random.default_rng(11), []
    for _ in range(60):
        middles = generator.normal(0.0, 0.1, 6)
        parts = [("near", "x", f"s{n}", generator.normal(each, 0.1, 40)) for n, each in enumerate(middles)]
        low, high = spread_of(errors(*parts)).ends((0.1, 0.9))
        further = generator.normal(generator.normal(0.0, 0.1, 500), 0.1)
        held.append(np.mean((further > low) & (further < high)))
    assert 0.77 < np.mean(held) < 0.86


def test_few_sources_take_the_spread_of_their_parent() -> None:
    parent = spread_of(errors(*(("near", "x", f"s{n}", [0.3 * (-1) ** n] * 9) for n in range(20))))
    pair = errors(("near", "y", "a", [0.0] * 9), ("near", "y", "b", [0.01] * 9))
    alone, shrunk = spread_of(pair), spread_of(pair, parent)
    assert alone.between < 0.001 < 0.03 < shrunk.between < parent.between


def test_what_is_less_known_is_never_surer() -> None:
    """INV-19."""
    of_parts = errors(
        ("near", "x", "a", spread_about(0.0, 0.3)),
        ("parts", "x", "a", spread_about(0.0, 0.1)),
        ("parts", "x", "b", spread_about(0.0, 0.1)),
    )
    found = {row.scope: row for row in memory_rows(of_parts, ()) if "95" not in row.name}
    assert found["known=parts"].low <= found["known=near"].low
    assert found["known=parts"].high >= found["known=near"].high


def test_a_group_of_few_errors_or_of_one_unseen_source_has_no_range_of_its_own() -> None:
    of_all = errors(
        ("near", "rare", "a", spread_about(0.0, 0.1, 10)),
        ("near", "usual", "a", spread_about(0.0, 0.1)),
        ("near", "usual", "b", spread_about(0.0, 0.1)),
        ("parts", "usual", "b", spread_about(0.0, 0.1)),
    )
    near = of_all.kept(np.array([each["known"] == "near" for each in of_all.scope]))
    parts = of_all.kept(np.array([each["known"] == "parts" for each in of_all.scope]))
    assert [path for path, _ in groups(near, ("software",))] == [("usual",)]
    assert list(groups(parts, ("software",))) == []


def test_ninety_five_per_cent_is_wider_than_eighty() -> None:
    told = errors(("near", "x", "a", spread_about(0.1, 0.2)))
    rows = left_out_rows("serving", told, ("known",), {"metric": "tpot"})
    by_name = {(row.name, row.scope): row for row in rows}
    narrow = by_name["interval_serving_ratio", "known=near;metric=tpot"]
    wide = by_name["interval_serving_95_ratio", "known=near;metric=tpot"]
    assert wide.low < narrow.low < narrow.high < wide.high


def test_memory_is_one_sided_and_its_upper_end_decides_what_fits() -> None:
    one = [*np.linspace(-0.1, 0.1, 101)]  # deciles at ±0.08: as of a normal spread of 0.0624
    parts = [("near", "x", f"s{n}", one) for n in range(40)]
    rows = memory_rows(errors(*parts))
    near = next(row for row in rows if row.scope == "known=near;software=x" and "95" not in row.name)
    assert np.log(near.high) == pytest.approx(0.0624 * 1.685, rel=0.02)
    assert np.log(near.low) == pytest.approx(-0.0624 * 1.304, rel=0.02)
    spread = {row.scope: row for row in spread_rows(rows)}
    assert spread["software=x"].value == pytest.approx(near.high, rel=1e-3)
    assert set(spread) == {"", "software=x"}
    assert spread[""].value >= spread["software=x"].value


def test_a_group_of_a_surer_class_is_no_surer_where_less_is_known() -> None:
    """INV-19, where the less known class has no such group of its own."""
    of_all = errors(
        ("near", "noisy", "a", spread_about(0.0, 0.5)),
        ("near", "noisy", "b", spread_about(0.0, 0.5)),
        ("near", "calm", "b", spread_about(0.0, 0.05)),
        ("parts", "calm", "a", spread_about(0.0, 0.05)),
        ("parts", "calm", "b", spread_about(0.0, 0.05)),
    )
    found = {row.scope: row for row in memory_rows(of_all)}
    near, parts = (found[f"known={known};software=noisy"] for known in ("near", "parts"))
    assert parts.low <= near.low and parts.high >= near.high


def strayed(
    seed: int, count: int, between: float = 0.1, kinds: Sequence[str] = ("dense",)
) -> tuple[Sequence[float], list[dict[str, str]], list[str]]:
    """Errors of `count` sources of 40 rows, an error of its own each; rows of `moe` stray twice as far."""
    generator = np.random.default_rng(seed)
    log, scope, source = [], [], []
    for number in range(count):
        own = generator.standard_t(4) * between
        for row in range(40):
            kind = kinds[row % len(kinds)]
            log.append((own + generator.normal(0.0, 0.1)) * (2.0 if kind == "moe" else 1.0))
            scope.append({"arch": kind, "known": "parts"})
            source.append(f"s{number}")
    return log, scope, source


@pytest.mark.parametrize("count", [4, 6, 10, 18])
@pytest.mark.parametrize("between", [0.05, 0.3])
def test_ranges_hold_four_fifths_of_further_sources_however_many_were_seen(
    count: int, between: float
) -> None:
    """On average, without a mass of its own for the source that was not seen."""
    held, generator = [], np.random.default_rng(5)
    for seed in range(60):
        log, scope, source = strayed(seed, count, between)
        found = dict_of(log, scope, source, ("arch",))[(("arch", "dense"),)]
        further = generator.normal(generator.standard_t(4, 400) * between, 0.1)
        held.append(np.mean((further > found[0]) & (further < found[1])))
    assert np.mean(held) == pytest.approx(0.8, abs=0.05)


def dict_of(
    log: Sequence[float], scope: list[dict[str, str]], source: list[str], keys: Sequence[str]
) -> dict[tuple[tuple[str, str], ...], tuple[float, float]]:
    left = left_out(np.array(log), scope, np.array(source), keys)
    return {tuple(classes.items()): ends[0] for classes, ends in ranges_of(left, (0.8,))}


def test_rows_that_stray_farther_have_the_wider_range_and_the_others_the_narrower() -> None:
    found = dict_of(*strayed(1, 12, kinds=("dense", "moe")), ("arch",))
    dense, moe = (found[(("arch", kind),)] for kind in ("dense", "moe"))
    assert 1.5 < (moe[1] - moe[0]) / (dense[1] - dense[0]) < 2.2
    assert found[()] == moe, "of a kind that nobody measured: the widest"


def test_a_class_of_few_sources_is_not_narrower_than_all() -> None:
    log, scope, source = strayed(2, 12)
    quiet = [each in ("s0", "s1", "s2", "s3") for each in source]
    log = [0.1 * each if calm else each for each, calm in zip(log, quiet, strict=True)]
    scope = [each | {"arch": "calm" if calm else "dense"} for each, calm in zip(scope, quiet, strict=True)]
    left = left_out(np.array(log), scope, np.array(source), ("arch",))
    assert strays_of(left).factors["arch", "calm"] == 1.0


def test_a_source_s_weight_does_not_grow_with_its_rows() -> None:
    log, scope, source = strayed(3, 9)
    again = [*log, *log[:40] * 9], scope + scope[:40] * 9, source + source[:40] * 9
    few, many = (
        held_widths(left_out(np.array(a), b, np.array(c), ("arch",)), (0.8,))
        for a, b, c in ((log, scope, source), again)
    )
    assert many == pytest.approx(few, rel=0.02)


def test_no_shipped_range_is_narrower_where_less_is_known() -> None:
    """INV-19."""
    constants = load_constants()
    rows = [row for row in constants.rows if row.name.startswith("interval_") and row.fitted_by == "ranges"]
    for row in rows:
        scope = dict(read_scope(row.scope))
        for less in {"near": ("parts", "new"), "parts": ("new",)}.get(scope.get("known", ""), ()):
            other = constants.estimate(row.name, **{**scope, "known": less})
            assert other.low <= row.low * 1.0001 and other.high >= row.high / 1.0001, row
