"""The one-screen plan: nothing leaves the screen, parts add up, every number says what it is."""

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.estimate import Estimate
from twofold.report.details import default_lines, detail_lines
from twofold.report.lines import WIDTH
from twofold.report.plan import plan_lines
from twofold.report.training import memory_lines, training_lines

once = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
factors = st.floats(1e-4, 1e4)


def scaled(estimate: Estimate, factor: float) -> Estimate:
    return replace(
        estimate, value=estimate.value * factor, low=estimate.low * factor, high=estimate.high * factor
    )


def everything(plan: Plan) -> list[str]:
    return [*plan_lines(plan), *detail_lines(plan), *default_lines(plan)]


def test_the_screen_has_its_blocks_and_the_figures_of_the_plan(plan: Plan) -> None:
    text = "\n".join(plan_lines(plan))
    for block in ("TRAINING", "SERVING", "TWO HALVES", "WHY NOT", "NOTE", "NUMBERS", "NEXT"):
        assert re.search(f"^{block}", text, re.MULTILINE), block
    assert "rent 64 × 8 H100-SXM5-80GB for 20.7 d, then release" in text
    assert "8.6 s [7.7–9.5] f" in text
    assert "41 d misses 30 d" in text
    assert "not rehearsed" in text


def test_no_line_leaves_the_screen(plan: Plan) -> None:
    assert all(len(line) <= WIDTH for line in everything(plan))


@once
@given(time=factors, money=factors, size=factors, name=st.text("abcdefgh-", min_size=1, max_size=64))
def test_no_size_of_number_or_name_leaves_the_screen(
    plan: Plan, time: float, money: float, size: float, name: str
) -> None:
    run, service = plan.training[0], plan.serving[0]
    run = replace(
        run,
        name=name,
        step_s=scaled(run.step_s, time),
        cost_usd=run.cost_usd and scaled(run.cost_usd, money),
        memory_bytes=scaled(run.memory_bytes, size),
    )
    service = replace(service, name=name, model=name, cold_start_s=scaled(service.cold_start_s, time))
    changed = replace(plan, name=name, training=(run, run), serving=(service,))
    assert all(len(line) <= WIDTH for line in everything(changed))


def test_the_parts_of_a_step_are_100_percent_and_the_run_adds_up(training: TrainingPlan) -> None:  # INV-1
    text = "\n".join(training_lines(training))
    (step,) = re.findall(r"^ {13}(compute \d+ %.*(?:\n {13}\S.*%)?)$", text, re.MULTILINE)
    assert sum(map(int, re.findall(r"(\d+) %", step))) == 100
    terms = re.search(
        r"([\d.]+) d compute \+ ([\d.]+) d checkpoints \+ ([\d.]+) d failures = ([\d.]+) d", text
    )
    assert terms
    *parts, total = map(float, terms.groups())
    assert sum(parts) == pytest.approx(total)


def test_the_parts_of_memory_add_up_on_the_screen(training: TrainingPlan) -> None:  # INV-1
    lines = memory_lines(training)
    parts = re.findall(r"(?:weights|gradients|optimiser|activations) ([\d.]+)", " ".join(lines))
    assert len(parts) == 4
    assert sum(map(float, parts)) == pytest.approx(training.memory_bytes.value / 2**30, abs=0.06)


def test_every_range_has_a_source_letter(plan: Plan) -> None:  # INV-7
    for line in everything(plan):
        for match in re.finditer(r"\[[\d.,]+–[\d.,]+\]", line):
            assert re.match(r" [mfva]\b|$", line[match.end() :]), line


def test_half_a_plan_shows_half_a_screen(plan: Plan) -> None:
    only_training = plan_lines(replace(plan, serving=(), cross=()))
    assert not [line for line in only_training if line.startswith(("SERVING", "TWO HALVES"))]
    only_serving = plan_lines(replace(plan, training=(), cross=()))
    assert not [line for line in only_serving if line.startswith(("TRAINING", "TWO HALVES"))]
    assert any("serving.serve" in line for line in only_serving)


def test_what_has_no_price_says_so(plan: Plan) -> None:
    run = plan.training[0]
    machine = replace(run.machine, price=None)
    bare = replace(plan, training=(replace(run, machine=machine, cost_usd=None),), first_year_usd=None)
    text = "\n".join(plan_lines(bare))
    assert text.count("no price") == 3
    assert "GPU-h" in text


def test_a_choice_that_the_unknown_could_turn_says_so(plan: Plan) -> None:
    assert any("a runner-up wins in 31 %" in line for line in plan_lines(plan))
    calm = replace(plan.training[0], flip_fraction=0.1)
    assert not any("runner-up" in line for line in plan_lines(replace(plan, training=(calm,))))


def test_a_missed_goal_is_marked(plan: Plan, service: ServicePlan) -> None:
    first, *rest = service.classes
    slow = replace(first, slos=(replace(first.slos[0], met=False), *first.slos[1:]))
    text = plan_lines(replace(plan, serving=(replace(service, classes=(slow, *rest)),)))
    assert sum("✗" in line for line in text if not line.startswith("MARKS")) == 2  # decided, and described


def test_measured_times_claim_nothing_about_memory_tokens_or_starts(plan: Plan) -> None:
    measured = replace(
        plan.serving[0],
        memory_bytes=None,
        memory_parts=(),
        bounds=(),
        batch_limit=None,
        cold_start_s=None,
        warm_pool_count=None,
        kv_utilisation_fraction=None,
        output_tokens_per_s_per_accelerator=None,
        peak_ratio=None,
    )
    text = "\n".join(plan_lines(replace(plan, training=(), serving=(measured,), cross=())))
    claims = ("  memory ", "cold start", "KV cache", "per device", "limited by", "reaches")
    assert [claim for claim in claims if claim in text] == []
    shown = "\n".join(plan_lines(plan))
    assert [claim for claim in claims if claim not in shown] == []


def test_a_measured_run_shows_what_its_rows_say_and_nothing_else(plan: Plan) -> None:
    run = plan.training[0]
    saved = replace(
        run.run.checkpoints,
        size_bytes=None,
        write_bytes_per_s=None,
        storage_bytes_per_s=None,
        storage_term=None,
    )
    measured = replace(
        run,
        model="dlrm",
        parameters=None,
        precision=None,
        framework=None,
        layout=None,
        step_parts=(),
        communication_exposed_fraction=None,
        mfu_fraction=None,
        peak_ratio=None,
        memory_bytes=None,
        memory_parts=(),
        memory_by_format=(),
        bounds=(),
        run=replace(run.run, flops=None, data_bytes_per_s=None, checkpoints=saved),
        batch_samples=65536,
    )
    alone = replace(plan, training=(measured,), serving=(), cross=())
    lines = [*plan_lines(alone), *detail_lines(alone)]
    text = "\n".join(lines)
    assert "rows of dlrm" in text and "batch of 65,536" in text and "its size was not measured" in text
    claims = ("  layout ", "MFU", "  memory ", "exposed", "reaches", "storage", "None", "MEMORY", "BOUNDS")
    assert [claim for claim in claims if claim in text] == []
    assert all(len(line) <= 100 for line in lines)
    assert "dlrm" in lines[0] and any("rows of dlrm" in line for line in note_and_number(lines))


def note_and_number(lines: list[str]) -> list[str]:
    """What stands below the headings NOTE and NUMBERS."""
    first = next(index for index, line in enumerate(lines) if line.startswith(("NOTE", "NUMBERS")))
    return lines[first:]
