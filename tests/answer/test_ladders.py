"""Ladders: every axis on every example, rungs that move as physics says, and what each is built from."""

from itertools import pairwise
from pathlib import Path

import pytest

from twofold.answer.ladder_training import Ladder, Value
from twofold.answer.ladders import AXES, OF_RUNS, OF_SERVICES, Ladders, compare_along
from twofold.answer.uncertainty import FACTORS
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.reader import parse_spec, read_spec
from twofold.contracts.spec.spec import Spec
from twofold.core.errors import InputError, ValueRefusedError
from twofold.core.estimate import Estimate
from twofold.perf.constants import Constants
from twofold.planner.build import build_plan

EXAMPLES = Path(__file__).parents[2] / "examples"


def climb(axis: str, spec: Spec, catalog: Catalog, constants: Constants) -> Ladders:
    made = build_plan(spec, catalog, constants, spec_digest="0")
    return compare_along(axis, made.runs, made.services, made.context)


def number(value: Value) -> float:
    assert value is not None
    return value.value if isinstance(value, Estimate) else float(value)


def column(ladder: Ladder, key: str) -> list[float]:
    return [number(rung.values[key]) for rung in ladder.rungs if rung.values.get(key) is not None]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("example", ["moe", "laptop"])
def test_every_axis_answers_for_every_run_and_service_it_fits(
    axis: str, example: str, catalog: Catalog, constants: Constants
) -> None:
    spec = read_spec(EXAMPLES / example / "twofold.yaml")
    answer = climb(axis, spec, catalog, constants)
    wanted = {run.name for run in spec.training if axis in OF_RUNS}
    wanted |= {service.name for service in spec.services if axis in OF_SERVICES}
    assert {ladder.name for ladder in answer.ladders} == wanted
    for ladder in answer.ladders:
        assert len({rung.label for rung in ladder.rungs}) == len(ladder.rungs)
        for rung in ladder.rungs:
            # A part without a price has no dollars; anything else that is missing is explained.
            counted = [key for key in ladder.columns if "usd" not in key]
            assert rung.note or all(rung.values.get(key) is not None for key in counted), rung


def test_every_service_of_a_portfolio_has_its_three_classes(catalog: Catalog, constants: Constants) -> None:
    spec = read_spec(EXAMPLES / "portfolio" / "twofold.yaml")
    ladders = climb("size", spec, catalog, constants).ladders
    assert [ladder.name for ladder in ladders] == [s.name for s in spec.services for _ in range(3)]
    priced = 0
    for ladder in ladders:
        answering = [rung.values for rung in ladder.rungs if not rung.note]
        bounds = ("bandwidth", "compute", "capacity", "link", "host")
        assert all(str(values["bound_by"]).startswith(bounds) for values in answering)
        costs = [cost.value for each in answering if isinstance(cost := each["usd_per_1k_tokens"], Estimate)]
        assert costs == sorted(costs)
        priced += len(costs) > 1
    assert priced >= 4, "where one class alone has a price, no order was held"


def test_every_axis_belongs_to_a_half() -> None:
    assert set(AXES) == set(OF_RUNS) | set(OF_SERVICES)


def test_an_unknown_axis_is_refused(catalog: Catalog, constants: Constants) -> None:
    spec = read_spec(EXAMPLES / "assistant" / "twofold.yaml")
    with pytest.raises(InputError):
        climb("colour", spec, catalog, constants)


def test_a_job_on_one_node_does_not_feel_the_fabric(catalog: Catalog, constants: Constants) -> None:
    text = "training: {model: llama-3.1-8b, tokens: 1 Gtok, global_batch: 64 seq, on: 8xH100-SXM}\n"
    (ladder,) = climb("fabric", parse_spec(text, "spec"), catalog, constants).ladders
    steps = column(ladder, "step_s")
    assert max(steps) == pytest.approx(min(steps), rel=3e-3)  # its jitter alone
    assert "one node" in ladder.notes[0]


def test_a_larger_overhead_costs_more(catalog: Catalog, constants: Constants) -> None:
    run = "training: {model: llama-3.1-8b, tokens: 1 Gtok, global_batch: 64 seq, on: 8x8xH100-SXM}\n"
    steps = []
    for share in ("2 %", "10 %"):
        spec = parse_spec(f"{run}supply: {{virtual_overhead: {share}}}\n", "spec")
        (ladder,) = climb("tenancy", spec, catalog, constants).ladders
        bare, virtual = column(ladder, "step_s")
        steps.append(virtual / bare)
    assert 1 < steps[0] < steps[1] <= 1.1001


