"""The requirement rows of area `inference`: each test runs its row's command and asserts its acceptance."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

GB = 1e9
Ask = Callable[[str], Any]
Value = Callable[..., float]
Plans = dict[str, Any]


def json_of(ask: Ask, line: str) -> Any:
    done = ask(f"{line} --json")
    assert done.code == 0, done.text
    return done.data


def test_r_040_every_plan_holds_p50_p95_and_p99_against_its_promises(screen: str, plans: Plans) -> None:
    """The closed form's percentiles; the twin's measured ones and their errors come with its part."""
    assert "TTFT" in screen and "TPOT" in screen
    classes = [one for plan in plans.values() for service in plan["serving"] for one in service["classes"]]
    assert len(classes) >= 8
    for one in classes:
        found = one["percentiles"]
        for metric in ("ttft", "tpot"):
            p50, p95, p99 = (found[f"{metric}_{which}"]["value"] for which in ("p50", "p95", "p99"))
            assert 0 < p50 <= p95 <= p99, (one["name"], metric)
        assert one["slos"], one["name"]
        for promise in one["slos"]:
            assert promise["met"] == (promise["predicted"]["value"] <= promise["limit_s"])
            assert promise["met"], one["name"]  # what a feasible plan promises, it keeps
            if promise["metric"] in found:
                assert promise["predicted"] == found[promise["metric"]]


def test_r_042_the_cache_of_70b_is_327680_b_per_token_and_86_gb_for_32_users(data: Any, screen: str) -> None:
    assert "86 GB for all 32" in screen
    assert data["kv_bytes_per_token"] == 327_680
    assert data["input_tokens"] + data["output_tokens"] == 8192
    assert 32 * data["kv_bytes_per_sequence"] / GB == pytest.approx(86, abs=0.5)
    room = data["max_sequences"]["value"]
    caches = [part["value"]["value"] for part in data["memory_parts"] if part["name"] == "KV cache"]
    assert room * data["kv_bytes_per_sequence"] == pytest.approx(4 * caches[0], rel=0.02)


def test_r_043_every_way_to_keep_the_cache_moves_what_fits(data: Any) -> None:
    """Each switch against the paged cache. What each does to latency under load is the twin's to show."""
    room = {row["name"]: row["max_sequences"] for row in data["switches"]}
    paged = room.pop("paged")
    assert room.pop("contiguous") < paged
    assert set(room) == {"8-bit cache", "half the prompt shared", "offloaded to the host"}
    assert all(count > paged for count in room.values())
    assert room["8-bit cache"] == pytest.approx(2 * paged, rel=0.01)


def test_r_044_formats_count_their_scales_and_flag_what_a_device_lacks(
    data: Any, command: str, ask: Ask
) -> None:
    """fp8 and int8 hold one scale per tensor or row, which rounds to nothing beside 70 GB."""
    rows = {row["weights_format"]: row for row in data["formats"]}
    assert {"fp8", "int8", "int4", "fp4"} <= rows.keys()
    for name, bits in (("int4", 4), ("fp4", 4)):
        assert rows[name]["scales_bytes"] > 1 * GB
        assert rows[name]["weights_bytes"] > 70.6e9 * bits / 8 + rows[name]["scales_bytes"]
    assert rows["bf16"]["weights_bytes"] > rows["fp8"]["weights_bytes"] > rows["fp4"]["weights_bytes"]
    for name in ("fp8", "fp4"):
        assert not rows[name]["supported"] and "no " + name in rows[name]["note"]
    hopper = {
        row["weights_format"]: row for row in json_of(ask, command.replace("A100-80GB", "H200"))["formats"]
    }
    assert hopper["fp8"]["supported"] and not hopper["fp4"]["supported"]


