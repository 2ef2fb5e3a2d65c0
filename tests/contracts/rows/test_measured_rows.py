from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.contracts.rows.measured_rows import ServiceRow, StepRow, read_service_rows, read_step_rows
from twofold.core.errors import FileError, InputError, InputErrors, TableError

Write = Callable[[str], Path]
STEPS = "accelerator,accelerator_count,global_batch_samples,step_s"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        path = tmp_path / "rows.csv"
        path.write_bytes(text.encode("utf-8"))
        return path

    return written


def errors_of(path: Path, read: Callable[[Path], object]) -> list[InputError]:
    with pytest.raises(InputError) as caught:
        read(path)
    return caught.value.errors if isinstance(caught.value, InputErrors) else [caught.value]


def test_service_rows_are_batches_with_seconds(write: Write) -> None:
    first, second = read_service_rows(write("batch_size,service_s,ttft_s\n1,0.010,0.004\n\n8,4e-2,\n"))
    assert isinstance(first, ServiceRow) and first.place.line == 2 and second.place.line == 4
    assert (first.batch_size, first.service_s, first.ttft_s, first.tpot_s) == (1, 0.01, 0.004, None)
    assert (second.batch_size, second.service_s, second.ttft_s) == (8, 0.04, None)


def test_step_rows_come_in_si(write: Write) -> None:
    columns = f"{STEPS},memory_gib,checkpoint_gb,sample_kb,note"
    (row,) = read_step_rows(write(f"{columns}\nH100-SXM, 8,65536,0.4,61,120,0.5,monday\n"))
    assert isinstance(row, StepRow)
    assert (row.accelerator, row.accelerator_count, row.global_batch_samples, row.step_s) == (
        "H100-SXM",
        8,
        65536,
        0.4,
    )
    assert (row.memory_bytes, row.checkpoint_bytes, row.sample_bytes) == (61 * 2**30, 120e9, 500.0)


def test_columns_may_stand_in_any_order_and_have_blanks_around_them(write: Write) -> None:
    (row,) = read_step_rows(
        write("\ufeffstep_s, accelerator_count ,global_batch_samples,accelerator\n1,2,3,L40S\n")
    )
    assert (row.step_s, row.accelerator_count, row.global_batch_samples, row.accelerator) == (1, 2, 3, "L40S")
    assert row.memory_bytes is None


def test_every_mistake_is_found_at_its_cell(write: Write) -> None:
    path = write(f"{STEPS}\nH100-SXM,8,65536,fast\n,8.5,65536,-1\nH100-SXM,8\n")
    found = errors_of(path, read_step_rows)
    assert [(error.place.line, error.place.column) for error in found if error.place] == [
        (2, 18),
        (3, 1),
        (3, 2),
        (3, 12),
        (4, 1),
    ]
    assert all(isinstance(error, TableError) and error.hint for error in found)
    assert "`fast` is not a number above 0" in found[0].message
    assert "`accelerator` has no value" in found[1].message
    assert "whole number" in found[2].message


@pytest.mark.parametrize("number", ["nan", "inf", "0", "-3", "1e400", "0x10", "1 s"])
def test_a_number_that_no_time_can_be_is_refused(write: Write, number: str) -> None:
    (error,) = errors_of(write(f"batch_size,service_s\n1,{number}\n"), read_service_rows)
    assert str(error.place).endswith(":2:3") and "above 0" in error.message


def test_a_batch_beyond_what_is_planned_names_the_limit_and_what_to_write(write: Write) -> None:
    """Planning takes memory for all that may wait: gigabytes for a batch of 1e9."""
    assert read_service_rows(write(f"batch_size,service_s\n{ServiceRow.BATCH_MOST},1\n"))
    (error,) = errors_of(write("batch_size,service_s\n1,0.1\n1e9,1\n"), read_service_rows)
    assert error.place and (error.place.line, error.place.column) == (3, 1)
    assert error.message == "`batch_size` is 1,000,000,000: at most 100,000 are planned"
    assert "units_per_request" in error.hint


def test_a_misspelt_column_is_named_with_the_one_that_was_meant(write: Write) -> None:
    found = errors_of(write(f"{STEPS},memory_gb\nH100-SXM,8,64,1,2\n"), read_step_rows)
    assert len(found) == 1 and found[0].place and found[0].place.column == len(STEPS) + 2
    assert "`memory_gb`" in found[0].message and "`memory_gib`" in found[0].hint


def test_missing_and_double_columns_are_errors(write: Write) -> None:
    (missing,) = errors_of(write("batch_size\n1\n"), read_service_rows)
    assert "`service_s`" in missing.message
    (double,) = errors_of(write("batch_size,service_s,service_s\n1,1,1\n"), read_service_rows)
    assert "stands twice" in double.message


@pytest.mark.parametrize("text", ["", f"{STEPS}\n", f"{STEPS}\n,,,\n"])
def test_a_file_without_rows_says_so(write: Write, text: str) -> None:
    assert any("measured rows" in error.message for error in errors_of(write(text), read_step_rows))


def test_files_that_are_no_tables_are_input_errors(write: Write, tmp_path: Path) -> None:
    (missing,) = errors_of(tmp_path / "none.csv", read_step_rows)
    assert isinstance(missing, FileError) and "does not exist" in missing.message
    (folder,) = errors_of(tmp_path, read_step_rows)
    assert isinstance(folder, FileError)
    (quoted,) = errors_of(write(f'{STEPS}\n"H100,8,64,1\n'), read_step_rows)
    assert "not readable as CSV" in quoted.message
    path = write("")
    path.write_bytes(f"{STEPS}\n\xff".encode("latin-1"))
    (encoded,) = errors_of(path, read_step_rows)
    assert encoded.place and encoded.place.line == 2 and "UTF-8" in encoded.message


def test_a_file_full_of_mistakes_names_the_first_fifty(write: Write) -> None:
    assert len(errors_of(write("batch_size,service_s\n" + "x,y\n" * 200), read_service_rows)) == 50


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200), is_headed=st.booleans())
def test_any_bytes_are_rows_or_an_input_error(write: Write, data: bytes, is_headed: bool) -> None:
    path = write("")
    path.write_bytes(f"{STEPS}\n".encode() * is_headed + data)
    try:
        rows = read_step_rows(path)
    except InputError:
        return
    assert rows and all(row.step_s > 0 and row.accelerator_count >= 1 for row in rows)
