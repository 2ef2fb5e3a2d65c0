"""The pooled fit finds what it was given, stays within physics, and the shipped constants fit the tables."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fits.kernel_classes import ClassConstants, write_classes
from fits.kernels import SLICES, constant_rows, fit
from fits.pooled import Pooled, Prior, fit_pooled
from twofold.catalog.catalog import load_catalog
from twofold.measure.kernel_scores import read_classes
from twofold.measure.kernel_tables import ACCELERATORS, Array, Predict, Rows, families, held_out
from twofold.perf.constants import load_constants
from twofold.perf.device import device
from twofold.perf.operators import gemm_s

TRUTH = Path(__file__).parents[3] / "shared" / "truth"
FAMILIES = {"a1": "old", "a2": "old", "b1": "new"}
PRIORS = (Prior("rate", 0.5, 0.5, 0.05, 1.0), Prior("floor_s", 2e-6, 1.0, 1e-7, 1e-4))


def drawn_rows(rates: dict[str, float], noise_log: float, seed: int) -> Rows:
    """Rows of `work / rate + floor` with rates by leaf."""
    generator = np.random.default_rng(seed)
    leaf = np.array(sorted(rates)).repeat(60)
    work_s = 10 ** generator.uniform(-7, -2, leaf.size)

    def predict(values: Mapping[str, Array]) -> Array:
        return np.asarray(work_s / values["rate"] + values["floor_s"])

    true = {"rate": np.array([rates[one] for one in leaf]), "floor_s": np.full(leaf.size, 5e-6)}
    noise = np.exp(generator.normal(0.0, noise_log, leaf.size))
    return rows_of(leaf, predict(true) * noise, predict)


def rows_of(leaf: np.ndarray, measured_s: np.ndarray, predict: Predict) -> Rows:
    """Rows of one kernel, all of them seen by the fit."""
    one = np.full(leaf.size, "one")
    return Rows(leaf, one, measured_s, predict, np.zeros(leaf.size, bool), one, np.ones(leaf.size, bool))


def rate(pooled: Pooled, node: str) -> float:
    return pooled.values["rate", node]


def test_a_fit_finds_the_constants_that_made_the_rows() -> None:
    pooled = fit_pooled(drawn_rows({"a1": 0.7, "a2": 0.8, "b1": 0.4}, 0.05, 1), PRIORS, FAMILIES)
    for leaf, true in (("a1", 0.7), ("a2", 0.8), ("b1", 0.4)):
        assert rate(pooled, leaf) == pytest.approx(true, rel=0.05)
        assert pooled.values["floor_s", leaf] == pytest.approx(5e-6, rel=0.1)


def test_a_part_without_rows_takes_its_familys_value_and_a_family_that_of_all() -> None:
    pooled = fit_pooled(drawn_rows({"a1": 0.8}, 0.05, 2), PRIORS, FAMILIES)
    assert rate(pooled, "a2") == pytest.approx(rate(pooled, "old"), rel=1e-4)
    assert rate(pooled, "new") == pytest.approx(rate(pooled, ""), rel=1e-4)
    assert rate(pooled, "") < rate(pooled, "old") < rate(pooled, "a1")  # each nearer to the prior


def test_wild_rows_hardly_move_a_fit() -> None:
    clean = drawn_rows({"a1": 0.6}, 0.03, 3)
    wild_s = clean.measured_s.copy()
    wild_s[::15] *= 8.0
    spoilt = rows_of(clean.leaf, wild_s, clean.predict)
    assert rate(fit_pooled(spoilt, PRIORS, FAMILIES), "a1") == pytest.approx(
        rate(fit_pooled(clean, PRIORS, FAMILIES), "a1"), rel=0.04
    )


def test_no_value_leaves_its_physical_bounds() -> None:
    pooled = fit_pooled(drawn_rows({"a1": 3.0}, 0.05, 4), PRIORS, FAMILIES)  # three times what physics allows
    assert all(value <= 1.0 for (name, _), value in pooled.values.items() if name == "rate")


def test_a_parent_is_less_sure_than_its_children() -> None:
    spreads = fit_pooled(drawn_rows({"a1": 0.7, "b1": 0.4}, 0.05, 5), PRIORS, FAMILIES).spreads_log
    assert spreads["rate", "a1"] < spreads["rate", "old"] < spreads["rate", ""]


@pytest.fixture(scope="module")
def truth() -> Path:
    if not TRUTH.is_dir():
        pytest.skip("the kernel tables are not beside this checkout: ../shared/truth")
    return TRUTH


# Mean error over an accelerator's bf16 products, as the goal of the fit states it.
@pytest.mark.parametrize(
    "name", ["A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM5-141GB", "B200-SXM-180GB", "GB200-186GB"]
)
def test_shipped_constants_predict_bf16_products_within_twelve_percent(truth: Path, name: str) -> None:
    one = device(load_catalog().accelerator(name), load_constants())
    rows = SLICES[0].build(truth, load_constants())
    errors = np.abs(rows.predict({}) / rows.measured_s - 1.0)[rows.leaf == name]
    assert errors.mean() <= 0.12
    assert float(gemm_s(one, 8192, 8192, 8192, "bf16")) > 0


def test_shipped_constants_predict_collectives_within_twelve_percent(truth: Path) -> None:
    part = next(one for one in SLICES if one.title == "collectives nccl")
    rows = part.build(truth, load_constants())
    assert np.abs(rows.predict({}) / rows.measured_s - 1.0).mean() <= 0.12


def test_the_fit_reproduces_the_shipped_rows(truth: Path) -> None:
    shipped = {(row.name, row.scope): row for row in load_constants().rows if row.fitted_by == "kernels"}
    fitted = {(row.name, row.scope): row for row in fit(truth, load_constants()).rows}
    assert fitted.keys() == shipped.keys()
    for key, row in fitted.items():
        assert row.value == pytest.approx(shipped[key].value, rel=0.02), key


def test_one_configuration_in_five_is_held_out_whatever_the_order_or_the_time() -> None:
    rows = [{"gpu": "a100", "m": str(m), "time_us": "1", "framework_version": "1"} for m in range(2000)]
    chosen = held_out(rows)
    assert 0.15 < chosen.mean() < 0.25
    changed = [row | {"time_us": "7", "framework_version": "2"} for row in rows]
    assert np.array_equal(held_out(changed[::-1])[::-1], chosen)


def test_a_fit_does_not_feel_rows_that_it_leaves_out() -> None:
    clean = drawn_rows({"a1": 0.6}, 0.03, 6)
    out = np.arange(clean.leaf.size) % 5 == 0
    spoilt = rows_of(clean.leaf, np.where(out, 1.0, clean.measured_s), clean.predict)
    assert rate(fit_pooled(spoilt, PRIORS, FAMILIES, ~out), "a1") == pytest.approx(
        rate(fit_pooled(clean, PRIORS, FAMILIES, ~out), "a1"), rel=1e-6
    )


def test_rows_are_written_for_measured_nodes_alone() -> None:
    part = SLICES[0]
    leaf = np.array(["A100-SXM4-80GB"] * 30)
    rows = rows_of(leaf, np.full(30, 1e-3), lambda values: values["kernel_floor_s"] * 400.0)
    scopes = {row.scope for row in constant_rows(part, rows, fit_pooled(rows, part.priors, families()))}
    assert scopes == {
        "",
        "format=bf16",
        "family=ampere",
        "family=ampere;format=bf16",
        "accelerator=A100-SXM4-80GB;family=ampere",
        "accelerator=A100-SXM4-80GB;family=ampere;format=bf16",
    }
    assert set(families()) == set(ACCELERATORS.values())


def test_classes_survive_writing_to_four_digits(tmp_path: Path) -> None:
    found = [
        ClassConstants("gemm fp8 one", "L40S", 12, {"a_fraction": 0.123456}),
        ClassConstants("experts fp8 two", "L40S", 3, {"b_s": 1.23456e-6}),
    ]
    write_classes(found, tmp_path / "classes.csv")
    known = read_classes(tmp_path / "classes.csv")
    assert known["gemm fp8 one", "L40S"] == {"a_fraction": 0.1235}
    assert known["experts fp8 two", "L40S"] == {"b_s": 1.235e-6}
