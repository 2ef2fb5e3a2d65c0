"""The schema describes every shipped table fully, and cells become SI numbers by the unit that it states."""

import csv
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.catalog.schema import DATA, SI_FACTOR, Column, schema
from twofold.catalog.types import RECORDS

SAME_IN_SI = {"", "W", "d", "deg", "$", "$/h", "$/kWh", "$/TB/month", "g/kWh", "l/kWh", "tok", "see unit"}
SAME_IN_SI |= {"$/Mtok"}


def column(kind: str, unit: str = "", default: str = "", bounds: str = "") -> Column:
    return Column("mem_gb", "memory_bytes", 0, kind, unit, default, bounds, "some figure")


@pytest.mark.parametrize("table", schema())
def test_every_header_is_the_schemas(table: str) -> None:
    with (DATA / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        header = next(csv.reader(file))
    assert header == [column.name for column in schema()[table]]
    assert {"source", "licence", "confidence"} <= set(header)
    assert any(column.key for column in schema()[table])


def test_every_shipped_file_is_a_table_and_every_unit_is_known() -> None:
    assert {path.stem for path in DATA.glob("*.csv")} - {"schema"} == set(schema())
    columns = [column for table in schema().values() for column in table]
    assert {column.unit for column in columns} <= SAME_IN_SI | set(SI_FACTOR)
    assert all(column.meaning for column in columns)


@pytest.mark.parametrize("table", RECORDS)
def test_every_required_field_of_a_record_has_a_column(table: str) -> None:
    of_configs = {"memory_bytes", "fp8_blocks"}  # worked out, or said by a config.json alone
    stated = {column.field for column in schema()[table]} | of_configs
    assert {field.name for field in fields(RECORDS[table])} <= stated


@given(st.floats(0.001, 1e6), st.sampled_from(sorted(SI_FACTOR)))
def test_a_number_in_a_unit_is_its_factor_times_as_many_si_units(number: float, unit: str) -> None:
    cell = column("float", unit)
    assert cell.si(cell.read(repr(number))) == number * SI_FACTOR[unit]


def test_anchors_of_units() -> None:
    assert column("float", "Gbit/s").si(400.0) == 50e9
    assert column("float", "GiB").si(1.0) == 2**30
    assert column("float", "us").si(5.0) == pytest.approx(5e-6)


@pytest.mark.parametrize(
    ("cell", "text", "said"),
    [
        (column("float", "GB", bounds=">0"), "0", "out of range; write a number in GB, above 0"),
        (column("float", "GB", bounds=">=0"), "-1", "0 or more"),
        (column("float", bounds="1..3"), "3.5", "from 1 to 3"),
        (column("float"), "inf", "out of range"),
        (column("float"), "1e300", "out of range"),
        (column("int"), "1.5", "not a whole number"),
        (column("int"), "", "is empty"),
        (column("flag"), "yes", "write 0 or 1"),
        (column("date"), "2026-02-30", "not a date"),
        (column("date"), "20260101", "not a date"),
        (column("date"), "2026-13", "not a date"),
        (column("a|b"), "c", "one of a, b"),
    ],
)
def test_a_bad_cell_says_what_to_write(cell: Column, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"write|is not|empty") as error:
        cell.read(text)
    assert said in str(error.value)


def test_empty_cells_take_their_default() -> None:
    assert column("float", default="none").read("") is None
    assert column("text", default="none").read("") == ""
    assert column("int", default="3").read("") == 3
    assert column("flag", default="1").read("") is True
    for date in ("2026", "2026-02", "2024-02-29"):
        assert column("date").read(date) == date


def test_every_number_of_every_table_is_finite_and_typed() -> None:
    catalog = load_catalog()
    kinds = {"int": int, "float": float, "flag": bool}
    for table in catalog.table_names():
        for row in catalog.table(table).rows:
            for cell in schema()[table]:
                value = row[cell.name]
                assert value is None or isinstance(value, kinds.get(cell.type, str))
