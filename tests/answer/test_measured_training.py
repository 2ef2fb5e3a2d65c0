"""A training run given by measured steps: through the same run, cost and screens as a modelled one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.answer.paths import is_estimate, leaves
from twofold.contracts.results.ledger import total_usd
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.data import to_data
from twofold.core.errors import InfeasibleError, InputErrors, TableError, UnknownNameError, ValueRefusedError
from twofold.planner.explained import explain

Planned = Callable[[str], Plan]
HEAD = "accelerator,accelerator_count,global_batch_samples,step_s"
ROWS = "H100-SXM,8,65536,0.0412\nH100-SXM,16,65536,0.0231\nH100-SXM,64,65536,0.0088\n"
BATCH = 65536


def written(folder: Path, text: str = f"{HEAD}\n{ROWS}") -> Path:
    path = folder / "dlrm.csv"
    path.write_text(text, "utf-8")
    return path


def spec(path: Path, on: str = "", more: str = "", samples: str = "200 Gsamples") -> str:
    machines = f"  on: {on}\n" if on else ""
    return f"""
name: ads
training:
  name: ranker
  model: {{measured: {path}}}
  samples: {samples}
{machines}{more}"""


@pytest.fixture
def run(planned: Planned, tmp_path: Path) -> Callable[..., TrainingPlan]:
    def planned_run(
        on: str = "", more: str = "", rows: str = "", samples: str = "200 Gsamples"
    ) -> TrainingPlan:
        path = written(tmp_path, f"{HEAD}\n{rows or ROWS}" if not rows.startswith("accel") else rows)
        planned.cache_clear()  # type: ignore[attr-defined]  # the rows under one name differ
        return planned(spec(path, on, more, samples)).training[0]

    return planned_run


Run = Callable[..., TrainingPlan]


@pytest.mark.parametrize(
    ("on", "seconds"), [("8xH100-SXM", 0.0412), ("2x8xH100-SXM", 0.0231), ("8x8xH100-SXM", 0.0088)]
)
def test_a_measured_size_gives_its_row_back(run: Run, on: str, seconds: float) -> None:
    plan = run(on)
    assert plan.step_s.value == seconds and plan.step_s.source == "m"
    assert plan.step_s.low < seconds < plan.step_s.high
    assert plan.run.compute_s.value == pytest.approx(200e9 / BATCH * seconds, rel=1e-5)
    assert plan.run.compute_s.source == "m" and plan.run.wall_s.source == "f"


def test_a_size_between_rows_lies_between_them_and_says_so(run: Run) -> None:
    plan = run("4x8xH100-SXM")
    assert 0.0088 < plan.step_s.value < 0.0231 and plan.step_s.source == "m"
    assert any("32 accelerators were not measured" in text for text in plan.warnings)


def test_a_size_just_beyond_the_rows_is_assumed_with_a_wide_range(run: Run) -> None:
    plan = run("16x8xH100-SXM")
    assert plan.step_s.source == plan.run.accelerator_h.source == "a"
    assert plan.step_s.low <= 0.0044 and plan.step_s.high >= 0.0088
    assert any("128 accelerators are beyond the rows" in text for text in plan.warnings)


def test_a_size_far_beyond_the_rows_is_refused_with_what_would_do(run: Run) -> None:
    with pytest.raises(ValueRefusedError, match="says nothing of 256") as caught:
        run("32x8xH100-SXM")
    assert "4 to 128" in caught.value.hint


def test_hours_and_cost_scale_with_the_samples(run: Run) -> None:
    once, thrice = (run("8xH100-SXM", samples=f"{count} Gsamples") for count in (100, 300))
    assert thrice.run.steps == pytest.approx(3 * once.run.steps, rel=1e-6)
    for figure in ("compute_s", "wall_s", "total_s", "accelerator_h", "energy_j", "interruptions"):
        first, second = getattr(once.run, figure), getattr(thrice.run, figure)
        assert second.value == pytest.approx(3 * first.value, rel=1e-5), figure
    assert once.cost_usd and thrice.cost_usd
    assert thrice.cost_usd.value == pytest.approx(3 * once.cost_usd.value, rel=1e-5)


def test_a_run_of_the_measured_step_is_the_run_of_a_modelled_one(run: Run) -> None:
    """Brute force: hours from the step, Daly's interval and Llama 3's failures, by hand."""
    plan = run("8x8xH100-SXM", samples="1000 Tsamples")
    compute_s = plan.run.steps * 0.0088
    between_s = 50_700 * 3600 / 64
    interval_s = plan.run.checkpoints.interval_s.value
    assert interval_s == pytest.approx((2 * 60 * between_s) ** 0.5, rel=0.05)
    stalled_s = compute_s / interval_s * 60
    stop_s = 120 + 300 + 60 + interval_s / 2
    wall_s = (compute_s + stalled_s) / (1 - stop_s / between_s)
    assert plan.run.wall_s.value == pytest.approx(wall_s, rel=1e-3)
    assert plan.run.accelerator_h.value == pytest.approx(wall_s * 1.22 * 64 / 3600, rel=1e-3)


def test_what_rows_do_not_hold_is_null_and_never_nought(run: Run) -> None:
    data = to_data(run("8xH100-SXM"))
    absent = [
        "parameters", "precision", "framework", "layout", "communication_exposed_fraction", "mfu_fraction",
        "peak_ratio", "memory_bytes", "tokens", "batch_tokens",
    ]  # fmt: skip
    assert {name: data[name] for name in absent} == dict.fromkeys(absent)
    assert [data["run"][name] for name in ("flops", "data_bytes_per_s")] == [None, None]
    sizes = "size_bytes", "write_bytes_per_s", "storage_bytes_per_s", "storage_term"
    assert [data["run"]["checkpoints"][name] for name in sizes] == [None] * 4
    assert data["run"]["checkpoints"]["write_s"] == 60 and data["samples"] == 200e9
    assert [path for path, leaf in leaves(data) if is_estimate(leaf) and leaf["value"] == 0] == []


FULL = f"""{HEAD},memory_gib,checkpoint_gb,sample_kb
H100-SXM,8,65536,0.04,61,120,0.6
H100-SXM,32,65536,0.02,30,120,0.6
"""


def test_optional_columns_give_memory_checkpoints_and_data(run: Run) -> None:
    plan = run("8xH100-SXM", rows=FULL)
    assert plan.memory_bytes and plan.memory_bytes.value == 61 * 2**30 and plan.memory_bytes.source == "m"
    saved = plan.run.checkpoints
    assert saved.size_bytes == 120e9 and saved.write_bytes_per_s == pytest.approx(2e9)
    assert plan.run.data_bytes_per_s == pytest.approx(600 * BATCH / 0.04)
    assert saved.storage_term == "checkpoint write" and saved.storage_bytes_per_s == pytest.approx(2e9)
    between = run("2x8xH100-SXM", rows=FULL).memory_bytes
    assert between and 30 * 2**30 < between.low <= between.value <= between.high < 61 * 2**30


def test_repeated_rows_set_the_range(run: Run) -> None:
    steady = "".join(f"H100-SXM,8,65536,{seconds}\n" for seconds in (0.0400, 0.0401, 0.0399, 0.0400))
    shaky = "".join(f"H100-SXM,8,65536,{seconds}\n" for seconds in (0.040, 0.050, 0.032, 0.044))
    narrow, wide = (run("8xH100-SXM", rows=rows).step_s for rows in (steady, shaky))
    assert narrow.high / narrow.low < 1.02 < 1.2 < wide.high / wide.low
    assert not any("repeated rows" in text for text in run("8xH100-SXM", rows=steady).warnings)


def test_without_machines_the_cheapest_measured_size_on_time_is_chosen(run: Run) -> None:
    relaxed, hurried = run(more="  deadline: 7 d\n"), run(more="  deadline: 12 h\n")
    assert relaxed.machine.accelerator == "H100-SXM5-80GB"
    assert relaxed.machine.accelerator_count == 8 < hurried.machine.accelerator_count == 64
    assert relaxed.cost_usd and hurried.cost_usd and relaxed.cost_usd.value < hurried.cost_usd.value
    assert {point.accelerator_count for point in relaxed.scaling} == {8, 16, 64}


def test_two_measured_accelerators_compete(run: Run) -> None:
    slow = ROWS + "A100-SXM-80GB,8,65536,1.0\n"
    quick = ROWS + "A100-SXM-80GB,8,65536,0.041\n"
    assert run(rows=slow).machine.accelerator == "H100-SXM5-80GB"
    chosen = run(rows=quick)
    assert chosen.machine.accelerator == "A100-SXM4-80GB" or chosen.losers


def test_own_machines_come_first(run: Run) -> None:
    own = run(more="supply: {own: [{accelerator: H100-SXM, count: 16}]}\n")
    assert own.release_after_s is None and own.cost_usd is None
    assert own.machine.accelerator_count <= 16


def test_efficiency_is_samples_per_accelerator_over_the_fewest(run: Run) -> None:
    points = {point.accelerator_count: point.efficiency_fraction for point in run("8xH100-SXM").scaling}
    assert points[8].value == points[8].low == points[8].high == 1
    assert points[64].value == pytest.approx(8 * 0.0412 / (64 * 0.0088))
    assert points[64].low < points[64].value < points[64].high


def test_a_deadline_that_no_row_meets_is_infeasible(run: Run) -> None:
    with pytest.raises(InfeasibleError, match="deadline of 60 min") as caught:
        run(more="  deadline: 1 h\n")
    words = [word for word, _ in caught.value.lines]
    assert words[0] == "needs" and "tried" in words and words[-1] == "would fit"


def test_memory_beyond_the_part_is_a_row_of_another_part(run: Run) -> None:
    with pytest.raises(TableError, match="GiB were measured on L40S") as caught:
        run("8xL40S", rows=f"{HEAD},memory_gib\nL40S,8,64,1.0,61\n")
    assert caught.value.place and caught.value.place[1:] == (2, 1)


def test_fewer_accelerators_than_memory_was_measured_on_may_not_fit(run: Run) -> None:
    with pytest.raises(InfeasibleError) as caught:
        run("4xH100-SXM", rows=f"{HEAD},memory_gib\nH100-SXM,8,64,1.0,61\n")
    assert any("exceed" in text for _, text in caught.value.lines)


@pytest.mark.parametrize(
    ("on", "more", "rows", "kind", "says"),
    [
        ("8xL40S", "", ROWS, ValueRefusedError, "not on L40S"),
        ("", "  global_batch: 512 seq\n", ROWS, ValueRefusedError, "global batch of 512"),
        ("", "", ROWS + "H100-SXM,8,1024,0.01\n", ValueRefusedError, "does not say which"),
        ("", "", "H100-XXL,8,64,1\n", UnknownNameError, "H100-XXL"),
        ("", "", "H100-SXM,8,64,soon\n", TableError, "`soon` is not a number above 0"),
        ("", "", "H100-SXM,3,64,1\n", InfeasibleError, "no machine on offer was measured"),
    ],
)
def test_what_the_rows_do_not_cover_is_refused(
    run: Run, on: str, more: str, rows: str, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        run(on, more, rows)


def test_an_unknown_accelerator_is_named_at_its_cell(run: Run) -> None:
    with pytest.raises(UnknownNameError) as caught:
        run(rows=ROWS + "H100-SXMM,8,65536,1\n")
    assert caught.value.place and caught.value.place[1:] == (5, 1) and "H100-SXM" in caught.value.hint


def test_the_spec_names_the_batch_where_rows_have_several(run: Run) -> None:
    rows = ROWS + "H100-SXM,8,1024,0.01\n"
    plan = run("8xH100-SXM", more="  global_batch: 1024 samples\n", rows=rows)
    assert plan.step_s.value == 0.01 and plan.batch_samples == 1024


def test_what_rows_were_run_with_is_not_the_spec_s_to_say(run: Run) -> None:
    with pytest.raises(InputErrors) as caught:
        run(more="  framework: megatron-core\n")
    assert "`framework" in str(caught.value.errors[0]) and "measured rows" in str(caught.value.errors[0])


def test_steps_and_tokens_count_a_run_as_well(planned: Planned, tmp_path: Path) -> None:
    path = written(tmp_path)
    by_steps = spec(path, "8xH100-SXM").replace("samples: 200 Gsamples", "steps: 1000")
    by_tokens = spec(path, "8xH100-SXM").replace(
        "samples: 200 Gsamples", "tokens: 65_536_000 tok\n  sequence: 1 tok"
    )
    steps, tokens = (planned(text).training[0] for text in (by_steps, by_tokens))
    assert steps.run.steps == tokens.run.steps == 1000
    assert steps.samples == tokens.samples == 65_536_000
    assert steps.tokens is None and tokens.tokens == 65_536_000


@pytest.fixture
def data(planned: Planned, tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "full.csv"
    path.write_text(FULL, "utf-8")
    return to_data(planned(spec(path, "2x8xH100-SXM", "  repeats: every 4 weeks\n")))


def test_every_number_has_a_derivation(data: dict[str, Any]) -> None:
    known = {row["path"] for row in data["derivations"]}
    assert [path for path, leaf in leaves(data) if is_estimate(leaf) and path not in known] == []


@pytest.mark.parametrize("path", ["first_year_usd", "training.ranker.step_s", "training.ranker.memory_bytes"])
def test_explaining_a_number_reaches_the_lines_of_the_file(data: dict[str, Any], path: str) -> None:
    text = "".join("".join(explain(data, path)).replace("│", "").split())  # a long path is cut at any letter
    assert "full.csvline2" in text and "full.csvline3" in text


def test_a_measured_run_stands_beside_modelled_halves(planned: Planned, tmp_path: Path) -> None:
    both = spec(written(tmp_path), "8xH100-SXM") + (
        "serving: {model: llama-3.1-8b, classes: {chat: {traffic: {rate: 1 /s}}}, on: 1xH100-SXM}\n"
    )
    plan = planned(both)
    assert plan.cross == () and any("ranker" in text and "fleet" in text for text in plan.warnings)
    assert plan.first_year_usd and plan.training[0].cost_usd and plan.serving[0].cost_usd_per_year
    total = plan.training[0].cost_usd.value + plan.serving[0].cost_usd_per_year.value
    assert plan.money and plan.first_year_usd.value == plan.money.total_usd
    rent = total_usd(line for line in plan.money.lines if line.category == "rent")
    assert rent == pytest.approx(total, abs=0.02)