def test_r_046_kernels_are_native_or_fall_back_with_a_slowdown(data: Any, command: str, ask: Ask) -> None:
    """The plan's half: the matrix of every engine. Slowdowns are measured, over the 16-bit kernel of the same
    shape, apart for prompts and decode; live measures them on the machine that it runs on."""
    cells = {(k["engine"], k["operation"], k["format"]): k for k in data["kernels"]}
    assert {operation for _, operation, _ in cells} == {"attention", "gemm", "norm"}
    assert len({engine for engine, _, _ in cells}) >= 3
    assert cells["vllm", "gemm", "bf16"]["support"] == "native"
    for cell in cells.values():
        assert (cell["slowdown"] is not None) == (cell["support"] == "fallback")
        assert (cell["measured_count"] >= 20 and cell["measured_on"] != "") == (cell["support"] == "fallback")
        for cost in (cell["slowdown"], cell["decode_slowdown"]):
            assert cost is None or (cost["source"] == "f" and cost["low"] < cost["value"] < cost["high"])
    eight, four = cells["vllm", "gemm", "fp8"], cells["vllm", "gemm", "int4"]
    assert eight["measured_on"] == four["measured_on"] == "A100-SXM4-80GB"
    assert eight["slowdown"] != four["slowdown"]  # not one figure for every format
    for cost in (eight["slowdown"], four["slowdown"]):  # widened to 16 bits, prompts gain nothing
        assert cost["low"] > 0.8 and cost["high"] > 1
    for cost in (eight["decode_slowdown"], cells["vllm", "attention", "fp8"]["decode_slowdown"]):
        assert cost["value"] == pytest.approx(0.5, abs=0.1)  # half of the bytes
    newer = {
        (k["engine"], k["operation"], k["format"]): k
        for k in json_of(ask, command.replace("A100-80GB", "H100-SXM"))["kernels"]
    }
    assert newer["vllm", "gemm", "fp8"]["support"] == "native" != eight["support"]


@pytest.mark.parametrize("model", ["llama-3.1-405b", "llama-3.1-70b"])
def test_r_052_tensor_and_pipeline_parallelism_are_weighed_for_70b_and_405b(
    model: str, command: str, ask: Ask
) -> None:
    rows = json_of(ask, command.replace("llama-3.1-405b", model))["layouts"]
    fitting = [row for row in rows if row["fits"] and row["output_tokens_per_s"]]
    assert {row["tp"] > 1 and row["pp"] == 1 for row in fitting} == {True, False}  # tensor alone, and others
    assert any(row["pp"] > 1 for row in fitting)
    for row in fitting:
        assert row["tp"] * row["pp"] * row["dp"] == 16
        assert row["tpot_s"]["value"] > 0 and row["output_tokens_per_s"]["value"] > 0
    same = {(row["tp"], row["pp"]): row for row in fitting if row["dp"] == 1}
    assert same.keys() >= {(8, 2)}


def test_r_053_expert_traffic_is_in_the_network_budget(data: Any, screen: str, plans: Plans) -> None:
    sent = data["all_to_all_bytes_per_token"]
    layers, experts, hidden = 58, 8, 7168  # of DeepSeek-V3; a byte out and two back for each
    assert sent == pytest.approx(layers * experts * hidden * 3, rel=0.1)
    assert "all-to-all between experts" in screen and "per token" in screen
    planned = plans["moe"]["serving"][0]  # where one tensor group holds all experts, its sums carry them
    exchanged, replica = planned["all_to_all_bytes_per_token"], planned["replica"]
    assert (exchanged > 0) == (replica["ep"] > replica["tp"])
    assert exchanged <= planned["network_bytes_per_token"] and planned["network_bytes_per_token"] > 0
    assert plans["assistant"]["serving"][0]["all_to_all_bytes_per_token"] == 0


def test_r_054_throughput_grows_with_replicas_at_a_stated_efficiency(data: Any, screen: str) -> None:
    rows = data["replicas"]
    assert [row["replica_count"] for row in rows] == [1, 2, 4, 8, 16]
    rates = [row["output_tokens_per_s"]["value"] for row in rows]
    assert all(more > less for less, more in pairwise(rates))
    assert rows[0]["efficiency_fraction"] == 1
    assert rates[-1] / rates[0] == pytest.approx(16 * rows[-1]["efficiency_fraction"])
    assert f"16 replicas keep {100 * rows[-1]['efficiency_fraction']:.0f} %" in screen


