"""`compare` on the command line: the 2×2 and the ladders, with the requirements that they reach."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
AXES = ("fabric", "nodes", "context", "size", "format", "tenancy")

RUN = """\
name: study
training:
  model: llama-3.1-70b
  tokens: 100 Gtok
  global_batch: 512 seq
  on: 32x8xH100-SXM
"""
SMALL_RUN = """\
name: small
training:
  model: llama-3.2-1b
  tokens: 10 Gtok
  sequence: 4096 tok
  global_batch: 512 seq
  on: 64x8xH100-SXM
"""
SERVICE = """\
name: service
serving:
  model: llama-3.1-70b
  quantisation: [fp8, bf16]
  on: 4xH200
  classes:
    chat:
      traffic: {rate: 10 /s}
      slo: {ttft_p95: 2 s, tpot_p95: 60 ms}
"""
Compare = Callable[[str, str], dict[str, Any]]


@pytest.fixture
def compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    """`compare(spec, axis)`: the answer of `twofold compare … --json`."""

    def answer(spec: str, axis: str) -> dict[str, Any]:
        path = tmp_path / "twofold.yaml"
        path.write_text(spec, "utf-8")
        words = ["compare", str(path), "--json", *(["--ladder", axis] if axis else [])]
        capsys.readouterr()
        code = main(words)
        out, err = capsys.readouterr()
        assert code == 0, err
        data: dict[str, Any] = json.loads(out)
        return data

    return answer


def rungs(answer: dict[str, Any], at: int = 0) -> dict[str, dict[str, Any]]:
    return {rung["label"]: rung["values"] for rung in answer["ladders"][at]["rungs"]}


def test_each_half_is_priced_on_both_fleets(ask: Callable[[str], Any]) -> None:
    found = ask("twofold compare examples/assistant --json")
    assert found.code == 0
    answer = found.data
    assert answer["schema"] == "twofold/compare/1"
    assert {row["half"] for row in answer["rows"]} == {"training", "serving"}
    for row in answer["rows"]:
        assert row["own"]["fleet"] == row["half"] != row["other"]["fleet"]
        assert row["own"]["cost_usd"]["value"] > 0
        if row["cost_penalty_fraction"] is not None:
            ratio = row["other"]["cost_usd"]["value"] / row["own"]["cost_usd"]["value"]
            assert row["cost_penalty_fraction"] == pytest.approx(ratio - 1)
    assert any(row["own"]["latency_s"] for row in answer["rows"] if row["half"] == "serving")
    shown = ask("twofold compare examples/assistant").out
    assert "on the training fleet" in shown
    assert "on the serving fleet" in shown


def test_half_a_spec_has_no_other_fleet(compare: Compare) -> None:
    answer = compare(SERVICE, "")
    assert answer["rows"] == []
    assert "one half only" in answer["warnings"][0]


def test_fabrics_are_compared_at_equal_and_lower_rates(compare: Compare) -> None:  # R-009 R-010 R-012
    answer = compare(RUN, "fabric")
    assert "32 × 8" in answer["ladders"][0]["title"]  # 256 accelerators
    rows = rungs(answer)
    step = {label: values["step_s"]["value"] for label, values in rows.items()}
    assert step["400G InfiniBand"] <= step["400G RoCE"] < step["100GbE"]
    assert step["200 Gb/s InfiniBand"] >= step["400G InfiniBand"] >= step["800 Gb/s InfiniBand"]
    tapered, flat = rows["400G InfiniBand 4:1"], rows["400G InfiniBand"]
    assert tapered["added_fraction"] > 0
    assert tapered["cable_count"] < flat["cable_count"]
    assert tapered["switch_count"] < flat["switch_count"]


def test_efficiency_is_given_from_one_to_512_accelerators(compare: Compare) -> None:
    weak = rungs(compare(SMALL_RUN, "nodes"))
    assert list(weak) == ["1", "8", "64", "512"]
    for values in weak.values():
        efficiency = values["efficiency_fraction"]
        assert 0 < efficiency["low"] <= efficiency["value"] <= efficiency["high"]
    assert weak["1"]["efficiency_fraction"]["value"] == 1
    # One accelerator alone updates all states; many share that, so that a little above 1 is no error.
    assert weak["512"]["efficiency_fraction"]["value"] <= 1.15


def test_the_size_where_efficiency_halves_is_marked(compare: Compare) -> None:
    ladder = compare(SMALL_RUN, "nodes")["ladders"][1]
    strong = {rung["values"]["accelerator_count"]: rung for rung in ladder["rungs"]}
    sizes = list(strong)
    assert sizes == [8 * 2**power for power in range(10)]
    below = [
        count
        for count, rung in strong.items()
        if "efficiency_fraction" in rung["values"] and rung["values"]["efficiency_fraction"]["value"] < 0.5
    ]
    assert below, "a small model on thousands of accelerators wastes most of them"
    assert f"{min(below):,} accelerators" in ladder["notes"][0]
    assert "below 50 %" in strong[min(below)]["note"]


def test_longer_contexts_take_cache_and_time_and_leave_fewer_users(compare: Compare) -> None:
    rows = rungs(compare(SERVICE, "context"))
    assert list(rows) == ["8k", "32k", "128k"]
    kv, first, users = (
        [values[key]["value"] if isinstance(values[key], dict) else values[key] for values in rows.values()]
        for key in ("kv_bytes_per_user", "ttft_s", "users_count")
    )
    assert kv == [327_680 * 1024 * length for length in (8, 32, 128)]
    assert first == sorted(first)
    assert users == sorted(users, reverse=True)
    assert users[0] > users[-1] >= 1
    steps = [values["step_s"]["value"] for values in rungs(compare(RUN, "context")).values()]
    assert steps == sorted(steps)


def test_three_classes_of_sizes_have_hardware_and_formats(compare: Compare) -> None:
    answer = compare(SERVICE.replace("  on: 4xH200\n", ""), "size")
    titles = [ladder["title"] for ladder in answer["ladders"]]
    assert [title.split(":")[0] for title in titles] == ["< 7 B", "7–70 B", "> 70 B"]
    for at in range(3):
        rows = rungs(answer, at)
        chosen = next(iter(rows.values()))
        assert chosen["feasible_formats"] != "none"
        assert chosen["weights_format"].removesuffix("*") in ("fp8", "bf16")
        assert "+" in chosen["bound_by"] and "20 % more" in answer["ladders"][at]["notes"][0]
    smallest, largest = (rungs(answer, at) for at in (0, 2))
    small = answer["ladders"][2]["notes"][-1].removeprefix("no format fits one node of ").split(", ")
    assert {*smallest} == {*largest, *small}  # the same parts for all classes; those that cannot say why
    for rung in answer["ladders"][2]["rungs"]:
        assert ("weights_format" in rung["values"]) == (rung["note"] == "")


def test_formats_show_memory_speed_and_cost(compare: Compare) -> None:
    rows = rungs(compare(SERVICE, "format"))
    assert list(rows) == ["bf16", "fp8", "int8", "int4", "fp4"]
    assert rows["fp4"]["native"] == "no"
    assert rows["int4"]["native"] == "no"  # as the ladder of sizes has it: weights alone are narrow
    assert rows["fp8"]["tpot_s"]["value"] < rows["bf16"]["tpot_s"]["value"]
    assert rows["fp8"]["usd_per_1k_tokens"]["value"] < rows["bf16"]["usd_per_1k_tokens"]["value"]


def test_tenancy_shows_both_with_the_stated_overhead(compare: Compare) -> None:
    spec = RUN + SERVICE.split("\n", 1)[1] + "supply: {virtual_overhead: 5 %}\n"
    answer = compare(spec, "tenancy")
    for at, figure in ((0, "step_s"), (1, "tpot_s")):
        rows = rungs(answer, at)
        assert rows["bare metal"]["overhead_fraction"] == 0
        assert rows["virtual"]["overhead_fraction"] == pytest.approx(0.05)
        more = rows["virtual"][figure]["value"] / rows["bare metal"][figure]["value"]
        assert 1 < more <= 1.0501
    virtual, bare = (rungs(answer)[each]["cost_usd"]["value"] for each in ("virtual", "bare metal"))
    assert virtual >= bare  # both pay a contract to its end


@pytest.mark.parametrize("axis", ["", *AXES])
def test_no_line_is_wider_than_100_columns(axis: str, ask: Callable[[str], Any]) -> None:
    found = ask(f"twofold compare examples/assistant --ladder {axis}".removesuffix(" --ladder "))
    assert found.code == 0
    assert [line for line in found.out.splitlines() if len(line) > 100] == []


def test_an_axis_without_its_half_says_so(compare: Compare) -> None:
    assert "this spec has none" in compare(SERVICE, "fabric")["warnings"][0]
    assert "this spec has none" in compare(RUN, "format")["warnings"][0]


def test_an_unknown_ladder_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(EXAMPLES / "assistant"), "--ladder", "colour"]) == 2
    assert "E-usage" in capsys.readouterr().err
