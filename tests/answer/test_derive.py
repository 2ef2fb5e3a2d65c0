import re
from typing import Any

import pytest

from twofold.answer.paths import is_estimate, leaves, resolve
from twofold.core.data import from_data
from twofold.core.estimate import Estimate
from twofold.planner.explained import explain

NAMES = ("assistant", "moe", "finetune", "portfolio", "laptop")
TABLES = ("accelerators.csv", "nodes.csv", "models.csv", "prices.csv", "constants.csv", "spec ")


@pytest.mark.parametrize("name", NAMES)
def test_every_estimate_has_a_derivation_that_ends_in_leaves(
    example_data: dict[str, dict[str, Any]], name: str
) -> None:
    plan = example_data[name]
    known = {row["path"]: row for row in plan["derivations"]}
    likely = {path for path, leaf in leaves(plan) if path.endswith("holds_probability") and leaf is not None}
    missing = [path for path, leaf in leaves(plan) if is_estimate(leaf) and path not in known]
    assert likely and likely <= known.keys()
    assert missing == []
    for path in known:
        assert ends_in_leaves(known, path, frozenset()), path


def ends_in_leaves(known: dict[str, Any], path: str, above: frozenset[str]) -> bool:
    """Whether every branch below a path reaches a leaf with a reference, without going in circles."""
    assert path in known and path not in above, path
    inputs = known[path]["inputs"]
    return bool(inputs) and all(
        item["reference"] if not item["path"] else ends_in_leaves(known, item["path"], above | {path})
        for item in inputs
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_path_of_a_derivation_is_a_figure_or_a_step_of_one(
    example_data: dict[str, dict[str, Any]], name: str
) -> None:
    plan = example_data[name]
    used = {item["path"] for row in plan["derivations"] for item in row["inputs"]}
    figures = {path for path, leaf in leaves(plan) if is_estimate(leaf) or isinstance(leaf, (int, float))}
    strange = [row["path"] for row in plan["derivations"] if row["path"] not in figures | used]
    assert strange == []


def test_inputs_show_the_figures_that_stand_in_the_plan(example_data: dict[str, dict[str, Any]]) -> None:
    plan = example_data["assistant"]
    figures = {path for path, leaf in leaves(plan) if is_estimate(leaf)}
    for row in plan["derivations"]:
        for item in row["inputs"]:
            if item["path"] in figures:
                assert item["source"] == from_data(Estimate, resolve(plan, item["path"])).source.value


def test_the_time_lost_to_failures_is_what_its_derivation_says(
    example_data: dict[str, dict[str, Any]],
) -> None:
    at = "training.pretrain.run"
    plan = example_data["assistant"]
    lost, count, interval = (
        from_data(Estimate, resolve(plan, f"{at}.{name}")).value
        for name in ("failure_s", "interruptions", "checkpoints.interval_s")
    )
    write, pause = (resolve(plan, f"{at}.checkpoints.{name}") for name in ("write_s", "pause_s"))
    # Detect, restart, read, repeat what came since the last checkpoint and while it was written.
    assert lost == pytest.approx(count * (420 + 60 + interval / 2 + write - pause), rel=0.02)
    text = "\n".join(explain(plan, f"{at}.failure_s"))
    assert "reading the checkpoint back" in text and "detection and restart 7.0 min" in text


def test_a_step_goes_down_to_operators_with_peak_and_efficiency(
    example_data: dict[str, dict[str, Any]],
) -> None:
    text = "\n".join(explain(example_data["assistant"], "training.pretrain.step_s"))
    assert "micro-batches ×" in text and "layers ×" in text
    assert "bf16 peak 989 TFLOP/s (v accelerators.csv H100-SXM5-80GB bf16_flops_per_s)" in text
    assert "constants.csv gemm_efficiency_fraction" in text and "rows)" in text
    assert "NVLink4 450 GB/s" in text


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("assistant", "training.pretrain.step_s"),
        ("assistant", "serving.serve.classes.chat.decode_step"),
        ("assistant", "serving.serve.classes.chat.prefill_step"),
        ("moe", "serving.serve.classes.chat.decode_step"),
        ("moe", "serving.serve.classes.chat.prefill_step"),  # data-parallel ranks prefill side by side
        ("finetune", "serving.serve.classes.tickets.prefill_step"),
    ],
)
def test_the_steps_of_a_derivation_add_up(
    example_data: dict[str, dict[str, Any]], name: str, path: str
) -> None:
    plan = example_data[name]
    row = next(row for row in plan["derivations"] if row["path"] == path)
    parts = [shown_s(item["text"]) for item in row["inputs"] if item["path"]]
    whole = [
        shown_s(item["text"])
        for each in plan["derivations"]
        for item in each["inputs"]
        if item["path"] == path
    ]
    assert whole
    assert sum(parts) == pytest.approx(whole[0], rel=0.05)


