"""A measured device is rows that the catalogue and `perf` read, and that answer for it without a tie."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from twofold.catalog.catalog import load_catalog
from twofold.core.estimate import Source
from twofold.device.figures import figures
from twofold.device.files import Identity
from twofold.device.fit import usual_s
from twofold.device.fit_software import _llama
from twofold.device.rows import NAME, NODE, FittedDevice, accelerator_family, fit_device
from twofold.inference.replica import engine
from twofold.perf.constants import Constants, load_constants
from twofold.perf.device import device, network
from twofold.training.job import TrainingJob
from twofold.training.layouts import layouts_of
from twofold.training.stack import load_stack
from twofold.training.step import step_time

HERE = Identity("a processor", 2, 16 * 10**9)


@pytest.fixture(scope="module")
def fitted(known: ModuleType) -> FittedDevice:
    return fit_device(known.measured(), HERE, 2026)


def value_of(fitted: FittedDevice, name: str) -> float:
    return next(row.value for row in fitted.rows if row.name == name)


def test_software_is_found_again(fitted: FittedDevice, known: ModuleType) -> None:
    assert value_of(fitted, "serving_host_step_s") == pytest.approx(known.SERVE_STEP_S, rel=0.3)
    assert value_of(fitted, "serving_host_layer_s") == pytest.approx(known.SERVE_LAYER_S, rel=0.2)
    assert value_of(fitted, "serving_host_sequence_s") == pytest.approx(known.SERVE_SEQUENCE_S, rel=0.3)
    assert value_of(fitted, "training_host_layer_s") == pytest.approx(known.HOST_LAYER_S, rel=0.4)
    assert value_of(fitted, "serving_first_token_s") == pytest.approx(0.02, rel=0.4)
    for each in fitted.fit:
        assert each.median_fraction < 0.1, each


def test_r_168_the_hosts_share_of_each_decode_step_is_told_and_no_more_than_all_of_it(
    fitted: FittedDevice, known: ModuleType
) -> None:
    samples = known.measured().samples
    shares = [each for each in figures(samples, fitted.rows, known.RANKS) if "host's share" in each.name]
    steps = [each for each in samples if each.group == "step"]
    assert len(shares) == len(steps) > 1
    for share, step in zip(shares, steps, strict=True):
        host_s = known.SERVE_STEP_S + known.SERVE_LAYER_S * float(step.sizes["layers"])
        host_s += known.SERVE_SEQUENCE_S * float(step.sizes["requests"])
        assert share.unit == "fraction" and 0.0 < share.low <= share.value <= share.high <= 1.0
        assert share.value == pytest.approx(min(1.0, host_s / usual_s(step)), rel=0.2)


def test_the_row_is_a_share_of_the_machine(fitted: FittedDevice, known: ModuleType) -> None:
    assert fitted.accelerator.name == NAME
    assert fitted.accelerator.memory_bytes == pytest.approx(HERE.memory_bytes / known.RANKS)
    assert fitted.accelerator.scaleup_domain_count == known.RANKS


def test_the_tables_are_read_back_and_win_over_the_alias(
    fitted: FittedDevice, tmp_path: Path, known: ModuleType
) -> None:
    for name in ("accelerators.csv", "nodes.csv"):
        (tmp_path / name).write_text(fitted.tables[name], "utf-8")
    catalog = load_catalog(tmp_path)
    assert catalog.accelerator("this-machine") == fitted.accelerator
    assert catalog.node(NODE).accelerator_count == known.RANKS
    assert load_catalog().accelerator("this-machine").name == "CPU-8-core-AVX2"


def test_no_question_about_the_device_is_a_tie(fitted: FittedDevice, known: ModuleType) -> None:
    constants = load_constants().with_rows(Constants.parse(fitted.tables["constants.csv"]).rows)
    device(fitted.accelerator, constants)
    network(fitted.accelerator, known.RANKS, 6e7, "ethernet", constants)
    load_stack(constants, "torchtitan", "fp32", "cpu", NAME)
    for model in ("dense", "moe", "mla"):
        for fmt in ("fp32", "bf16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int4"):
            at = {"family": "cpu", "accelerator": NAME}
            found = engine(constants, "transformers", None, model=model, weights_format=fmt, **at)
            assert found.prefill_factor == 1.0  # the device's own row, whatever ships for a model or a format


def test_other_parts_keep_their_constants(fitted: FittedDevice) -> None:
    constants = load_constants().with_rows(fitted.rows)
    for name in ("H100-SXM", "CPU-8-core-AVX2"):
        part = load_catalog().accelerator(name)
        assert device(part, constants) == device(part, load_constants())
        for model in ("dense", "moe"):
            held = {"family": part.family, "accelerator": part.name, "model": model}
            assert engine(constants, "transformers", **held) == engine(
                load_constants(), "transformers", **held
            )
        own = "torchtitan", "bf16", part.family, part.name
        assert load_stack(constants, *own) == load_stack(load_constants(), *own)


def test_a_stack_that_no_fit_saw_is_predicted(fitted: FittedDevice, known: ModuleType) -> None:
    job = TrainingJob(_llama(5, 256, 4096), "pretrain", 96, 2 * known.RANKS, "fp32", "torchtitan")
    layout = layouts_of([(1, 1, 1, 1, 1, known.RANKS, 3, 2, 0, 0)])
    constants = fitted.constants
    links = network(fitted.accelerator, known.RANKS, 6e7, "ethernet", constants)
    cluster = known.true_cluster().__class__(device(fitted.accelerator, constants), links, known.RANKS)
    predicted_s = step_time(
        job.workload,
        job.precision,
        layout,
        cluster,
        load_stack(constants, "torchtitan", "fp32", "cpu", NAME),
    ).total_s
    true_stack = load_stack(constants, "torchtitan", "fp32", "cpu").__class__
    shipped = load_stack(load_constants(), "torchtitan", "fp32", "cpu")
    values = {name: getattr(shipped, name) for name in shipped.__slots__}
    values |= {
        "host_layer_s": known.HOST_LAYER_S,
        "host_step_s": known.HOST_STEP_S,
        "kernel_factor": 1.1,
        "elementwise_factor": 2.0,
        "optimizer_bytes_factor": 3.0,
        "dp_overlap_fraction": 0.0,
        "attention_factor": 1.0,
        "sharded_dp_factor": 1.5,
    }
    true_s = step_time(
        job.workload, job.precision, layout, known.true_cluster(), true_stack(**values)
    ).total_s
    assert float(np.max(predicted_s)) == pytest.approx(float(np.max(true_s)), rel=0.1)


def test_rows_are_measured_or_say_what_the_software_has_not(fitted: FittedDevice) -> None:
    for row in fitted.rows:
        assert row.source in (Source.MEASURED, Source.ASSUMED)
        assert row.source == Source.MEASURED or row.rows == 0


def test_accelerators_take_their_family_by_name() -> None:
    assert accelerator_family("") == "cpu"
    assert accelerator_family("NVIDIA H200") == "hopper"
    assert accelerator_family("NVIDIA A100-SXM4-80GB") == "ampere"
