import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from twofold.catalog.catalog import load_catalog
from twofold.core.errors import InputError
from twofold.measure.predict_training import Counter, counter, predict_training, printed
from twofold.measure.training_rows import read_interconnect
from twofold.measure.truth import read_rows
from twofold.perf.constants import load_constants
from twofold.training.job import TrainingJob
from twofold.training.layouts import layouts_of
from twofold.training.memory import memory
from twofold.training.stack import load_stack

SHARED = Path(__file__).parents[3] / "shared"
MEASURED = (
    "step_time_s",
    "tokens_per_s_per_gpu",
    "model_tflops_per_gpu",
    "mfu",
    "peak_mem_gib",
    "notes",
    "source",
    "source_ref",
    "split",
    "overlap_notes",
    "tier",
    "id",
)
ROW = {
    "model": "llama3-70b",
    "gpu": "H100-80GB",
    "gpus": "64",
    "gpus_per_node": "8",
    "framework": "NeMo 25",
    "precision": "bf16",
    "dp": "4",
    "tp": "4",
    "pp": "4",
    "cp": "1",
    "vpp": "5",
    "zero_stage": "1",
    "micro_batch": "1",
    "global_batch_seqs": "128",
    "seq_len": "8192",
    "recompute": "none",
}
MIDDLES = ("pred_step_time_s", "pred_peak_mem_gib")


def predict(*rows: dict[str, str]) -> list[dict[str, str]]:
    return predict_training(list(rows), load_catalog(), load_constants())


@pytest.fixture(scope="module")
def answered() -> list[dict[str, str]]:
    """Every open row with its prediction."""
    return predict(*truth())


def truth() -> list[dict[str, str]]:
    path = SHARED / "truth" / "training.csv"
    if not path.exists():
        pytest.skip("needs ../shared/truth/training.csv")
    return read_rows(path)


def test_a_stated_row_gets_time_and_memory_with_ranges() -> None:
    (answer,) = predict(ROW)
    assert (answer["pred_basis"], answer["pred_error"]) == ("stated", "")
    for name in MIDDLES:
        low, middle, high = (float(answer[name + end]) for end in ("_low", "", "_high"))
        assert 0 < low < middle < high
    assert answer["model"] == "llama3-70b"


@pytest.mark.parametrize(
    ("changes", "assumption", "basis"),
    [
        ({"micro_batch": ""}, "micro-batch", "assumed"),
        ({"recompute": ""}, "recompute", "assumed"),
        ({"tp": "", "pp": "", "dp": "", "vpp": ""}, "layout", "assumed"),
        ({"zero_stage": ""}, "zero", "stated"),
        ({"gpus": "128", "dp": "8", "interconnect": ""}, "network", "stated"),
        ({"framework": ""}, "framework", "stated"),
        ({"adapter": "lora"}, "adapter rank", "stated"),
    ],
)
def test_what_is_left_open_is_assumed_and_named(changes: dict[str, str], assumption: str, basis: str) -> None:
    (answer,) = predict(ROW | changes)
    assert assumption in answer["pred_assumptions"].split(";")
    assert answer["pred_basis"] == basis and answer["pred_error"] == ""


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"gpu": "H1000"}, "E-name"),
        ({"model": "llama-99"}, "E-name"),
        ({"seq_len": ""}, "E-input"),
        ({"global_batch_seqs": "-3"}, "E-input"),
        ({"gpus": ""}, "E-input"),
        ({"precision": "bf17"}, "E-input"),
        ({"adapter": "lara"}, "E-input"),
        ({"gpu": ""}, "E-name"),
    ],
)
def test_a_refused_row_says_why_and_the_rest_goes_on(changes: dict[str, str], code: str) -> None:
    refused, answered = predict(ROW | changes, ROW)
    assert refused["pred_error"].startswith(f"{code}: ") and refused["pred_step_time_s"] == ""
    assert answered["pred_step_time_s"] == predict(ROW)[0]["pred_step_time_s"]


def test_a_model_nobody_knows_is_built_from_its_dimensions() -> None:
    dimensions = {"layers": "80", "hidden": "8192", "heads": "64", "kv_heads": "8", "head_dim": "128"}
    stated = {"model": "ours-70b", "ffn_hidden": "28672", "vocab": "128256", "params_total": "70600000000"}
    named, built = predict(ROW, ROW | dimensions | stated)
    assert float(built["pred_step_time_s"]) == pytest.approx(float(named["pred_step_time_s"]), rel=0.01)


def test_an_empty_row_is_refused_and_not_a_crash() -> None:
    (answer,) = predict({})
    assert answer["pred_error"]


