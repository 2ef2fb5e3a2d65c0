"""What services, buildings, rules and money are said to rest on is what moves them, and nothing else."""

import csv
import io
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from twofold.answer.paths import is_estimate, leaves
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.schema import DATA, schema
from twofold.catalog.tables import Source
from twofold.contracts.spec.reader import parse_spec
from twofold.core.data import to_data
from twofold.perf.constants import Constants, load_constants
from twofold.planner.build import PlanOptions, build_plan

SERVING = """
serving:
  name: counsel
  quantisation: fp8
  classes:
    chat:
      traffic: {rate: 12 /s, input: {mean: 700 tok}, output: {mean: 200 tok}}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
"""
RENTED = f"""
name: rented
model: llama-3.1-8b
training: {{name: refresh, tokens: 4 Gtok, on: 2x8xH100-SXM, repeats: every 13 weeks}}
{SERVING}
  on: 2xH100-SXM
compliance: {{regime: fedramp-high, recorded: attribution}}
"""
OWNED = f"name: own\nmodel: llama-3.1-8b\n{SERVING}supply: {{own: {{node: DGX-H100, count: 2}}}}\n"
QUANTITIES = ("audit record", "host idle (of its maximum)")  # what a line's quantity rests on
SUMS = {"first_year_usd", "later_year_usd", "items_usd", "uplift_fraction", "total_usd"}
# Which row of which table is moved, of what it is asked, and some of what must move with it.
HOUR = "aws p5.48xlarge us-gov-west-1 on_demand"
AT = "serving.counsel"
MOVED = {
    ("facility", "GPU, LLM training steady (of TDP)"): (RENTED, "building.year.meter_j"),
    ("facility", "GPU, inference token phase (of TDP)"): (RENTED, "building.power.in_use_w"),
    ("facility", "server PSU titanium at half load"): (RENTED, "building.nodes.0.in_use_w"),
    ("facility", "host idle (of its maximum)"): (OWNED, "building.year.carbon_gco2"),
    ("facility", "US industrial average"): (OWNED, "building.year.energy_usd"),
    ("facility", "daily swing of a grid with much solar"): (OWNED, "building.year.carbon_gco2"),
    ("compliance_figures", "audit record"): (RENTED, "compliance.logs.archive_bytes"),
    ("compliance_figures", "durable append"): (RENTED, "compliance.logs.synchronous_s"),
    ("compliance_figures", "years that what is paid once serves"): (RENTED, "compliance.uplift.items_usd"),
    ("compliance_items", "first assessment, high"): (RENTED, "compliance.sizes.512.uplift_fraction"),
    ("prices", HOUR): (RENTED, "money.services.counsel.classes.chat.usd_per_mtok"),
    ("constants", "node_power_factor"): (RENTED, "money.runs.refresh.tokens_per_s_per_w"),
    ("constants", "serving_power_fraction"): (OWNED, f"{AT}.energy_j_per_year"),
    ("constants", "pue_ratio"): (OWNED, "money.services.counsel.output_tokens_per_s_per_w"),
}


def moved_catalog(table: str, item: str) -> Catalog:
    """Our catalogue with the middle of one figure, or one price, 1 % up."""
    sources = {name: Source(f"{name}.csv", (DATA / f"{name}.csv").read_bytes()) for name in schema()}
    rows = list(csv.DictReader(io.StringIO(sources[table].data.decode())))
    columns = {"prices": ("usd_per_h", "usd_per_accelerator_h"), "compliance_items": ("usd",)}
    for row in rows:
        offer = " ".join(row.get(each, "") for each in ("provider", "instance", "region", "term"))
        if item in (row.get("item"), row.get("name"), offer):
            row |= {each: f"{1.01 * float(row[each]):.12g}" for each in columns.get(table, ("value",))}
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return Catalog(sources | {table: Source(f"{table}.csv", out.getvalue().encode())}, {})


def moved_constants(name: str) -> Constants:
    held = load_constants()
    rows = [row for row in held.rows if row.name == name]
    return held.with_rows([replace(row, value=1.01 * row.value, high=1.01 * row.high) for row in rows])


def planned(text: str, catalog: Catalog, constants: Constants) -> dict[str, Any]:
    spec, few = parse_spec(text, "cited.yaml"), PlanOptions(draw_count=20)
    return to_data(build_plan(spec, catalog, constants, spec_digest="", options=few).plan)


@cache
def usual(text: str) -> dict[str, Any]:
    return planned(text, load_catalog(), load_constants())


def middles(plan: dict[str, Any]) -> dict[str, float]:
    """The plain numbers of a plan, and the middles of its estimates."""
    held = {path: leaf["value"] if is_estimate(leaf) else leaf for path, leaf in leaves(plan)}
    return {path: value for path, value in held.items() if isinstance(value, int | float) and value}


def ends(known: dict[str, Any], path: str) -> set[str]:
    """Labels and references of the leaves that the tree of a path ends in, and all its formulas."""
    row = known[path]
    told = {row["formula"]}
    for item in row["inputs"]:
        told |= ends(known, item["path"]) if item["path"] else {item["label"], item["reference"]}
    return told


@pytest.mark.parametrize(("table", "item"), MOVED)
def test_a_figure_cites_the_row_that_moves_it_and_no_row_that_does_not(table: str, item: str) -> None:
    text, path = MOVED[table, item]
    is_constant = table == "constants"
    after = middles(
        planned(
            text,
            load_catalog() if is_constant else moved_catalog(table, item),
            moved_constants(item) if is_constant else load_constants(),
        )
    )
    known, before = {row["path"]: row for row in usual(text)["derivations"]}, middles(usual(text))
    told = {each: ends(known, each) for each in known if each in before}
    cited = {each for each, words in told.items() if any(item in word for word in words)}
    moves = {each for each in told if after[each] != pytest.approx(before[each], rel=1e-8)}
    assert path in cited and cited <= moves
    # The line of a bill is a leaf, whose quantity is another part's: what its sums are made of ends there.
    assert {each.rpartition(".")[2] for each in moves - cited} <= (SUMS if item in QUANTITIES else set())
