"""The requirement rows of area `sizing`: scaling, accelerator-hours, headroom, hardware by model size."""

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[[str], Any]


def test_r_119_scaling_from_1_to_512_gpus_has_an_efficiency_and_a_range(data: Any) -> None:
    """The prediction with its range; how it compares with published runs is docs/accuracy.md."""
    rungs = data["ladders"][0]["rungs"]
    assert [rung["label"] for rung in rungs] == ["1", "8", "64", "512"]
    for rung in rungs:
        found = rung["values"]["efficiency_fraction"]
        assert 0 < found["low"] <= found["value"] <= found["high"]
    assert rungs[0]["values"]["efficiency_fraction"]["value"] == 1
    last = rungs[-1]["values"]["efficiency_fraction"]
    assert last["low"] < last["high"]


def test_r_120_405b_on_15_6t_tokens_is_within_20_percent_of_what_was_published(data: Any) -> None:
    """30.8 M H100-hours (Llama 3, 2024), without headroom and with failures."""
    run = data["run"]
    assert run["tokens"] == 15.6e12 and data["machine"]["accelerator_count"] == 16_384
    assert run["accelerator_h"]["value"] == pytest.approx(30.8e6, rel=0.20)
    assert run["accelerator_h"]["value"] == pytest.approx(16_384 * run["wall_s"]["value"] / 3600)


def test_r_121_headroom_is_split_by_cause_and_sums_to_the_hours(data: Any, plans: dict[str, Any]) -> None:
    run = data["run"]
    hours = {part["name"]: part["value"]["value"] for part in run["headroom"]}
    base = run["base_accelerator_h"]["value"]
    shares = {"retries": 0.05, "validation": 0.02, "experiments": 0.15}
    assert hours == pytest.approx({"run": base} | {name: base * share for name, share in shares.items()})
    assert run["accelerator_h"]["value"] == pytest.approx(base * (1 + sum(shares.values())))
    for plan in plans.values():
        for training in plan["training"]:
            run, count = training["run"], training["machine"]["accelerator_count"]
            kept = sum(part["value"]["value"] for part in run["headroom"])
            base = run["wall_s"]["value"] * count / 3600
            assert {part["name"] for part in run["headroom"]} == set(shares)
            assert run["accelerator_h"]["value"] == pytest.approx(base * (1 + kept))


def test_r_127_hardware_is_selected_for_three_classes_of_models(data: Any, ask: Ask) -> None:
    titles = [table["title"] for table in data["ladders"]]
    assert len(titles) == 3
    for title, table, size in zip(titles, data["ladders"], ("< 7 B", "7–70 B", "> 70 B"), strict=True):
        assert size in title
        rows = {rung["label"]: rung["values"] for rung in table["rungs"]}
        assert all(row["feasible_formats"] for row in rows.values())
        assert "fp4" not in rows["H200-SXM5-141GB"]["feasible_formats"].split()  # no matrix units for it
        chosen = [row for row in rows.values() if row.get("accelerator_count")]
        assert chosen and chosen == list(rows.values())[: len(chosen)]  # what works stands first
        costs = [row["usd_per_1k_tokens"]["value"] for row in chosen]
        assert costs == sorted(costs)
        assert all(row["weights_format"] in row["feasible_formats"].split() for row in chosen)
    small, _, large = ({rung["label"]: rung["values"] for rung in one["rungs"]} for one in data["ladders"])
    assert {"L40S", "L4", "A10", "A100-SXM4-80GB", "H100-SXM5-80GB"} <= small.keys()
    assert small["A100-SXM4-80GB"]["weights_format"] == "fp8*"  # read as 8 bits, multiplied as 16
    for part in ("H200-SXM5-141GB", "MI300X"):  # eight of either hold it in 16 bits
        assert large[part]["feasible_formats"].split() == ["bf16", "fp8", "int8", "int4*", "fp4*"]
    question = "llama-3.1-405b --on 8xH200 --input 1155 --output 211 --concurrency 8"
    alone = ask(f"twofold estimate serve {question} --json")
    assert alone.code == 0
    assert "no format fits one node of T4" in " ".join(data["ladders"][2]["notes"])


def test_r_128_every_plan_says_what_it_was_calibrated_on_and_what_share_of_the_peak_it_reaches(
    plans: dict[str, Any], ask: Ask
) -> None:
    """The plan's half; with measurements of one's own the same line names them."""
    for name, plan in plans.items():
        screen = " ".join(ask(f"twofold plan examples/{name} --full").out.split())
        assert "f fitted on published measurements" in screen and "none measured here" in screen
        for half in (*plan["training"], *plan["serving"]):
            ratio = half["peak_ratio"]
            assert 0 < ratio["low"] <= ratio["value"] <= ratio["high"] <= 1, (name, half["name"])
            assert f"{half['name']} reaches" in screen, name