def test_a_device_that_nobody_measured_has_a_wider_range() -> None:
    def width(gpu: str) -> float:
        (answer,) = predict(ROW | {"gpu": gpu})
        return float(answer["pred_step_time_s_high"]) / float(answer["pred_step_time_s_low"])

    assert width("MI300X") > 1.2 * width("H100-80GB")


def test_an_adapter_spares_the_gradients_of_the_weights_and_what_holds_them() -> None:
    full, adapter = predict(ROW, ROW | {"adapter": "lora"})
    step, memory = (
        float(adapter[name]) / float(full[name]) for name in ("pred_step_time_s", "pred_peak_mem_gib")
    )
    assert 0.6 < step < 0.8, "4 of 6 products of each weight are left"
    assert memory < 0.8, "no gradients and no states but the adapter's"


def test_a_device_that_multiplies_integers_twice_as_fast_does_so() -> None:
    on_tpu = ROW | {"gpu": "TPU v5p", "framework": "MaxText", "pp": "1", "dp": "16", "vpp": "1"}
    wide, narrow = predict(on_tpu, on_tpu | {"precision": "int8"})
    assert float(narrow["pred_step_time_s"]) < 0.8 * float(wide["pred_step_time_s"])


def test_more_devices_or_a_smaller_batch_shorten_the_step() -> None:
    one, more, less = predict(ROW, ROW | {"gpus": "128", "dp": "8"}, ROW | {"global_batch_seqs": "64"})
    times = [float(answer["pred_step_time_s"]) for answer in (one, more, less)]
    assert times[1] < times[0] and times[2] < times[0]


@pytest.mark.parametrize(
    ("words", "rate_gbit_per_s", "fabric"),
    [
        ("NVLink intra; 4x100 Gb/s RoCE per node", 50, "roce"),
        ("NVLink/NVSwitch intra; 8x HDR InfiniBand 200 Gb/s per node", 200, "infiniband"),
        ("NVLink 450 GB/s intra; InfiniBand 400 Gb/s per GPU", 400, "infiniband"),
        ("RoCE 1600 Gb/s node-to-node", 200, "roce"),
        ("NVLink 4; InfiniBand 8x50 GB/s per node", 400, "infiniband"),
        ("NVLink/NVSwitch intra; InfiniBand HDR inter", 200, "infiniband"),
        ("400 Gb/s per node (as stated)", 50, ""),
        ("NVLink intra; Omni-Path inter (Jean Zay)", 50, "omnipath"),
        ("8x ConnectX-7 IB NDR 400Gb/s + 200Gb/s Ethernet NIC", 400, "infiniband"),
        ("4x ConnectX-7 IB NDR 400Gb/s", 200, "infiniband"),
        ("Storage: 2x 100 Gb/s Ethernet, Compute: 8x InfiniBand NDR", 400, "infiniband"),
        ("Storage&Compute: 4x IB NDR 400Gb/s, Management: 25Gb/s Ethernet", 200, "infiniband"),
    ],
)
def test_a_network_is_read_from_its_words(words: str, rate_gbit_per_s: float, fabric: str) -> None:
    rate, kind = read_interconnect(words, 8)
    assert rate == pytest.approx(rate_gbit_per_s * 1e9 / 8) and kind == fabric


@pytest.mark.parametrize(
    ("words", "fabric"),
    [
        ("Ethernet, Infiniband", "infiniband"),
        ("Storage+Management: 1x BlueField 100Gb/s, Compute: 8x NVI", ""),
        ("ROCE2; Data bandwidth for GPU-PCIe: 504 GB/s; PCIe-NIC: 500 GB/s", "roce"),
    ],
)
def test_a_rate_that_is_not_the_networks_between_nodes_is_not_taken(words: str, fabric: str) -> None:
    assert read_interconnect(words, 8) == (None, fabric)


@pytest.mark.parametrize(
    "words", ["", "NVLink intra (single node)", "PCIe (single node)", "NVLink domain 72"]
)
def test_no_network_is_read_from_no_words(words: str) -> None:
    assert read_interconnect(words, 8) == (None, "")


def test_every_truth_row_is_answered_or_refused_with_a_code(answered: list[dict[str, str]]) -> None:
    rows, answers = truth(), answered
    assert len(answers) == len(rows)
    refused = [answer["pred_error"] for answer in answers if answer["pred_error"]]
    assert all(reason.startswith("E-") for reason in refused)
    assert len(refused) < 0.01 * len(rows)
    assert all(answer["pred_step_time_s"] for answer in answers if not answer["pred_error"])


