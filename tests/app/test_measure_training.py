"""`measure train`, really run on a tiny model: what it tells, and rows that are predicted and calibrate."""

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import tiny_llama
from tests.fake_nvidia import nvidia_smi
from twofold.app.measure_training import (
    TrainedShown,
    TrainWanted,
    _conditions,
    _job,
    _planned,
    _ratios,
    measure_train,
    name_of,
)
from twofold.app.measured_rows import calibrate, predict
from twofold.catalog.config_fields import ModelConfigError
from twofold.contracts.results import trained
from twofold.core import nvidia
from twofold.core.errors import FileError, UnknownNameError, UsageError, ValueRefusedError
from twofold.core.estimate import Estimate
from twofold.live.loads.meters import Meters
from twofold.live.loads.thermals import Sample, Thermals, sample
from twofold.report.trained import _conditions as _condition_lines
from twofold.report.trained import _ratio_pieces

MODEL = {**tiny_llama.MODEL, "architectures": ["LlamaForCausalLM"]}
WANTED = TrainWanted(
    ranks="1,2", steps=8, batch="4 seq", sequence="32 tok", gpu="CPU-4-core-AVX2", data="text.jsonl"
)


def fake_machine(root: Path, clock_khz: int, millidegrees: int, throttles: int) -> None:
    cpu = root / "devices/system/cpu/cpu0"
    sensor = root / "class/hwmon/hwmon0/temp1_input"
    for path, value in (
        (cpu / "cpufreq/scaling_cur_freq", clock_khz),
        (cpu / "thermal_throttle/core_throttle_count", throttles),
        (sensor, millidegrees),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def test_r_039_clocks_and_temperatures_are_sampled_and_throttling_is_a_share(tmp_path: Path) -> None:
    fake_machine(tmp_path, 2_000_000, 61_000, 3)
    with Thermals(partial(sample, tmp_path)) as thermals:
        fake_machine(tmp_path, 1_200_000, 93_500, 5)
    assert thermals.temperature_c_max == 93.5 and thermals.throttled_fraction == 1.0
    assert min(thermals.clocks_hz) == 1.2e9 and max(thermals.clocks_hz) == 2e9
    nothing = sample(tmp_path / "elsewhere")
    assert (nothing.clock_hz, nothing.temperature_c, nothing.throttle_count) == (None, None, None)


@pytest.mark.parametrize("reasons", nvidia.REASONS)
def test_r_039_clocks_of_accelerators_are_sampled_and_what_slows_them_is_heat_or_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reasons: str
) -> None:
    def tells(*slowed: str) -> None:
        told = {"clocks.sm": ["1980", "1400"], "temperature.gpu": ["45", "83"], reasons: list(slowed)}
        nvidia_smi(tmp_path, monkeypatch, 2, told=told)

    tells("0x0000000000000001", "0x0000000000000040")  # idle; slowed by its heat
    with Thermals.of("cuda") as thermals:
        tells("0x0000000000000001", "0x0000000000000002")  # no reason to call it slow
    assert thermals.clocks_hz == [1.69e9, 1.69e9] and thermals.temperature_c_max == 83.0
    assert thermals.throttled_fraction == 0.5
    measured = SimpleNamespace(name="a", conditions=_conditions(Meters(), thermals, 1, "cuda"))
    assert "clock of accelerators 1.69 GHz, at least 1.69 GHz · at most 83 °C" in " ".join(
        _condition_lines(measured)  # type: ignore[arg-type]
    )
    monkeypatch.setenv(nvidia.VISIBLE, "0")
    assert Thermals.of("cuda").read() == Sample(1.98e9, 45.0, None, is_throttled=False)
    nvidia_smi(tmp_path, monkeypatch, 0)
    assert Thermals.of("cuda").read() == Sample(None, None, None)


def test_runs_that_cannot_be_are_refused_at_once(tmp_path: Path) -> None:
    pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
    pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    with pytest.raises(ValueRefusedError, match="`int4` cannot be run here"):
        measure_train(tmp_path, TrainWanted(precisions="fp32,int4"))
    with pytest.raises(UsageError, match="no ranks"):
        measure_train(tmp_path, TrainWanted(ranks=""))
    with pytest.raises(FileError, match=r"config\.json` does not exist"):
        measure_train(tmp_path / "config.json", TrainWanted())
    (tmp_path / "config.json").touch()
    with pytest.raises(UnknownNameError, match="`H100-SXMM`"):  # and not after minutes
        measure_train(tmp_path, TrainWanted(gpu="H100-SXMM"))
    with pytest.raises(ModelConfigError):
        measure_train(tmp_path, TrainWanted(), tmp_path / "rows.csv")