def test_r_061_a_cold_start_reads_the_weights_and_warms_up(data: Any, value: Value) -> None:
    """The plan's half: seconds = bytes / bandwidth + warm-up. A measured load of a small model is live's."""
    read_s = value(data["cold_start_parts"], "read weights")
    assert read_s == pytest.approx(data["weights_bytes"] / 5e9)
    total_s = read_s + value(data["cold_start_parts"], "warm up")
    assert data["cold_start_s"]["value"] == pytest.approx(total_s)


def test_r_066_a_fleet_lists_its_pools_and_what_one_pool_would_save(data: Any, screen: str, ask: Ask) -> None:
    """The plan's half, against fleets that are planned class by class; the twin adds how both behave."""
    large, small = data["serving"]
    assert (large["model"], small["model"]) == ("llama-3.1-70b", "llama-3.1-8b")  # a pool per tier
    for service in (large, small):
        for one in service["classes"]:
            assert one["name"] in screen and one["replica_count"] >= 1
    alone = [
        json_of(ask, f"twofold plan tests/requirements/specs/pools-{name}.yaml")["serving"][0]
        for name in ("chat", "documents")
    ]
    apart = sum(service["machine"]["accelerator_count"] for service in alone)
    together = large["machine"]["accelerator_count"]
    assert large["pooling_loss_fraction"] == pytest.approx(apart / together - 1)
    assert large["pooling_loss_fraction"] > 0


def test_r_068_a_1b_int8_model_may_run_on_a_cpu(data: Any, ask: Ask) -> None:
    """The catalogue has no price of a CPU, so that the spec's folder brings one."""
    assert data["machine"]["accelerator"] == "Xeon-8480C"
    assert data["replica"]["weights_format"] == "int8" and data["parameters"] < 1.3e9
    assert data["output_tokens_per_s"]["value"] > 50
    assert data["usd_per_1k_output_tokens"]["value"] > 0
    (service,) = json_of(ask, "twofold plan tests/requirements/specs/cpu")["serving"]
    options = {loser["what"]: loser["why"] for loser in service["losers"]}
    assert "$" in options["Xeon-8480C"]


@pytest.mark.parametrize(
    ("device", "needed"),
    [("8xGroq-LPU", "Groq-LPU-v1"), ("1xCerebras-WSE-3", "Cerebras-WSE-3"), ("1xInferentia2", "Inferentia2")],
)
def test_r_069_too_small_accelerators_say_how_many_are_needed(
    device: str, needed: str, command: str, ask: Ask
) -> None:
    done = ask(command.replace("8xGroq-LPU", device))
    assert done.code == 3 and done.err.startswith("infeasible")
    count = re.search(rf"(\d+) × {needed}", done.err)
    assert count
    rows = ask(f"twofold catalog accelerators --where 'name == {needed}' --columns mem_gb,mem_bw_gb_s --json")
    (row,) = rows.data["rows"]
    assert row["mem_gb"] > 0 and row["mem_bw_gb_s"] > 0
    assert int(count[1]) * row["mem_gb"] >= 141  # the weights of 70B in 16 bits


def test_r_070_serving_cards_are_listed_with_power_memory_and_bandwidth(data: Any) -> None:
    rows = {row["name"]: row for row in data["rows"]}
    assert rows.keys() == {"L40S", "L4", "L20", "A10", "MI300X"}
    for row in rows.values():
        assert row["tdp_w"] > 0 and row["mem_gb"] > 0 and row["mem_bw_gb_s"] > 0
    assert rows["L4"]["tdp_w"] == 72


def test_r_071_a_2u_server_of_four_l40s_stays_below_3_kw(data: Any) -> None:
    (row,) = data["rows"]
    assert (row["accelerator_count"], row["rack_units"]) == (4, 2)
    assert 4 * 350 < row["power_w"] < 3000
    assert row["fp16_tflops"] == pytest.approx(1448, rel=0.001)