def test_measured_columns_change_nothing() -> None:
    rows = random.Random(3).sample(truth(), 300)
    shuffled = random.Random(4).sample(rows, len(rows))
    garbled = [
        row | {name: other.get(name, "") for name in MEASURED}
        for row, other in zip(rows, shuffled, strict=True)
    ]
    blanked = [row | dict.fromkeys(MEASURED, "") for row in rows]
    said = [
        [
            {name: cell for name, cell in answer.items() if name.startswith("pred_")}
            for answer in predict(*given)
        ]
        for given in (rows, garbled, blanked)
    ]
    assert said[0] == said[1] == said[2]


def test_a_row_does_not_depend_on_the_rows_around_it() -> None:
    rows = random.Random(5).sample(truth(), 40)
    together = predict(*rows)
    alone = [predict(row)[0] for row in rows]
    for a, b in zip(together, alone, strict=True):
        assert a["pred_error"] == b["pred_error"] and a["pred_assumptions"] == b["pred_assumptions"]
        if a["pred_step_time_s"]:
            assert float(a["pred_step_time_s"]) == pytest.approx(float(b["pred_step_time_s"]), rel=1e-5)


def test_blinded_rows_are_answered_as_open_ones(tmp_path: Path) -> None:
    path, tool = SHARED / "truth" / "training.csv", SHARED / "tools" / "blind.py"
    truth()
    blinded = tmp_path / "blind.csv"
    subprocess.run([sys.executable, str(tool), str(path), str(blinded)], check=True)
    picks = random.Random(6).sample(range(3000), 150)
    open_rows, hidden = read_rows(path), read_rows(blinded)
    for a, b in zip(
        predict(*(open_rows[i] for i in picks)), predict(*(hidden[i] for i in picks)), strict=True
    ):
        assert a["pred_step_time_s"] == b["pred_step_time_s"] and a["pred_error"] == b["pred_error"]


def test_the_error_stays_below_its_goals_on_open_rows(answered: list[dict[str, str]]) -> None:
    rows = [row for row in answered if row["tier"] in ("A", "B")]
    errors: dict[tuple[str, str], list[float]] = {}
    inside = []
    for row in rows:
        if row["step_time_s"] and row["pred_step_time_s"]:
            measured, said = float(row["step_time_s"]), float(row["pred_step_time_s"])
            errors.setdefault((row["source"], row["arch"]), []).append(abs(said / measured - 1))
            low, high = (float(row[f"pred_step_time_s_{end}"]) for end in ("low", "high"))
            inside.append(low <= measured <= high)
    means = {key: np.mean(found) for key, found in errors.items()}
    assert np.mean([mean for (_, arch), mean in means.items() if arch == "dense"]) < 0.11
    assert np.mean([mean for (_, arch), mean in means.items() if arch == "moe"]) < 0.28
    assert 0.75 <= np.mean(inside) <= 0.92


def test_a_csv_without_rows_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(InputError, match="no rows"):
        read_rows(empty)
    (tmp_path / "one.csv").write_text("a,b\n1\n")
    assert read_rows(tmp_path / "one.csv") == [{"a": "1", "b": ""}]


# What each framework's own log does: known from its code, before any measurement.
CONVENTIONS = [
    ("nanotron", "bf16", "allocated", 1e9),
    ("torchtitan", "bf16", "reserved", 2**30),
    ("Megatron-Bridge 26", "bf16", "allocated", 1e9),
    ("Megatron-Core 0", "bf16", "allocated", 2**30),
    ("Megatron-DeepSpeed", "fp16", "device", 1e9),
    ("never heard of", "bf16", "reserved", 2**30),
]


@pytest.mark.parametrize(("framework", "precision", "counts", "unit_bytes"), CONVENTIONS)
def test_each_framework_prints_its_own_counter(
    framework: str, precision: str, counts: str, unit_bytes: float
) -> None:
    assert counter(framework, precision) == Counter(counts, unit_bytes)  # type: ignore[arg-type]


def test_a_narrower_counter_or_a_larger_unit_prints_less() -> None:
    job = TrainingJob(load_catalog().model("llama-3.1-8b"), "pretrain", 4096, 64)
    held = memory(
        job.workload, layouts_of([(4, 1, 1, 2, 1, 8, 1, 1, 0, 1)]), load_stack(load_constants(), "nemo")
    )
    numbers = [printed(held, Counter(counts, 1e9)) for counts in ("allocated", "reserved", "device")]
    assert np.all(np.diff(np.ravel(numbers)) > 0)
    assert printed(held, Counter("device", 2**30)) == pytest.approx(numbers[-1] * 1e9 / 2**30)
