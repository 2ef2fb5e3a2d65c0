"""Baselines, the questions that peers are asked, and the tables of the comparison."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.peers import __main__ as command
from bench.peers import aiconfigurator, baselines, calculon, compare
from bench.peers.compare import FIGURES, Tool
from bench.peers.stored import Line, Outcome, Told, read
from bench.peers.stored import replace as replace_lines
from twofold.catalog.catalog import load_catalog
from twofold.core.errors import InputError
from twofold.measure.inference_rows import read_case
from twofold.perf.constants import load_constants

FOLDER = Path(command.__file__).parent
TRUTH = Path(__file__).parents[3] / "shared" / "truth"
CATALOG, CONSTANTS = load_catalog(), load_constants()

TRAINED = {
    "source": "mine",
    "tier": "A",
    "model": "gpt-22b-mine",
    "params_total": "22000000000",
    "params_active": "22000000000",
    "layers": "48",
    "hidden": "6144",
    "heads": "64",
    "kv_heads": "64",
    "head_dim": "96",
    "ffn_hidden": "24576",
    "vocab": "51200",
    "seq_len": "2048",
    "gpu": "A100-80GB",
    "gpus": "16",
    "gpus_per_node": "8",
    "interconnect": "NVLink intra; 8x200 Gb/s InfiniBand per node",
    "framework": "Megatron-LM",
    "precision": "bf16",
    "dp": "2",
    "tp": "8",
    "pp": "1",
    "cp": "1",
    "zero_stage": "1",
    "micro_batch": "4",
    "global_batch_seqs": "8",
    "recompute": "full",
    "sp": "1",
    "vpp": "1",
    "overlap_notes": "",
    "step_time_s": "2.0",
}
SERVED = {
    "source": "mine",
    "tier": "A",
    "model": "meta-llama/Llama-3.3-70B-Instruct",
    "gpu": "h200",
    "gpus_total": "8",
    "framework": "trtllm",
    "framework_version": "1.0",
    "precision_weights": "fp8",
    "precision_kv": "fp8",
    "tp": "4",
    "pp": "1",
    "ep": "1",
    "dp": "1",
    "mode": "aggregated",
    "isl_mean": "1000",
    "osl_mean": "200",
    "concurrency": "64",
    "spec_decode": "0",
    "tpot_mean_ms": "20",
}


# Baselines


def test_training_roofline_is_the_work_over_the_peak() -> None:
    bound = baselines.training_bound(TRAINED, CATALOG)
    # 8 · 6 · tokens · weights / (gpus · 312 TFLOP/s) within the attention and the table of the input.
    weights = 8.0 * 22e9 * 2048 * 8 / (16 * 312e12)
    assert bound.values["Step time"] == pytest.approx(weights, rel=0.15)
    once = baselines.training_bound(TRAINED | {"recompute": "none"}, CATALOG)
    assert bound.values["Step time"] == pytest.approx(once.values["Step time"] * 4 / 3)


def test_twice_the_accelerators_halve_a_compute_bound_step() -> None:
    one, two = (baselines.training_bound(TRAINED | {"gpus": gpus}, CATALOG) for gpus in ("16", "32"))
    assert one.values["Step time"] == pytest.approx(2 * two.values["Step time"])


def test_a_single_sequence_decodes_no_faster_than_its_weights_are_read() -> None:
    case = read_case(SERVED | {"concurrency": "2", "osl_mean": "2"}, CATALOG, CONSTANTS)
    values = baselines.serving_bound(case).values
    read_s = 70e9 / (4 * case.accelerator.memory_bytes_per_s)
    assert values["TPOT"] / 1e3 == pytest.approx(read_s, rel=0.05)


@pytest.mark.parametrize("concurrency", [8, 64, 512])
def test_a_larger_batch_is_slower_for_each_and_faster_for_all(concurrency: int) -> None:
    smaller, larger = (
        baselines.serving_bound(read_case(SERVED | {"concurrency": str(n)}, CATALOG, CONSTANTS)).values
        for n in (concurrency, concurrency * 2)
    )
    assert larger["TPOT"] > smaller["TPOT"]
    assert larger["Output tokens/s"] > smaller["Output tokens/s"]


def test_throughput_is_what_little_s_law_makes_of_the_times() -> None:
    values = baselines.serving_bound(read_case(SERVED, CATALOG, CONSTANTS)).values
    request_s = (values["TTFT"] + 199 * values["TPOT"]) / 1e3
    assert values["Output tokens/s"] * request_s == pytest.approx(64 * 200)


def test_the_constant_fraction_of_a_source_comes_from_the_others() -> None:
    rows = [
        TRAINED | {"source": source, "step_time_s": seconds}
        for source, seconds in (("a", "2"), ("b", "4"), ("b", "4"), ("c", "8"))
    ]
    bounds = baselines.roofline("training", rows, CATALOG, CONSTANTS)
    answers = baselines.constant_fraction("training", rows, bounds)
    told = [answer["Step time"] for answer in answers if not isinstance(answer, str)]
    # Geometric means of the other sources' medians: rows of one source do not count twice.
    assert told == pytest.approx([np.sqrt(32), 4.0, 4.0, np.sqrt(8)])


def test_a_source_alone_has_no_constant_fraction() -> None:
    bounds = baselines.roofline("training", [TRAINED], CATALOG, CONSTANTS)
    assert baselines.constant_fraction("training", [TRAINED], bounds) == ["no other source measured this"]


@pytest.mark.parametrize(("half", "figure"), [("training", "Step time"), ("inference", "TPOT")])
def test_no_run_beats_the_roofline(half: str, figure: str) -> None:
    """In 95 of 100 rows at least: a bound that measurements often break would be wrong."""
    if not TRUTH.exists():
        pytest.skip("the open rows are not beside this checkout: ../shared/truth")
    rows = compare.scored_rows(half, TRUTH)
    rows = [rows[place] for place in compare.sample(rows, range(len(rows)), 60)]
    wanted = next(each for each in FIGURES[half] if each.title == figure)
    ratios = [
        bound.values[figure] / truth[1]
        for row, bound in zip(rows, baselines.roofline(half, rows, CATALOG, CONSTANTS), strict=True)
        if not isinstance(bound, str) and (truth := compare.measured(row, wanted))
    ]
    assert len(ratios) > 200
    assert np.mean(np.array(ratios) <= 1.0) >= 0.95


# Questions to peers, asked of nobody


def test_a_megatron_row_becomes_calculon_s_own_words() -> None:
    (question,) = calculon.questions(TRAINED, CATALOG)
    assert question["system"] == "a100_80g"
    assert question["network_gb_per_s"] == pytest.approx(25.0)
    assert question["application"] == {
        "hidden": 6144,
        "feedforward": 24576,
        "seq_size": 2048,
        "attn_heads": 64,
        "attn_size": 96,
        "num_blocks": 48,
    }
    execution = question["execution"]
    assert isinstance(execution, dict)
    assert execution["num_procs"] == 16
    assert (execution["tensor_par"], execution["data_par"], execution["pipeline_par"]) == (8, 2, 1)
    assert (execution["tensor_par_net"], execution["data_par_net"]) == (0, 1)
    assert execution["activation_recompute"] == "full"
    assert execution["tensor_par_comm_type"] == "rs_ag"
    assert execution["optimizer_sharding"] is True


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu": "B200"}, "no system file"),
        ({"precision": "fp8"}, "no mixed fp8"),
        ({"kv_heads": "8"}, "grouped-query"),
        ({"zero_stage": "3"}, "sharding"),
        ({"cp": "2", "gpus": "32"}, "context parallelism"),
        ({"experts": "8", "experts_topk": "2"}, "mixture of experts"),
    ],
)
def test_what_calculon_cannot_express_is_refused_with_its_reason(change: dict[str, str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        calculon.questions(TRAINED | change, CATALOG)


def test_of_several_readings_the_fastest_that_was_answered_counts() -> None:
    told = [{"error": "no"}, {"step_s": 3.0, "memory_gib": 50.0}, {"step_s": 2.0, "memory_gib": 70.0}]
    assert calculon.fastest(told) == {"Step time": 2.0, "Peak memory": 70.0}
    assert calculon.fastest(told[:1]) == "no"


def test_a_served_row_becomes_an_estimate_of_one_worker() -> None:
    assert aiconfigurator.question(SERVED, CATALOG, CONSTANTS) == {
        "model_path": "meta-llama/Meta-Llama-3.1-70B",
        "system_name": "h200_sxm",
        "backend_name": "trtllm",
        "mode": "agg",
        "isl": 1000,
        "osl": 200,
        "batch_size": 32,  # two copies of four share the 64
        "tp_size": 4,
        "pp_size": 1,
        "attention_dp_size": 1,
        "kvcache_quant_mode": "fp8",
        "gemm_quant_mode": "fp8",
    }


def test_experts_and_data_parallel_attention_reach_the_estimate() -> None:
    deepseek = {"model": "deepseek-ai/DeepSeek-R1-0528", "tp": "1", "dp": "8", "ep": "8"}
    told = aiconfigurator.question(SERVED | deepseek, CATALOG, CONSTANTS)
    assert (told["moe_ep_size"], told["moe_tp_size"], told["attention_dp_size"]) == (8, 1, 8)
    assert told["batch_size"] == 8
    assert told["kvcache_quant_mode"] == "fp8"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu": "mi300x"}, "no data for MI300X"),
        ({"model": "meta-llama/Llama-2-7b-hf"}, "no configuration"),
        ({"spec_decode": "1"}, "drafts"),
        ({"tp": ""}, "layout open"),
        ({"concurrency": "", "request_rate_rps": "2"}, "by rate"),
        ({"mode": "disaggregated"}, "prefill"),
    ],
)
def test_what_aiconfigurator_cannot_express_is_refused_with_its_reason(
    change: dict[str, str], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        aiconfigurator.question(SERVED | change, CATALOG, CONSTANTS)


def test_throughput_of_a_worker_counts_for_every_copy() -> None:
    told = {"ttft_ms": 100.0, "tpot_ms": 10.0, "tokens_per_s": 500.0}
    assert aiconfigurator.figures(told, 2.0) == {"TTFT": 100.0, "TPOT": 10.0, "Output tokens/s": 1000.0}


# The tables


def test_a_sample_is_even_and_never_larger_than_asked() -> None:
    rows = [{"source": "a"}] * 10 + [{"source": "b"}] * 3
    assert compare.sample(rows, range(13), 5) == [0, 2, 4, 6, 8, 10, 11, 12]


def test_both_tools_are_scored_on_the_same_rows() -> None:
    tool = Tool("theirs", "1", "training")
    rows = [TRAINED, TRAINED | {"step_time_s": ""}, TRAINED]
    own = compare.ours("training", rows, CATALOG, CONSTANTS)
    (line,) = compare.lines(tool, own, [{"Step time": 3.0}, {"Step time": 1.0}, "no"])
    assert (line.figure, line.source, line.rows) == ("Step time", "mine", 1)
    assert (line.mean_error, line.median_error, line.bias) == pytest.approx((0.5, 0.5, 0.5))
    assert line.ours_constants == "shipped"  # no fit knows this source


def test_a_tool_replaces_its_own_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.csv"
    mine = Outcome("training", "mine", "answered", 3)
    replace_lines(path, Outcome, [mine, Outcome("training", "theirs", "answered", 4)])
    replace_lines(path, Outcome, [Outcome("training", "theirs", "refused", 5)])
    assert read(path, Outcome) == [mine, Outcome("training", "theirs", "refused", 5)]


def test_stored_answers_are_those_that_were_told(tmp_path: Path) -> None:
    rows = [TRAINED | {"id": "a"}, TRAINED | {"id": "b"}]
    kept = compare.kept_answers(Tool("theirs", "1", "training"), rows, ["no", {"Step time": 2.5}])
    replace_lines(tmp_path / "answers.csv", Told, kept)
    assert compare.stored_answers(rows, read(tmp_path / "answers.csv", Told)) == [
        "not asked",
        {"Step time": 2.5},
    ]


def test_the_committed_tables_agree_with_each_other() -> None:
    lines, told = read(FOLDER / "results.csv", Line), read(FOLDER / "answers.csv", Told)
    ended = read(FOLDER / "outcomes.csv", Outcome)
    assert {line.tool for line in lines} >= {"roofline", "constant MFU", "Calculon", "AIConfigurator"}
    assert {line.half for line in lines} == set(FIGURES)
    for line in lines:
        assert line.figure in {figure.title for figure in FIGURES[line.half]}
        assert line.rows > 0
        assert min(line.mean_error, line.median_error, line.ours_mean_error, line.ours_median_error) >= 0.0
        assert min(line.bias, line.ours_bias) > -1.0
    for tool in {each.tool for each in told}:
        answered = next(each.rows for each in ended if (each.tool, each.outcome) == (tool, "answered"))
        assert answered == len({each.id for each in told if each.tool == tool})
    assert all(replace(line) == line for line in lines)


def test_every_command_of_the_readme_can_be_parsed() -> None:
    text = (FOLDER / "README.md").read_text("utf-8")
    commands = re.findall(r"^python -m bench\.peers (.*)$", text, re.M)
    tools = {command.parser().parse_args(shlex.split(each)).tool for each in commands}
    assert tools == set(command.RUN)


@pytest.mark.parametrize("tool", ["calculon", "aiconfigurator"])
def test_a_missing_peer_is_named_with_the_way_to_it(
    tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for half, row in (("training", TRAINED), ("inference", SERVED)):
        path = tmp_path / compare.FILES[half]
        path.write_text(",".join(row) + "\n" + ",".join(f'"{cell}"' for cell in row.values()) + "\n", "utf-8")
    told = [tool, "--path", str(tmp_path), "--data", str(tmp_path), "--out", str(tmp_path / "out.csv")]
    assert command.main(told) == 2
    assert "hint:" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_baselines_run_without_any_peer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for half, row in (("training", TRAINED), ("inference", SERVED)):
        path = tmp_path / compare.FILES[half]
        path.write_text(",".join(row) + "\n" + ",".join(f'"{cell}"' for cell in row.values()) + "\n", "utf-8")
    told = ["baselines", "--data", str(tmp_path), "--out", str(tmp_path / "out.csv")]
    assert command.main(told) == 0
    assert "roofline" in capsys.readouterr().out
    assert {line.figure for line in read(tmp_path / "out.csv", Line)} == {"Step time", "TPOT"}
