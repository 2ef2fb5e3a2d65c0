from datetime import date

import pytest

from twofold.app.catalogue import catalog_columns, catalog_rows, catalog_tables
from twofold.catalog.catalog import load_catalog
from twofold.core.errors import InputError, UnknownKeyError, UnknownNameError
from twofold.report.lines import WIDTH


@pytest.mark.parametrize("name", load_catalog().table_names())
def test_every_table_fits_on_a_screen_and_hides_no_row(name: str) -> None:
    shown = catalog_rows(name, today=date(2026, 11, 21))
    assert len(shown.rows) == catalog_tables().tables[name] > 0
    assert all(len(line) <= WIDTH for line in shown.lines)
    assert f"{len(shown.rows):,} row" in shown.lines[len(shown.rows) + 1] or len(shown.lines) > len(
        shown.rows
    )


def test_a_filter_keeps_the_rows_that_meet_it() -> None:
    shown = catalog_rows("accelerators", "mem_gb >= 140 and vendor == nvidia", ["name", "mem_gb"])
    assert ("H200-SXM5-141GB", 141) in [(name, round(float(str(size)))) for name, size in shown.rows]
    assert all(float(str(size)) >= 140 for _, size in shown.rows)


def test_all_columns_are_shown_when_asked_for() -> None:
    columns = catalog_columns("models")
    shown = catalog_rows("models", "name == llama-3.1-70b", columns)
    assert [column.name for column in shown.columns] == columns
    assert shown.left_out == ()


def test_prices_have_an_age_and_old_ones_are_stale() -> None:
    columns = ["provider", "date", "age_days", "stale"]
    young = catalog_rows("prices", "stale == true", columns, today=date(2020, 1, 1))
    old = catalog_rows("prices", "stale == true", columns, today=date(2040, 1, 1))
    assert len(young.rows) == 0
    assert len(old.rows) == catalog_tables().tables["prices"]


def test_a_column_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        catalog_rows("accelerators", "", ["nme"])
    assert "`name`" in caught.value.hint


def test_a_table_that_is_none_and_a_filter_that_is_none_are_refused() -> None:
    with pytest.raises(UnknownNameError):
        catalog_rows("accelerator-cards")
    with pytest.raises(InputError):
        catalog_rows("accelerators", "mem_gb >")


def test_a_node_has_the_peak_and_the_power_of_its_accelerators() -> None:
    columns = ["fp16_tflops", "power_w", "rack_units"]
    ((peak, power, units),) = catalog_rows("nodes", "name == L40S-2U-4", columns).rows
    assert round(float(str(peak))) == 1448
    assert float(str(power)) < 3000
    assert units == 2


def test_announced_parts_are_marked() -> None:
    shown = catalog_rows("accelerators", "released == false")
    assert "released" in [column.name for column in shown.columns]
    assert any(str(row[0]).startswith("VR200") for row in shown.rows)


def test_more_columns_than_a_screen_holds_are_written_below_one_another() -> None:
    found = catalog_rows("accelerators", "name == L4", columns=catalog_columns("accelerators"))
    lines = found.lines
    assert len(lines) > len(found.columns) > 20
    assert all(len(line) <= 100 for line in lines)
    assert any(line.split()[:2] == ["tdp_w", "72"] for line in lines)
