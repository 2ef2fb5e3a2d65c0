"""Filters keep the rows that they say, and what cannot be read is shown with a caret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.app.catalogue import OF_A_GPU, catalog, catalog_columns
from twofold.app.where import select, unmatched
from twofold.catalog.catalog import load_catalog
from twofold.core.errors import InputError, UsageError

ROWS = load_catalog().table("accelerators").rows
SMALL: tuple[dict[str, float | str | bool | None], ...] = (
    {"name": "a", "mem_gb": 80.0, "released": True, "fp8_tflops": None},
    {"name": "B", "mem_gb": 40.0, "released": False, "fp8_tflops": 2.5},
)


def names(where: str) -> list[object]:
    return [row["name"] for row in select(SMALL, where)]


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("", ["a", "B"]),
        ("mem_gb >= 80", ["a"]),
        ("mem_gb > 80", []),
        ("mem_gb < 80 or name == A", ["a", "B"]),
        ("not mem_gb < 80 and name == A", ["a"]),
        ("not (mem_gb < 80 and name == b)", ["a"]),
        ("name ~ B", ["B"]),
        ("name != 'b'", ["a"]),
        ("released == 1", ["a"]),
        ("released == false", ["B"]),
        ("fp8_tflops > 0", ["B"]),
        ("fp8_tflops != 2.5", ["a"]),
        ("mem_gb == many", []),
        ("mem_gb>=40 AND NOT name=='a'", ["B"]),
    ],
)
def test_filters_keep_what_they_say(where: str, kept: list[str]) -> None:
    assert names(where) == kept


def test_and_binds_closer_than_or() -> None:
    assert names("name == a or name == b and mem_gb > 50") == ["a"]
    assert names("(name == a or name == b) and mem_gb > 50") == ["a"]
    assert names("name == b or name == a and mem_gb < 50") == ["B"]


def test_our_tables_can_be_filtered() -> None:
    kept = select(ROWS, "mem_gb >= 80 and vendor == NVIDIA")
    assert kept and all(float(row["mem_gb"] or 0) >= 80 and row["vendor"] == "NVIDIA" for row in kept)


@pytest.mark.parametrize(
    ("where", "said", "caret_at"),
    [
        ("memgb >= 80", "`memgb` is not a column", 0),
        ("mem_gb = 80", "`=` is not expected", 7),
        ("mem_gb 80", "expected one of ==", 7),
        ("mem_gb >=", "expected a value", 9),
        ("(mem_gb > 1", "expected `)`", 11),
        ("mem_gb > 1 name", "expected `and`", 11),
        ("__import__('os')", "`__import__` is not a column", 0),
        ("and", "`and` is not a column", 0),
        ("name == 'open", "`'` is not expected", 8),
    ],
)
def test_a_bad_filter_is_refused_with_a_caret(where: str, said: str, caret_at: int) -> None:
    with pytest.raises(InputError) as error:
        select(SMALL, where)
    assert said in error.value.message
    assert error.value.hint.splitlines()[-1].index("^") == 2 + caret_at
    assert error.value.exit_code == 2


def test_what_a_refusal_writes_names_no_column_that_another_table_has() -> None:
    for where in ("provider = 80", "provider >=", "x" * 2000):  # SMALL has mem_gb, this table does not
        with pytest.raises(InputError) as error:
            select([{"provider": "aws"}], where)
        assert "mem_gb" not in error.value.hint and "COLUMN ~ PART" in error.value.hint


@pytest.mark.parametrize("table", sorted({*load_catalog().table_names()} - {*OF_A_GPU}))
def test_a_table_that_takes_no_gpu_says_by_which_column_to_filter(table: str) -> None:
    with pytest.raises(UsageError) as error:
        catalog(table, "H100")
    told = error.value.hint.partition('"')[2].rstrip('"')
    assert select([dict.fromkeys(catalog_columns(table), "an H100")], told)


def test_near_columns_are_suggested_and_endless_filters_refused() -> None:
    with pytest.raises(InputError, match="is not a column") as error:
        select(SMALL, "memgb >= 80")
    assert "`mem_gb`" in error.value.hint
    for where in ("(" * 200 + "name == a" + ")" * 200, "name == a or " * 200 + "name == a"):
        with pytest.raises(InputError):
            select(SMALL, where)


COMPARISONS = st.builds(
    "{} {} {}".format,
    st.sampled_from(["mem_gb", "year", "tdp_w", "vendor", "fp8_tflops", "released"]),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "~"]),
    st.sampled_from(["80", "2020", "NVIDIA", "0.5", "1"]),
)


@given(COMPARISONS, COMPARISONS)
def test_the_connectives_are_those_of_sets(left: str, right: str) -> None:
    everything = {str(row["name"]) for row in ROWS}
    one, other, both, either, neither = (
        {str(row["name"]) for row in select(ROWS, where)}
        for where in (left, right, f"{left} and {right}", f"{left} or {right}", f"not ({left} or {right})")
    )
    assert both == one & other
    assert either == one | other
    assert neither == everything - (one | other)


@given(st.text(alphabet="ab<>=!~()'\" mem_gb80andornot", max_size=40))
def test_any_text_selects_or_is_refused(where: str) -> None:
    try:
        select(SMALL, where)
    except InputError as error:
        assert "^" in error.hint


def test_a_text_that_a_column_never_holds_is_answered_with_what_it_holds() -> None:
    models = load_catalog().table("models").rows
    (inside,) = unmatched(models, "family == llama")
    count = len(select(models, "family ~ llama"))
    assert count > 10 and inside == f"no `family` is `llama`: `family ~ llama` fits {count} rows"
    (near,) = unmatched(models, "layers > 2 and family == 'Llamma-3.1'")
    assert "did you mean" in near and "`Llama-3.1`" in near


@pytest.mark.parametrize("where", ["", "family == Llama-3.1", "layers == 1234567", "family != llama"])
def test_what_a_filter_may_ask_gets_no_advice(where: str) -> None:
    assert unmatched(load_catalog().table("models").rows, where) == ()
