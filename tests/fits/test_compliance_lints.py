"""Every fault of the tables about rules is caught in a row that has it."""

from pathlib import Path

import pytest

from fits.catalog_lints import compliance_faults
from twofold.catalog.catalog import load_catalog

PLANTED = {
    "an unknown regime": ("compliance_items", "name,regimes\nkey ceremony,il4\n", "no such regime: il4"),
    "a price outside its range": ("compliance_items", "name,usd\nkey ceremony,1\n", "outside its range"),
    "a figure outside its range": (
        "compliance_figures",
        "category,item,value\nlog,envelope,9\n",
        "outside its range",
    ),
    "logs searched longer than kept": (
        "regimes",
        "name,online_months\nil5,99\n",
        "longer than they are kept",
    ),
    "a control of others done by us": ("controls", "id,status\nAC-1,whole\n", "organisation cannot be whole"),
    "evidence for a gap": ("controls", "id,evidence\nSC-8,Makefile\n", "does not go with gap"),
    "a gap without words": ("controls", "id,gap\nSC-8,\n", "does not go with gap"),
    "a revocation without an author": ("mandates", "name,revoked_by\nEO 14110,\n", "a day and an author"),
    "a revocation before the issue": ("mandates", "name,date\nEO 14110,2026-01-01\n", "before it was issued"),
    "a stranger": ("mandates", "name,rests_on\nM-25-21,EO 1\n", "no such mandate: EO 1"),
    "a younger parent": ("mandates", "name,rests_on\nFISMA 2014,M-25-21\n", "which is younger"),
}


def test_our_tables_have_no_fault() -> None:
    assert list(compliance_faults(load_catalog())) == []


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_in_its_row(fault: str, tmp_path: Path) -> None:
    table, rows, said = PLANTED[fault]
    (tmp_path / f"{table}.csv").write_text(rows)
    found = list(compliance_faults(load_catalog(tmp_path)))
    assert any(where == table and said in message for where, _, message in found), found