def test_as_many_workers_stage_text_as_are_asked_for(tmp_path: Path) -> None:
    assert _job(TrainWanted(workers=7), tmp_path / "config.json", tmp_path).data_workers == 7


def test_a_run_that_could_not_be_compiled_is_held_against_nothing() -> None:
    eager = trained.RunSettings(2, "fp32", "eager", 1, "none")

    def ran(settings: trained.RunSettings, step_s: float) -> Any:
        measured = SimpleNamespace(step_s_p50=step_s, last_loss=2.0)
        return SimpleNamespace(name=name_of(settings), settings=settings, measured=measured)

    alone = replace(eager, ranks=1)
    found = list(_ratios([ran(eager, 1.0), ran(alone, 1.5), ran(eager, 1.1)]))
    assert [(each.what, each.step_ratio) for each in found] == [("1 over 2 ranks", 1.5)]


def test_a_ratio_says_whether_the_plan_and_the_loss_hold() -> None:
    planned = Estimate(0.8, 0.6, 1.0, "ratio")
    held = trained.Ratio("compiled over eager", 0.9, 0.0004, 0.001, planned)
    assert list(_ratio_pieces(held)) == [
        "step × 0.90",
        "planned × 0.80 [0.60–1.00], within",
        "last losses 0.04% apart, at most 0.1 %",
    ]
    missed = replace(held, step_ratio=1.1, loss_distance_fraction=0.03, loss_limit_fraction=0.02)
    assert list(_ratio_pieces(missed))[1:] == [
        "planned × 0.80 [0.60–1.00], OUTSIDE",
        "last losses 3.00% apart, MORE than 2 %",
    ]
    assert len(list(_ratio_pieces(replace(held, planned=None)))) == 2  # no device, no plan


def test_a_device_that_nobody_knows_leaves_a_note_and_no_plan(shown: tuple[TrainedShown, Path]) -> None:
    config = shown[1].parent / "config.json"
    found, notes = _planned(shown[0].data.runs, config, replace(WANTED, gpu="a-toaster"))
    assert found == {} and "nothing is planned beside these runs" in notes[0] and "a-toaster" in notes[0]
    assert _planned(shown[0].data.runs, config, replace(WANTED, gpu="")) == ({}, [])


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TrainedShown, Path]]:
    for name in ("psutil", "torch", "transformers"):
        pytest.importorskip(name, reason="needs the extras: `make extras`")
    folder = tmp_path_factory.mktemp("measured")
    (folder / "config.json").write_text(json.dumps(MODEL), "utf-8")
    lines = (" ".join(str(at * place % 97) for place in range(60)) for at in range(1, 150))
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), "utf-8")
    computes = "eager,compiled" if shutil.which("c++") else "eager"
    wanted = TrainWanted(**{**_fields(WANTED), "data": str(folder / "text.jsonl"), "computes": computes})
    yield measure_train(folder, wanted, folder / "rows.csv"), folder / "rows.csv"


def _fields(wanted: TrainWanted) -> dict[str, object]:
    return {name: getattr(wanted, name) for name in TrainWanted.__dataclass_fields__}


def run_of(shown: TrainedShown, ranks: int, precision: str = "fp32") -> trained.TrainedRun:
    return next(
        run
        for run in shown.data.runs
        if (run.settings.ranks, run.settings.precision, run.settings.compute) == (ranks, precision, "eager")
    )


def test_parts_checkpoints_and_a_restart_are_told(shown: tuple[TrainedShown, Path]) -> None:
    page, _ = shown
    first = page.data.runs[0]
    assert name_of(first.settings) == "2-ranks-fp32-eager"
    recovery = first.measured.recovery
    assert recovery is not None and recovery.equal_losses and recovery.kill_to_step_s > 0
    assert first.measured.checkpoint_bytes > 0 and first.measured.checkpoint_write_s > 0
    assert all(run.measured.recovery is None for run in page.data.runs[1:])  # one kill is enough
    assert all(run.held_out_loss is not None for run in page.data.runs)
    text = "\n".join(page.lines)
    # Paths are not broken: that of the rows may lie deep.
    assert all(len(line) <= 100 or "/" in line for line in page.lines)
    for word in (
        "CHECKPOINT",
        "kill to next step",
        "OF A STEP",
        "LOADER",
        "SUMS",
        "DOCTOR",
        "1 over 2 ranks",
    ):
        assert word in text, text


