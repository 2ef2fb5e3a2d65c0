"""Laws over the catalogue: better hardware never makes a plan slower or dearer, and units do not matter."""

import csv
import io
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from twofold.answer.paths import is_estimate, leaves
from twofold.catalog.catalog import Catalog
from twofold.catalog.schema import DATA, schema
from twofold.catalog.tables import Source
from twofold.catalog.types import Accelerator
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import parse_spec
from twofold.core.data import to_data
from twofold.perf.constants import Constants
from twofold.planner.build import PlanOptions, build_plan

SPEC = """
name: law
model: llama-3.1-8b
training:
  tokens: 20 Gtok
  global_batch: 256 seq
  on: 2x8xH100-SXM
serving:
  quantisation: fp8
  classes:
    chat:
      traffic: {rate: 40 /s, input: {mean: 700 tok}, output: {mean: 200 tok}}
      slo: {ttft_p95: 800 ms, tpot_p95: 60 ms}
  on: 2xH100-SXM
"""
FEW_DRAWS = PlanOptions(draw_count=20)


Better = Callable[[Accelerator, float], Accelerator]


class Scaled:
    """The catalogue with every accelerator changed. Everything else is asked of the real one."""

    def __init__(self, catalog: Catalog, change: Callable[[Accelerator], Accelerator]) -> None:
        self._catalog, self._change = catalog, change

    def accelerator(self, name: str) -> Accelerator:
        return self._change(self._catalog.accelerator(name))

    def rows(self, kind: type[Any]) -> tuple[Any, ...]:
        rows = self._catalog.rows(kind)
        return tuple(self._change(each) for each in rows) if kind is Accelerator else rows

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog, name)


def more_compute(part: Accelerator, factor: float) -> Accelerator:
    # A faster clock needs its power: without it the model rightly says that the part throttles.
    rates = [f.name for f in fields(Accelerator) if f.name.endswith("_flops_per_s")]
    return replace(
        part, tdp_w=part.tdp_w * factor, **{n: (getattr(part, n) or 0) * factor or None for n in rates}
    )


def more_bandwidth(part: Accelerator, factor: float) -> Accelerator:
    return replace(part, memory_bytes_per_s=part.memory_bytes_per_s * factor)


def more_memory(part: Accelerator, factor: float) -> Accelerator:
    return replace(part, memory_bytes=part.memory_bytes * factor)


def more_link(part: Accelerator, factor: float) -> Accelerator:
    return replace(part, scaleup_bytes_per_s=part.scaleup_bytes_per_s * factor)


def plan_on(catalog: object, constants: Constants) -> Plan:
    spec = parse_spec(SPEC, "law.yaml")
    return build_plan(spec, catalog, constants, spec_digest="", options=FEW_DRAWS).plan  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def before(catalog: Catalog, constants: Constants) -> Plan:
    return plan_on(catalog, constants)


@pytest.mark.parametrize("factor", [1.03, 1.25, 2.0])
@pytest.mark.parametrize("better", [more_compute, more_bandwidth, more_memory, more_link])
def test_better_hardware_is_never_slower_or_dearer(
    catalog: Catalog, constants: Constants, before: Plan, better: Better, factor: float
) -> None:  # INV-2
    after = plan_on(Scaled(catalog, lambda part: better(part, factor)), constants)
    slack = 1 + 1e-6
    assert after.training[0].step_s.value <= before.training[0].step_s.value * slack
    assert after.training[0].run.total_s.value <= before.training[0].run.total_s.value * slack
    old, new = before.training[0].cost_usd, after.training[0].cost_usd
    assert old and new and new.value <= old.value * slack
    per_replica = [plan.serving[0].classes[0].rate_per_replica_per_s.value for plan in (before, after)]
    assert after.serving[0].machine.accelerator_count <= before.serving[0].machine.accelerator_count
    assert after.serving[0].replica != before.serving[0].replica or per_replica[1] >= per_replica[0] / slack


SMALLER_UNIT = {"GB/s": "MB", "GB": "MB", "TFLOP/s": "GB"}  # factors of 1e6, 1e6 and 1e9: a thousandth each


def in_smaller_units(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """Our catalogue with its accelerators written in units a thousand times smaller."""
    columns = schema()["accelerators"]
    smaller = tuple(replace(column, unit=SMALLER_UNIT.get(column.unit, column.unit)) for column in columns)
    monkeypatch.setitem(schema(), "accelerators", smaller)
    sources = {name: Source(f"{name}.csv", (DATA / f"{name}.csv").read_bytes()) for name in schema()}
    header, *rows = csv.reader(io.StringIO(sources["accelerators"].data.decode()))
    changed = {column.name for column in columns if column.unit in SMALLER_UNIT}
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    for row in rows:
        cells = [
            f"{float(cell) * 1000:.10g}" if cell and name in changed else cell
            for name, cell in zip(header, row, strict=True)
        ]
        writer.writerow(cells)
    sources["accelerators"] = Source("accelerators.csv", out.getvalue().encode())
    return Catalog(sources, {})


def test_a_catalogue_in_other_base_units_gives_the_same_plan(
    catalog: Catalog, constants: Constants, monkeypatch: pytest.MonkeyPatch
) -> None:  # INV-6
    usual = to_data(plan_on(catalog, constants))
    other = to_data(plan_on(in_smaller_units(monkeypatch), constants))
    assert other["digests"].pop("catalog") != usual["digests"].pop("catalog")
    before, after = dict(leaves(usual)), dict(leaves(other))
    assert before.keys() == after.keys()
    for path, leaf in before.items():
        number = leaf["value"] if is_estimate(leaf) else leaf
        again = after[path]["value"] if is_estimate(leaf) else after[path]
        assert again == (pytest.approx(number, rel=1e-9) if isinstance(number, float) else number), path
