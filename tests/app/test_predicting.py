"""`predict` passes tables through: every row once, in order, in bounded memory, whatever a row holds."""

import csv
from pathlib import Path

import pytest

from twofold.app.measured_rows import predict
from twofold.core.errors import EncodingError, FileError, TableError

HEADER = (
    "id,model,gpu,gpus_total,framework,precision_weights,tp,isl_mean,osl_mean,concurrency,tpot_mean_ms,notes"
)
GOOD = 'a,meta-llama/Llama-3.1-70B-Instruct,h200,4,vllm,fp8,4,1000,200,16,25.1,"kept, as it is"'
BAD = "b,no-such-model,h200,4,vllm,fp8,4,1000,200,16,,"


def table(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


def test_rows_pass_through_in_order_with_predictions_behind(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    done = predict("inference", table(tmp_path, GOOD, BAD, GOOD), out)
    rows = read(out)
    assert [row["id"] for row in rows] == ["a", "b", "a"]
    assert rows[0]["notes"] == "kept, as it is"
    assert float(rows[0]["pred_tpot_mean_ms_low"]) < float(rows[0]["pred_tpot_mean_ms"])
    assert rows[0]["pred_basis"] in {"stated", "assumed"} and rows[0]["pred_error"] == ""
    assert rows[1]["pred_error"].startswith("E-name") and rows[1]["pred_tpot_mean_ms"] == ""
    assert done.row_count == 3 and dict(done.refused) == {"E-name": 1}


def test_what_was_measured_changes_nothing(tmp_path: Path) -> None:  # INV-10
    out, blind = tmp_path / "out.csv", tmp_path / "blind.csv"
    predict("inference", table(tmp_path, GOOD), out)
    predict("inference", table(tmp_path, GOOD.replace("25.1", "9999").replace("kept", "other")), blind)
    (first,), (second,) = read(out), read(blind)
    assert {k: v for k, v in first.items() if k.startswith("pred_")} == {
        k: v for k, v in second.items() if k.startswith("pred_")
    }


def test_chunks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [BAD if n % 3 == 2 else GOOD.replace("1000", str(500 + n)) for n in range(7)]
    whole, pieces = tmp_path / "whole.csv", tmp_path / "pieces.csv"
    predict("inference", table(tmp_path, *rows), whole)
    monkeypatch.setattr("twofold.app.measured_rows.CHUNK_ROWS", 2)
    seen: list[str] = []
    predict("inference", table(tmp_path, *rows), pieces, seen.append)
    assert pieces.read_text() == whole.read_text()
    size = len((tmp_path / "rows.csv").read_bytes())
    read = [int(said.split()[1]) for said in seen]
    assert len(read) == 4 and read == sorted(read) and seen[-1] == f"read {size} of {size} bytes"


def test_earlier_predictions_are_replaced(tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    predict("inference", table(tmp_path, GOOD), first)
    predict("inference", first, second)
    assert second.read_text() == first.read_text()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", TableError),
        (b"id,model\n1,x\n", TableError),
        (HEADER.encode() + b"\n", TableError),
        (HEADER.encode() + b",model\n", TableError),
        (HEADER.encode() + b"\n" + b"x," * 40 + b"\n", TableError),
        (HEADER.encode() + b'\n"open', TableError),
        (HEADER.encode() + b"\n\xff\xfe\n", EncodingError),
    ],
)
def test_what_is_no_table_is_refused_and_leaves_no_file(
    content: bytes, error: type[Exception], tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(error):
        predict("inference", tmp_path / "rows.csv", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_a_short_row_is_filled_with_blanks(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    predict("inference", table(tmp_path, "a,x"), out)
    (row,) = read(out)
    assert row["gpu"] == "" and row["pred_error"] != ""


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises((OSError, FileError)):
        predict("training", tmp_path / "none.csv", tmp_path / "out.csv")