def test_half_precision_ends_near_full(shown: tuple[TrainedShown, Path]) -> None:
    (ratio,) = (each for each in shown[0].data.ratios if each.what == "bf16 over fp32")
    assert 0 < ratio.loss_distance_fraction < ratio.loss_limit_fraction == 0.02


def test_every_other_run_is_planned_from_the_eager_ones_in_fp32_beside_what_it_took(
    shown: tuple[TrainedShown, Path],
) -> None:
    """None planned itself. How near it is, a quiet machine says: `python -m bench train_calibration`."""
    page, rows = shown
    assert all(ratio.planned is not None for ratio in page.data.ratios)
    slower = [
        replace(run, measured=replace(run.measured, step_s_p50=9 * run.measured.step_s_p50))
        if run.settings.precision == "bf16" or run.settings.compute == "compiled"
        else run
        for run in page.data.runs
    ]
    again, _ = _planned(slower, rows.parent / "config.json", WANTED)
    first = page.data.runs[0].measured.step_s_p50
    told = [ratio.planned.times(first).value for ratio in page.data.ratios if ratio.planned]
    assert [step.value for step in again.values()] == pytest.approx(told)
    assert " ".join(page.lines).count("planned × ") == len(page.data.ratios)


def test_r_002_sums_in_fp32_are_nearer_than_sums_in_bf16(shown: tuple[TrainedShown, Path]) -> None:
    sums = shown[0].data.accumulation
    assert 0 < 4 * sums.fp32_error_fraction < sums.bf16_error_fraction and sums.device.startswith("cpu")


def test_r_026_readers_at_once_tell_their_rates_and_read_ten_times_what_is_consumed(
    shown: tuple[TrainedShown, Path],
) -> None:
    one, two = shown[0].data.readings
    assert (len(one.bytes_per_s_each), len(two.bytes_per_s_each)) == (1, 2)
    assert one.times_needed >= 10 and two.times_needed >= 10


def test_r_029_compiled_stands_beside_eager(shown: tuple[TrainedShown, Path]) -> None:
    if not shutil.which("c++"):
        pytest.skip("compiling needs a C++ compiler: install g++")
    (ratio,) = (each for each in shown[0].data.ratios if each.what == "compiled over eager")
    assert ratio.step_ratio > 0 and ratio.loss_distance_fraction < ratio.loss_limit_fraction == 1e-3
    run = next(run for run in shown[0].data.runs if run.settings.compute == "compiled")
    assert run.measured.steps == WANTED.steps


def test_r_030_the_slowest_collective_and_the_rank_waited_for_are_named(
    shown: tuple[TrainedShown, Path],
) -> None:
    names = ("all-gather", "reduce-scatter", "all-reduce")
    told = run_of(shown[0], 2).slowest_collective
    assert told.startswith(names) and told.endswith(("for rank 0", "for rank 1"))
    assert run_of(shown[0], 1).slowest_collective == ""


def test_r_118_rows_of_the_users_model_are_predicted_and_calibrate(
    shown: tuple[TrainedShown, Path], tmp_path: Path
) -> None:
    page, rows = shown
    with rows.open(newline="", encoding="utf-8") as handle:
        told = list(csv.DictReader(handle))
    assert [row["id"] for row in told] == ["2-ranks-fp32-eager", "1-rank-fp32-eager", "2-ranks-bf16-eager"]
    assert float(told[0]["step_time_s"]) == pytest.approx(page.data.runs[0].measured.step_s_p50, rel=1e-5)
    predicted = predict("training", rows, tmp_path / "predicted.csv")
    assert predicted.stated_count + predicted.assumed_count >= 2, predicted
    calibrated = calibrate(rows, tmp_path / "calibration.json")
    (figure,) = (
        each for stack in calibrated.data.stacks for each in stack.figures if each.name == "step_time_s"
    )
    # Three rows that a plan already meets within some per cent are fitted no worse than by their own noise.
    assert figure.rows >= 2 and figure.error_fitted < figure.error_before + 0.02
