"""Our tables pass every lint, and every lint catches the mistake that it is there for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fits.catalog_lints import LINTS, lint
from twofold.catalog.catalog import load_catalog

CATALOG = load_catalog()
PLANTED = {
    "fp8 given sparse": ("dense_rates", "accelerators", "name,fp8_tflops\nH100-SXM5-80GB,3957.8\n"),
    "bf16 given sparse": ("dense_rates", "accelerators", "name,bf16_tflops\nL40S,724\n"),
    "fp4 given sparse": ("dense_rates", "accelerators", "name,fp4_tflops\nB200-SXM-180GB,18000\n"),
    "a whole row given sparse": (
        "family_rates",
        "accelerators",
        "name,tf32_tflops,bf16_tflops,fp16_tflops,fp8_tflops,int8_tops\n"
        "H100-SXM5-80GB,989.4,1978.9,1978.9,3957.8,3957.8\n",
    ),
    "a link given in both directions": ("links", "accelerators", "name,link_gb_s\nH100-SXM5-80GB,900\n"),
    "a rate without a link": (
        "links",
        "accelerators",
        "name,link_gb_s,link_both_ways_gb_s\nL4,32,64\n",
    ),
    "bandwidth in Gbit/s": ("rooflines", "accelerators", "name,mem_bw_gb_s\nA100-SXM4-80GB,16312\n"),
    "power in kW": ("rooflines", "accelerators", "name,tdp_w\nH100-SXM5-80GB,0.7\n"),
    "memory in GiB taken for GB": ("rooflines", "accelerators", "name,visible_gib\nT4,17.2\n"),
    "the power of one accelerator for a node": ("node_power", "nodes", "name,power_w\nDGX-H100,1020\n"),
    "spot above on demand": (
        "prices",
        "prices",
        "provider,instance,accelerator,accelerator_count,region,term,usd_per_h,usd_per_accelerator_h,date,date_precision\n"
        "mine,box,L4,4,here,on_demand,4,1,2026-11-01,day\nmine,box,L4,4,here,spot,5,1.25,2026-11-01,day\n",
    ),
    "a year given as a day": (
        "prices",
        "prices",
        "provider,instance,accelerator,accelerator_count,region,term,usd_per_h,usd_per_accelerator_h,date,date_precision\n"
        "mine,box,L4,4,here,on_demand,4,1,2026,day\n",
    ),
    "an alias to nowhere": ("references", "aliases", "kind,alias,name\nmodel,my-model,no-such-model\n"),
    "a wrong parameter count": ("parameter_counts", "models", "name,parameters\nllama-3.1-8b,8300000000\n"),
    "a wrong width": ("parameter_counts", "models", "name,ffn_hidden\nqwen3-8b,13000\n"),
    "a licence that forbids copying": ("provenance", "fabrics", "name,licence\nroce,all rights reserved\n"),
    "an announced part marked released": ("released", "accelerators", "name,released\nMI455X,1\n"),
    "a part on offer marked unreleased": ("released", "accelerators", "name,released\nL4,0\n"),
    "a control of others done by us": ("compliance", "controls", "id,status\nAC-1,whole\n"),
}


def test_our_tables_have_no_findings() -> None:  # INV-12
    assert lint(CATALOG) == ()


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_caught(mistake: str, tmp_path: Path) -> None:
    check, table, text = PLANTED[mistake]
    (tmp_path / f"{table}.csv").write_text(text, "utf-8")
    found = lint(load_catalog(tmp_path))
    assert check in {finding.lint for finding in found}
    assert all(str(finding) for finding in found)


def test_every_lint_has_a_planted_mistake() -> None:
    assert {check for check, _, _ in PLANTED.values()} == set(LINTS)


def test_an_exception_that_excepts_nothing_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "exceptions.csv").write_text("lint,name,reason\nlinks,L4,no reason\n", "utf-8")
    assert [(finding.lint, finding.name) for finding in lint(load_catalog(tmp_path))] == [
        ("exceptions", "L4")
    ]


def test_every_exception_gives_a_reason() -> None:
    rows = CATALOG.table("exceptions").rows
    assert rows and all(len(str(row["reason"])) > 15 for row in rows)


@pytest.mark.parametrize("check", LINTS.values(), ids=LINTS)
def test_lints_say_what_they_hold(check: Callable[..., object]) -> None:
    assert check.__doc__