def test_r_076_the_latency_budget_sums_edge_gateway_queue_prefill_and_decode(
    data: Any, value: Value, screen: str
) -> None:
    """The plan's half; round trips between regions by site are supply's."""
    assert "where a request's time goes" in screen
    for one in data["serving"][0]["classes"]:
        parts = one["latency_budget"]
        assert [part["name"] for part in parts] == ["edge", "gateway", "queue", "prefill", "decode"]
        total_s = sum(part["value"]["value"] for part in parts)
        for part in parts:
            assert part["share_fraction"] == pytest.approx(part["value"]["value"] / total_s)
    chat = data["serving"][0]["classes"][0]
    decode_s = (chat["output_tokens"] - 1) * chat["percentiles"]["tpot_p50"]["value"]
    assert value(chat["latency_budget"], "decode") == pytest.approx(decode_s, rel=0.1)


def test_r_078_class_presets_name_their_metric_and_pass_or_fail(data: Any, screen: str, ask: Ask) -> None:
    classes = {one["name"]: one for one in data["serving"][0]["classes"]}
    stated = {
        name: [(each["metric"], each["limit_s"]) for each in one["slos"]] for name, one in classes.items()
    }
    assert stated == {
        "chat": [("ttft_p95", 0.1)],
        "lookup": [("e2e_p95", 0.5)],
        "digest": [("e2e_p95", 30)],
    }
    assert all(each["met"] for one in classes.values() for each in one["slos"])
    described = screen.partition("\nSERVING ")[2]  # behind the decision, which marks the same
    marked = [line for line in described.splitlines() if "✓" in line]
    assert sum("p95 ≤" in line for line in marked) == sum("success ≥" in line for line in marked) == 3
    assert len(marked) == 6 and "✗" not in described
    refused = ask("twofold plan tests/requirements/specs/presets-l4.yaml")
    assert refused.code == 3 and "TTFT p95" in refused.err and "100 ms" in refused.err


def test_r_079_a_distilled_variant_shows_its_saving_and_its_price_in_quality(data: Any, screen: str) -> None:
    (service,) = data["serving"]
    assert service["model"] == "llama-3.1-8b" and service["quality_note"].startswith("distilled")
    assert "quality: distilled; 9 points lower on our own tasks" in screen
    (whole,) = [loser for loser in service["losers"] if loser["what"].startswith("llama-3.1-70b")]
    dearer = re.match(r"\+([\d,]+) ?%", whole["why"])
    assert dearer and int(dearer[1].replace(",", "")) > 100


def test_r_080_buffers_are_listed_and_follow_the_prefill_chunk(command: str, ask: Ask, value: Value) -> None:
    sizes = [
        value(json_of(ask, command.replace("--chunk 2048", f"--chunk {chunk}"))["memory_parts"], "buffers")
        for chunk in (2048, 8192, 16384)
    ]
    assert 0 < sizes[0] < sizes[1] < sizes[2]


def test_r_086_a_thousand_requests_per_second_get_replicas_and_a_p95(data: Any) -> None:
    """In closed form; the twin confirms the p95 on a trace."""
    (service,) = data["serving"]
    (chat,) = service["classes"]
    assert chat["peak_per_s"] == 1000
    assert service["replica_count"] > chat["replica_count"] > 1
    assert chat["replica_count"] * chat["rate_per_replica_per_s"]["value"] >= 1000
    for metric in ("ttft_p95", "tpot_p95", "e2e_p95"):
        assert chat["percentiles"][metric]["value"] > 0
    assert all(promise["met"] for promise in chat["slos"])


def test_r_087_longer_contexts_cost_cache_time_and_users(data: Any) -> None:
    (table,) = [table for table in data["ladders"] if table["half"] == "serving"]
    rows = {rung["label"]: rung["values"] for rung in table["rungs"]}
    assert list(rows) == ["8k", "32k", "128k"]
    assert [row["kv_bytes_per_user"] for row in rows.values()] == [327_680 * n for n in (8192, 32768, 131072)]
    times = [row["ttft_s"]["value"] for row in rows.values()]
    users = [row["users_count"] for row in rows.values()]
    assert times == sorted(times) and users == sorted(users, reverse=True)
    assert 0 < users[-1] < users[0]