@pytest.mark.parametrize("example", ["assistant", "moe"])
def test_a_ladder_starts_from_the_machines_and_the_run_that_the_plan_recommends(
    example: str, examples: dict[str, Plan], catalog: Catalog, constants: Constants
) -> None:
    plan = examples[example]
    found = climb("tenancy", read_spec(EXAMPLES / example / "twofold.yaml"), catalog, constants).ladders
    for half, ladder in zip(plan.halves, found, strict=True):
        assert half.machine.accelerator in ladder.title
        if isinstance(half, TrainingPlan):  # on bare metal or virtual, one of the rows is the plan's own
            rungs = [(rung.values["total_s"], rung.values["cost_usd"]) for rung in ladder.rungs]
            own = half.run.total_s, half.cost_usd
            shown = [
                tuple(f"{figure:.6g}" if figure else "" for figure in map(_middle, each)) for each in rungs
            ]
            assert tuple(f"{each.value:.6g}" if each else "" for each in own) in shown


def _middle(value: Value) -> float | None:
    return None if value is None else number(value)


def test_efficiency_is_throughput_per_device_over_the_first(catalog: Catalog, constants: Constants) -> None:
    text = "training: {model: llama-3.2-1b, tokens: 1 Gtok, global_batch: 256 seq, on: 8x8xH100-SXM}\n"
    weak, strong = climb("nodes", parse_spec(text, "spec"), catalog, constants).ladders
    for ladder in (weak, strong):
        rungs = [rung for rung in ladder.rungs if "step_s" in rung.values]
        per_device = [
            number(rung.values["tokens_per_s"]) / number(rung.values["accelerator_count"]) for rung in rungs
        ]
        for rung, rate in zip(rungs, per_device, strict=True):
            assert number(rung.values["efficiency_fraction"]) == pytest.approx(rate / per_device[0])
    # The same batch on twice the nodes is hardly ever slower than on half of them, and rarely twice as fast.
    steps = column(strong, "step_s")
    assert all(later <= earlier * 1.02 for earlier, later in pairwise(steps))


MEASURED = """
name: mixed
training:
  - {name: ranker, model: {measured: STEPS}, samples: 1 Gsamples, on: 8xH100-SXM}
serving:
  - name: embed
    model: {measured: BATCHES}
    on: 1xL40S
    classes: {images: {traffic: {rate: 100 /s}, slo: {e2e_p95: 1 s}}}
"""
MODELLED = """
  - {name: chat, model: llama-3.1-8b, on: 1xH100-SXM, classes: {c: {traffic: {rate: 1 /s}}}}
"""


@pytest.fixture
def measured(tmp_path: Path) -> str:
    steps, batches = tmp_path / "steps.csv", tmp_path / "batches.csv"
    steps.write_text("accelerator,accelerator_count,global_batch_samples,step_s\nH100-SXM,8,64,1\n", "utf-8")
    batches.write_text("batch_size,service_s\n1,0.01\n32,0.1\n", "utf-8")
    return MEASURED.replace("STEPS", str(steps)).replace("BATCHES", str(batches)).rstrip("\n")


@pytest.mark.parametrize("axis", ["context", "size", "format", "tenancy"])
def test_a_measured_service_before_a_modelled_one_leaves_the_table_to_it(
    axis: str, measured: str, catalog: Catalog, constants: Constants
) -> None:
    answer = climb(axis, parse_spec(measured + MODELLED, "mixed.yaml"), catalog, constants)
    assert {ladder.name for ladder in answer.ladders} == {"chat"}
    (warning,) = answer.warnings
    assert "embed" in warning and ("ranker" in warning) == (axis in OF_RUNS)


@pytest.mark.parametrize("axis", AXES)
def test_a_spec_of_measured_rows_alone_is_told_what_a_ladder_needs(
    axis: str, measured: str, catalog: Catalog, constants: Constants
) -> None:
    with pytest.raises(ValueRefusedError, match=f"the ladder `{axis}` needs a .* with a model") as caught:
        climb(axis, parse_spec(measured, "mixed.yaml"), catalog, constants)
    assert caught.value.exit_code == 2 and caught.value.hint


def test_every_unknown_has_its_bar_longest_first(examples: dict[str, Plan]) -> None:
    factors = examples["assistant"].factors
    assert {factor.name for factor in factors} == set(FACTORS)
    swings = [max(factor.step_swing_fraction or 0, factor.tpot_swing_fraction or 0) for factor in factors]
    assert swings == sorted(swings, reverse=True) and swings[0] > 0.02


def test_each_unknown_moves_what_it_is_about(examples: dict[str, Plan]) -> None:
    factors = {factor.name: factor for factor in examples["assistant"].factors}
    assert (factors["compute"].step_swing_fraction or 0) > 0.05
    assert (factors["memory_bandwidth"].tpot_swing_fraction or 0) > 0.02
    swings = (factor for plan in examples.values() for factor in plan.factors if factor.name == "fabric")
    assert any(
        (factor.step_swing_fraction or 0) > 0 for factor in swings
    )  # here and there all of it is hidden
    for name in ("price", "traffic", "failure_rate"):  # they move money and runs, not a step
        assert factors[name].step_swing_fraction == factors[name].tpot_swing_fraction == 0.0


def test_a_missing_half_has_no_bars(examples: dict[str, Plan]) -> None:
    assert all(factor.step_swing_fraction is not None for factor in examples["laptop"].factors)