def shown_s(text: str) -> float:
    """`9.4 ms [8–10] f` as seconds."""
    number, unit = text.split()[:2]
    return float(number.replace(",", "")) * {"µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def test_every_table_is_cited(example_data: dict[str, dict[str, Any]]) -> None:
    references = " ".join(
        item["reference"]
        for data in example_data.values()
        for row in data["derivations"]
        for item in row["inputs"]
    )
    assert [table for table in TABLES if table not in references] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_leaf_is_without_a_value(example_data: dict[str, dict[str, Any]], name: str) -> None:
    inputs = [item for row in example_data[name]["derivations"] for item in row["inputs"]]
    assert [item for item in inputs if not item["text"]] == []


def test_totals_of_money_go_down_to_the_lines_that_they_are_the_sum_of(
    example_data: dict[str, dict[str, Any]],
) -> None:
    plan = example_data["portfolio"]
    lines = {row["path"]: row["inputs"] for row in plan["derivations"]}
    assert len(lines["money.total_usd"]) == len(plan["money"]["lines"])
    assert len(lines["portfolio.usd"]) == len(plan["portfolio"]["items"])
    paid = sum(line["total_usd"] - line["tax_usd"] for line in plan["portfolio"]["items"])
    assert plan["portfolio"]["usd"] == pytest.approx(paid, abs=1.0)
    assert "on_demand" in "\n".join(explain(plan, "portfolio.usd"))


def test_trees_fit_the_screen_and_repeat_nothing(example_data: dict[str, dict[str, Any]]) -> None:
    for path in ("training.pretrain.cost_usd", "serving.serve.cost_usd_per_year", "first_year_usd"):
        lines = explain(example_data["assistant"], path)
        assert max(map(len, lines)) <= 100
        assert len([line for line in lines if "step" in line and "= compute + " in line]) <= 1


@pytest.mark.parametrize(
    ("name", "path", "within", "between_nodes"),
    [
        # Expert groups wider than a node send inside and outside at once: the fabric takes longer.
        ("moe", "training.pretrain.step_parts.EP.value", False, True),
        ("moe", "training.pretrain.step_parts.TP.value", True, False),
        ("finetune", "training.finetune.step_parts.DP.value", True, False),  # one node: no fabric to wait for
    ],
)
def test_an_exchange_names_the_links_that_its_ranks_wait_for(
    example_data: dict[str, dict[str, Any]], name: str, path: str, within: bool, between_nodes: bool
) -> None:
    row = next(row for row in example_data[name]["derivations"] if row["path"] == path)
    assert any("scaleup_bytes_per_s" in item["reference"] for item in row["inputs"]) is within
    assert any(item["label"] == "NIC per accelerator" for item in row["inputs"]) is between_nodes


def test_the_replicas_of_a_service_are_those_of_its_pools_and_spares(example_data) -> None:
    plan = example_data["assistant"]
    head, *tree = explain(plan, "serving.serve.replica_count")
    counts = [int(re.findall(r" (\d+) \(a ", line)[0]) for line in tree if " (a " in line]
    assert head == f"serving.serve.replica_count = {sum(counts)}"
    assert [line.split(" ")[2] for line in tree if "for " in line][:2] == ["chat", "documents"]
    assert "spares" in tree[-1] and "zones may fail" in tree[-1]
