"""One question on the command line: the acceptance of every requirement that `estimate` reaches."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.cli import main

Ask = Callable[[str], dict[str, Any]]

LLAMA_70B = "train llama-3.1-70b --on 64x8xH100-SXM --batch '512 seq'"
SERVE_70B = "serve llama-3.1-70b --on 4xH200 --input 1155 --output 211 --concurrency 64"
SEVEN_BILLION = {  # 7.00 B parameters: a Llama with a slightly wider FFN
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 11674,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """`ask("train …")`: the answer of `twofold estimate … --json`, which must exit 0."""
    monkeypatch.chdir(tmp_path)

    def answer(words: str) -> dict[str, Any]:
        capsys.readouterr()
        code = main(["estimate", *shlex.split(words), "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        data: dict[str, Any] = json.loads(out)
        return data

    return answer


@pytest.fixture
def refuse(capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[int, str]]:
    """The exit code and stderr of `twofold estimate …`."""

    def answer(words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["estimate", *shlex.split(words)])
        return code, capsys.readouterr().err

    return answer


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Callable[[str], list[str]]:
    """The lines of `twofold estimate …`."""

    def answer(words: str) -> list[str]:
        capsys.readouterr()
        assert main(["estimate", *shlex.split(words)]) == 0
        return capsys.readouterr().out.splitlines()

    return answer


def parts(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {row["name"]: row["value"]["value"] for row in rows}


# Training


def test_bytes_are_listed_by_number_format_and_add_up(ask: Ask) -> None:
    for precision, held in (("bf16", "bf16"), ("fp16", "fp16"), ("fp8", "bf16"), ("fp32", "fp32")):
        answer = ask(f"{LLAMA_70B} --precision {precision} --recompute full")
        by_format = parts(answer["memory_by_format"])
        assert {held, "fp32"} <= by_format.keys()
        assert sum(by_format.values()) == pytest.approx(answer["memory_bytes"]["value"])


def test_seven_billion_parameters_take_14_14_and_84_gb(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SEVEN_BILLION), "utf-8")
    words = (
        "train ./config.json --on 1xB200 --batch '1 seq' --sequence '2048 tok' --layout tp=1,mb=1 --zero 0"
    )
    answer = ask(f"{words} --recompute full")
    assert answer["parameters"] == pytest.approx(7.0e9, rel=1e-3)
    held = parts(answer["memory_parts"])
    for name, gigabytes in (("weights", 14), ("gradients", 14), ("optimiser", 84)):
        assert held[name] / 1e9 == pytest.approx(gigabytes, rel=0.01), name
    assert held["activations"] > 0
    assert sum(held.values()) == pytest.approx(answer["memory_bytes"]["value"])
    assert answer["fits"] == (answer["memory_bytes"]["high"] <= answer["memory_capacity_bytes"])


def test_what_does_not_fit_is_refused_with_its_parts(
    refuse: Callable[[str], tuple[int, str]], tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SEVEN_BILLION), "utf-8")
    code, said = refuse(
        f"train {path} --on 1xH100-SXM --batch '1 seq' --sequence '2048 tok' --layout tp=1,mb=1 --zero 0"
    )
    assert code == 3
    assert "weights 13 GiB, gradients 13 GiB, optimiser 78 GiB" in said


def test_full_recomputation_trades_activations_for_a_third_more_flops(ask: Ask) -> None:
    layout = "--layout tp=8,pp=4,vpp=1,dp=16,mb=1 --zero 1"
    none, full = (ask(f"{LLAMA_70B} {layout} --recompute {mode}") for mode in ("none", "full"))
    more = (full["hardware_flops"] - none["hardware_flops"]) / none["hardware_flops"]
    assert 0.30 <= more <= 0.35
    assert parts(full["memory_parts"])["activations"] < parts(none["memory_parts"])["activations"]
    assert full["step_s"]["value"] > none["step_s"]["value"]


def test_405b_needs_more_than_64_times_80_gb(
    ask: Ask, refuse: Callable[[str], tuple[int, str]]
) -> None:
    question = "train llama-3.1-405b --batch '64 seq' --on"
    code, said = refuse(f"{question} 8x8xH100-SXM")
    assert code == 3
    assert all(word in said for word in ("needs", "tried", "would fit", "GiB"))
    roomy = ask(f"{question} 8x8xH200")
    assert roomy["fits"]
    assert parts(roomy["memory_parts"])["optimiser"] > 0


def test_twenty_layouts_of_70b_on_64_accelerators_are_ranked(ask: Ask) -> None:
    answer = ask("train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --layouts 30")
    steps = [row["step_s"]["value"] for row in answer["layouts"]]
    assert answer["valid_layouts"] >= 20
    assert len(steps) >= 20
    assert steps == sorted(steps)
    assert answer["layouts"][0]["text"] == answer["layout"]["text"]


def test_slower_links_cost_tensor_parallelism_alone(ask: Ask) -> None:
    def slower(layout: str, model: str) -> float:
        words = f"train {model} --on 8x8xH100-SXM --batch '1024 seq' --layout {layout}"
        usual, halved = (ask(f"{words} {scale}")["step_s"]["value"] for scale in ("", "--scale link=0.5"))
        return halved / usual - 1

    assert slower("tp=8,pp=4,vpp=1,mb=1", "llama-3.1-70b") > 0.01
    assert slower("tp=1,pp=1,cp=1,mb=1", "llama-3.1-8b") <= 0.02


def test_faster_cards_between_nodes_never_slow_a_step(ask: Ask) -> None:
    steps = [ask(f"{LLAMA_70B} --nic '{rate} Gb/s'")["step_s"]["value"] for rate in (200, 400, 800)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


def test_oversubscription_adds_step_time(ask: Ask) -> None:
    flat, tapered = (ask(f"{LLAMA_70B} --oversubscription {ratio}")["step_s"]["value"] for ratio in (1, 4))
    assert tapered > flat


def test_a_405b_run_has_its_published_hours_and_checkpoint(ask: Ask) -> None:  # R-019 R-020 R-024 R-120
    answer = ask(  # on the fabric that they had
        "train llama-3.1-405b --on 2048x8xH100-SXM --batch '2048 seq' --fabric roce --tokens '15.6 Ttok'"
    )
    run = answer["run"]
    assert run["base_accelerator_h"]["value"] == pytest.approx(30.8e6, rel=0.2)
    saved = run["checkpoints"]
    assert saved["size_bytes"] == pytest.approx(5.67e12, rel=0.005)
    assert saved["write_bytes_per_s"] == pytest.approx(saved["size_bytes"] / 60)
    assert saved["interval_s"]["value"] / 60 == pytest.approx(19, abs=1)
    assert saved["storage_bytes_per_s"] == pytest.approx(saved["write_bytes_per_s"])
    assert saved["storage_term"] == "checkpoint write"
    parts_s = sum(run[name]["value"] for name in ("compute_s", "checkpoint_s", "failure_s"))
    assert parts_s == pytest.approx(run["wall_s"]["value"])


def test_storage_follows_the_job(ask: Ask) -> None:
    sizes = {
        model: ask(f"train {model} --on 8x8xH100-SXM --batch '64 seq' --tokens '1 Ttok'")["run"][
            "checkpoints"
        ]
        for model in ("llama-3.1-8b", "llama-3.1-70b")
    }
    small, large = (sizes[model]["storage_bytes_per_s"] for model in ("llama-3.1-8b", "llama-3.1-70b"))
    assert large == pytest.approx(small * 70.55 / 8.03, rel=0.01)


def test_headroom_is_split_by_cause(ask: Ask) -> None:
    run = ask(f"{LLAMA_70B} --tokens '1 Ttok' --headroom 'retries=5 %,validation=2 %,experiments=15 %'")[
        "run"
    ]
    hours = parts(run["headroom"])
    assert hours.keys() == {"run", "retries", "validation", "experiments"}
    assert sum(hours.values()) == pytest.approx(run["accelerator_h"]["value"])
    assert run["accelerator_h"]["value"] == pytest.approx(1.22 * run["base_accelerator_h"]["value"])


def test_exposed_communication_and_the_strongest_bound_are_on_the_screen(
    ask: Ask, screen: Callable[[str], list[str]]
) -> None:
    answer, shown = ask(LLAMA_70B), "\n".join(screen(LLAMA_70B))
    assert "exposed communication" in shown
    gains = [bound["gain_fraction"] for bound in answer["bounds"]]
    assert gains == sorted(gains, reverse=True)
    assert answer["bounds"][0]["resource"] == "compute"
    assert 0.05 < gains[0] <= 1 - 1 / 1.2 + 1e-9
    assert "20 % more FLOP/s gains" in shown


def test_virtual_machines_cost_their_stated_overhead(ask: Ask) -> None:
    bare, virtual = (ask(f"{LLAMA_70B} --tokens '100 Gtok' {words}") for words in ("", "--virtual '5 %'"))
    assert 1.0 < virtual["step_s"]["value"] / bare["step_s"]["value"] <= 1.0501
    assert virtual["run"]["cost_usd"]["value"] > bare["run"]["cost_usd"]["value"]


def test_a_part_without_price_says_so(screen: Callable[[str], list[str]]) -> None:
    shown = screen("train llama-3.1-8b --on 1x8xGaudi3 --batch '8 seq' --tokens '1 Gtok'")
    assert any("no price" in line for line in shown)


# Serving


def test_kv_cache_of_70b_is_327680_bytes_a_token(ask: Ask) -> None:
    answer = ask("serve llama-3.1-70b --on 4xH200 --input 8000 --output 192 --concurrency 32")
    assert answer["kv_bytes_per_token"] == 327_680
    assert 32 * answer["kv_bytes_per_sequence"] == pytest.approx(86e9, rel=0.005)


def test_each_switch_moves_the_room_for_requests(ask: Ask) -> None:
    rows = {row["name"]: row["max_sequences"] for row in ask(f"{SERVE_70B} --switches")["switches"]}
    assert rows.pop("contiguous") < rows["paged"]
    paged = rows.pop("paged")
    assert len(rows) == 3
    assert all(count > paged for count in rows.values()), rows
    shared, plain = (ask(f"{SERVE_70B} {words}") for words in ("--prefix '50 %'", ""))
    assert shared["max_sequences"]["value"] > plain["max_sequences"]["value"]
    assert shared["percentiles"]["ttft_p50"]["value"] < plain["percentiles"]["ttft_p50"]["value"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("--prefix '90 %'", "half the prompt shared"),
        ("--offload '64 GiB'", "offloaded to the host"),
        ("--kv bf16", "8-bit cache"),
    ],
)
def test_no_switch_overrides_what_the_question_says(ask: Ask, said: str, kept: str) -> None:
    rows = [row["name"] for row in ask(f"{SERVE_70B} {said} --switches")["switches"]]
    others = {"8-bit cache", "half the prompt shared", "offloaded to the host"} - {kept}
    assert rows[:2] == ["paged", "contiguous"] and set(rows[2:]) == others


def test_formats_include_scales_and_flag_what_has_no_units(ask: Ask) -> None:
    rows = {row["weights_format"]: row for row in ask(f"{SERVE_70B} --formats")["formats"]}
    assert rows["bf16"]["weights_bytes"] > rows["fp8"]["weights_bytes"] > rows["int4"]["weights_bytes"]
    assert rows["int4"]["scales_bytes"] > 0
    assert not rows["fp4"]["supported"]
    assert "no fp4" in rows["fp4"]["note"]
    assert rows["fp8"]["supported"]
    older = {
        row["weights_format"]: row
        for row in ask(f"{SERVE_70B.replace('4xH200', '8xA100-80GB')} --formats")["formats"]
    }
    assert not older["fp8"]["supported"]


@pytest.mark.parametrize(("model", "on"), [("llama-3.1-70b", "8xH200"), ("llama-3.1-405b", "8xH200")])
def test_tensor_and_pipeline_layouts_are_compared(ask: Ask, model: str, on: str) -> None:
    words = f"serve {model} --on {on} --weights fp8 --input 1155 --output 211 --concurrency 32 --layouts"
    answering = [row for row in ask(words)["layouts"] if row["tpot_s"]]
    tensor = next(row for row in answering if row["tp"] == 8)
    piped = next(row for row in answering if row["pp"] > 1)
    assert tensor["tpot_s"]["value"] < piped["tpot_s"]["value"]
    assert tensor["output_tokens_per_s"]["value"] > 0
    assert piped["output_tokens_per_s"]["value"] > 0


def test_expert_parallelism_shows_its_all_to_all_bytes(ask: Ask) -> None:
    words = "serve deepseek-v3 --on 8xH200 --weights fp8 --input 1000 --output 200 --concurrency 64"
    spread = ask(f"{words} --tp 8 --ep 8")
    # 58 expert layers, 8 experts a token on 8 ranks, 7,168 wide: one byte out, two back.
    assert spread["all_to_all_bytes_per_token"] == pytest.approx(58 * 8 * 7168 * 3)
    assert ask(f"{words} --tp 8 --ep 1")["all_to_all_bytes_per_token"] == 0


def test_throughput_grows_with_replicas_at_a_stated_efficiency(ask: Ask) -> None:
    rows = ask(f"{SERVE_70B} --replicas 1..16")["replicas"]
    assert [row["replica_count"] for row in rows] == [1, 2, 4, 8, 16]
    rates = [row["requests_per_s"]["value"] for row in rows]
    assert rates == sorted(rates)
    assert 0.5 < rows[-1]["efficiency_fraction"] <= 1.0
    assert rates[-1] == pytest.approx(16 * rows[-1]["efficiency_fraction"] * rates[0])


def test_cold_start_is_bytes_over_bandwidth_and_warm_up(ask: Ask) -> None:
    answer = ask(f"{SERVE_70B} --load-rate '5 GB/s'")
    starting = parts(answer["cold_start_parts"])
    assert starting["read weights"] == pytest.approx(answer["weights_bytes"] / 5e9)
    assert sum(starting.values()) == pytest.approx(answer["cold_start_s"]["value"])


def test_a_small_model_runs_on_a_cpu_at_a_cost(ask: Ask) -> None:
    answer = ask(
        "serve llama-3.2-1b --on 1xXeon-8480C --weights int8 --price '2.1 $/h' "
        "--input 500 --output 100 --rate '1 /s'"
    )
    assert answer["compute_format"] == "int8"
    assert answer["output_tokens_per_s"]["value"] == pytest.approx(100)
    assert answer["usd_per_1k_output_tokens"]["value"] == pytest.approx(2.1 / 3600 / 100 * 1000)
    assert 1 / answer["percentiles"]["tpot_p50"]["value"] > 10  # tokens/s of one user


@pytest.mark.parametrize("chip", ["Groq", "Cerebras", "Inferentia2"])
def test_a_device_too_small_says_how_many_are_needed(
    refuse: Callable[[str], tuple[int, str]], chip: str
) -> None:
    code, said = refuse(f"serve llama-3.1-70b --on 1x{chip} --input 100 --output 100 --concurrency 1")
    assert code == 3
    needed = [line for line in said.splitlines() if "would fit" in line]
    assert needed
    assert any(character.isdigit() for character in needed[0])


def test_the_latency_budget_sums_from_edge_to_decode(ask: Ask) -> None:
    budget = parts(ask(SERVE_70B)["latency_budget"])
    assert list(budget) == ["edge", "gateway", "queue", "prefill", "decode"]
    assert all(value >= 0 for value in budget.values())


def test_larger_prefill_chunks_take_larger_buffers(ask: Ask) -> None:
    small, large = (parts(ask(f"{SERVE_70B} --chunk {size}")["memory_parts"]) for size in (2048, 16384))
    assert large["buffers"] > small["buffers"]
    assert large["KV cache"] < small["KV cache"]


def test_memory_of_a_device_is_shared_out_to_the_last_byte(ask: Ask) -> None:
    answer = ask(f"{SERVE_70B} --weights int4")
    assert sum(parts(answer["memory_parts"]).values()) == pytest.approx(answer["memory_capacity_bytes"])


def test_bandwidth_and_capacity_are_told_apart(ask: Ask) -> None:
    roomy = ask("serve llama-3.1-8b --on 1xH200 --input 200 --output 200 --concurrency 8")
    tight = ask(
        "serve llama-3.1-70b --on 2xH100-SXM --weights fp8 --input 8000 --output 1000 --concurrency 8"
    )
    assert roomy["batch_limit"] == "bandwidth"
    assert tight["batch_limit"] == "capacity"


def test_a_rate_above_saturation_is_refused_with_the_copies_it_takes(
    refuse: Callable[[str], tuple[int, str]],
) -> None:
    code, said = refuse("serve llama-3.1-70b --on 4xH200 --input 1155 --output 211 --rate '1000 /s'")
    assert code == 3
    assert "copies of 4 × H200" in said


def test_a_refusal_is_data_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = "serve llama-3.1-70b --on 1xL4 --input 100 --output 100 --concurrency 1 --json"
    assert main(["estimate", *shlex.split(words)]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == 3
    (error,) = told["errors"]
    assert error["code"] == "E-infeasible"
    assert {line["label"] for line in error["lines"]} == {"needs", "has", "would fit"}


# Single questions


def test_the_ring_formula_holds_on_an_idle_network_and_jitter_raises_the_tail(ask: Ask) -> None:
    words = "collective all_reduce --size '1 GB' --on 64x1xH100-SXM"
    idle = ask(f"{words} --jitter '0 %'")
    assert abs(idle["ring_difference_fraction"]) < 0.01
    card = 12.5e9 * 0.5  # a rented single H100 has 100 Gb/s, of which its fabric keeps about half
    assert idle["ring_s"] == pytest.approx(2 * 63 / 64 * 1e9 / card, rel=0.7)
    shaky = ask(f"{words} --jitter '10 %'")
    assert idle["tail_s"]["p99"] == idle["tail_s"]["p50"] == idle["idle_s"]
    assert shaky["idle_s"] == idle["idle_s"]
    assert shaky["tail_s"]["p99"]["value"] > shaky["tail_s"]["p50"]["value"] > idle["idle_s"]["value"]


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_collectives_have_latency_and_bandwidth_terms(ask: Ask, operation: str) -> None:
    def seconds(size: str) -> float:
        value: float = ask(f"collective {operation} --size '{size}' --on 8x8xH100-SXM")["idle_s"]["value"]
        return value

    tiny, large, twice = seconds("1 kB"), seconds("10 GB"), seconds("20 GB")
    assert 1e-6 < tiny < 2e-3  # latency
    assert twice == pytest.approx(2 * large, rel=0.05)  # bandwidth


def test_a_frontier_run_of_25000_a100s(ask: Ask) -> None:
    for days in (95, 100):
        answer = ask(
            f"compute --on 3125x8xA100-80GB --for '{days} d' --mfu '34 %' --spend '100 M$' "
            "--model llama-3.1-405b"
        )
        assert 2.1e25 <= answer["flops"] <= 2.3e25
        assert answer["usd_per_accelerator_h"] == pytest.approx(100e6 / (25_000 * 24 * days))
        assert answer["tokens"] == pytest.approx(answer["flops"] / (6 * 405.85e9), rel=1e-3)


@pytest.mark.parametrize("words", ["--for '0 d'", "--for '95 d' --mfu '0 %'", "--for '95 d' --mfu '120 %'"])
def test_a_run_of_no_time_or_beyond_the_peak_is_refused(run: Callable[[str], Any], words: str) -> None:
    done = run(f"twofold estimate compute --on 3125x8xA100-80GB {words}")
    assert done.code == 2 and "error[E-value]" in done.err


def test_ridges_of_h100_and_h200_and_the_points_under_them(
    ask: Ask, screen: Callable[[str], list[str]]
) -> None:
    assert ask("roofline llama-3.1-70b --on H100-SXM")["ridge_flops_per_byte"] == pytest.approx(295, abs=0.5)
    answer = ask("roofline llama-3.1-70b --on H200")
    assert answer["ridge_flops_per_byte"] == pytest.approx(206, abs=0.5)
    bounds = {point["name"].split(",")[0]: point["bound"] for point in answer["points"]}
    assert bounds["training"] == bounds["prefill"] == "compute"
    assert bounds["decode"] == "memory bandwidth"
    shown = screen("roofline llama-3.1-70b --on H200")
    plotted = "".join(line.split("│")[1] for line in shown if "│" in line)
    assert set("abcdefg") <= set(plotted)
    assert any("206 FLOP/B" in line for line in shown)


# All of them

QUESTIONS = (
    f"{LLAMA_70B} --tokens '15 Ttok' --layouts 20 --headroom 'retries=5 %'",
    f"{SERVE_70B} --formats --layouts --switches --replicas 1..16",
    "serve deepseek-v3 --on 8xH200 --weights fp8 --input 1000 --output 200 --rate '3 /s' --layouts",
    "collective all_to_all --size '100 MB' --on 64x8xH100-SXM --jitter '5 %'",
    "compute --on 3125x8xA100-80GB --for '95 d' --mfu '34 %' --spend '100 M$' --model llama-3.1-405b",
    "roofline deepseek-v3 --on B200 --weights fp8",
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_line_is_wider_than_100_columns(screen: Callable[[str], list[str]], question: str) -> None:
    wide = [line for line in screen(question) if len(line) > 100]
    assert wide == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_same_question_gives_the_same_bytes_and_names_its_schema(ask: Ask, question: str) -> None:
    answer = ask(question)
    assert answer == ask(question)
    assert answer["schema"] == f"twofold/estimate-{question.split()[0]}/1"
    assert next(iter(answer)) == "schema"


def test_every_estimate_holds_its_middle(ask: Ask) -> None:
    def estimates(node: Any) -> list[dict[str, Any]]:
        if isinstance(node, dict) and {"value", "low", "high"} <= node.keys():
            return [node]
        below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        return [found for item in below for found in estimates(item)]

    for question in QUESTIONS:
        found = estimates(ask(question))
        assert all(each["low"] <= each["value"] <= each["high"] for each in found)
    assert ask(LLAMA_70B)["step_s"]["low"] < ask(LLAMA_70B)["step_s"]["high"]


MISTAKES = {
    "train llama-3.1-70b --on 64*8 --batch '512 seq'": "E-value",
    "train llama-3.1-70b --on 8x8xH1000 --batch '512 seq'": "E-name",
    "train llama-9-70b --on 8x8xH100-SXM --batch '512 seq'": "E-name",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch 512": "E-unit",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '5000 tok'": "E-batch",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --layout tp=3": "E-value",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --layout tq=8": "E-name",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --layout tp": "E-value",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --scale warp=2": "E-name",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --scale link=-1": "E-value",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --framework pascal": "E-name",
    "train ./missing.json --on 8x8xH100-SXM --batch '64 seq'": "E-",
    "serve llama-3.1-70b --on 4xH200 --input 100 --output 100": "E-value",
    "serve llama-3.1-70b --on 4xH200 --input 100 --output 100 --concurrency 4 --rate '1 /s'": "E-value",
    "serve llama-3.1-70b --on 4xH200 --input '200 ktok' --output 100 --concurrency 4": "E-value",
    "serve llama-3.1-70b --on 4xH200 --input 0 --output 100 --concurrency 4": "E-",
    "serve llama-3.1-70b --on 4xH200 --input 100 --output 100 --concurrency 4 --weights fp7": "E-name",
    "serve llama-3.1-70b --on 4xH200 --input 100 --output 100 --concurrency 4 --tp 3": "E-value",
    "serve llama-3.1-70b --on 4xH200 --input 100 --output 100 --rate '0 /s'": "E-value",
    "serve llama-3.1-70b --on 4xH200 --input 100 --output 100 --concurrency 4 --prefix '120 %'": "E-value",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --tokens '0 tok'": "E-value",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --nic '0 Gb/s'": "E-value",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --sequence '0 tok'": "E-",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --oversubscription 0.5": "E-value",
    "train llama-3.1-70b --on 8x8xH100-SXM --batch '64 seq' --fabric string": "E-name",
    "collective all_reduce --size '0 B' --on 8xH100-SXM": "E-value",
    "train llama-3.1-8b --on 1x8xTPU-v5p --batch '8 seq' --precision fp32": "E-value",
    "roofline sdxl-unet --on H200": "E-value",
    "collective broadcast --size '1 GB' --on 8xH100-SXM": "E-name",
    "collective all_reduce --size '1 GB' --on 8xH100-SXM --ranks 9": "E-value",
    "compute --on 8xH100-SXM --for '0 d'": "E-value",
}


@pytest.mark.parametrize("question", MISTAKES)
def test_a_mistake_ends_in_a_coded_message(refuse: Callable[[str], tuple[int, str]], question: str) -> None:
    code, said = refuse(question)
    assert code == 2, said
    assert MISTAKES[question] in said


def test_light_recomputation_is_not_called_none(screen: Callable[[str], list[str]]) -> None:
    """Norms and activations are computed again: time, but no product of matrices."""
    light, none = (
        "\n".join(screen(f"{LLAMA_70B} --recompute {mode}")) for mode in ("light", "none --on 128x8xH200")
    )
    assert "light recompute" in light and "no product computed twice" in light
    assert "nothing recomputed" not in light and "nothing recomputed" in none
