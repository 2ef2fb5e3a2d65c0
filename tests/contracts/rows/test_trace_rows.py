"""Rows of traces: csv and JSON lines say the same, columns may be left out, bad files name their line."""

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway_log import ended, gateways_log
from twofold.contracts.rows.trace import ordered_arrivals
from twofold.contracts.rows.trace_rows import Arrival, Reading, numbered_arrivals
from twofold.core.errors import FileError, TraceError
from twofold.live.gateway.telemetry import NO_CLASS

HEADER = "arrival_s,input_tokens,output_tokens\n"


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def arrivals(path: Path) -> list[Arrival]:
    return [arrival for _, arrival in numbered_arrivals(path)]


def test_optional_columns_are_read_from_csv_and_from_json_lines(tmp_path: Path) -> None:
    csv = written(
        tmp_path / "t.csv",
        "arrival_s,input_tokens,output_tokens,class,tenant,session_id,prefix_hash_ids,model\n"
        "0.5,100,10,chat,acme,s1,4 5 6,llama\n"
        "1.5,200,20,batch,,,,\n",
    )
    lines = written(
        tmp_path / "t.jsonl",
        '{"ts": 0.5, "usage": {"prompt_tokens": 100, "completion_tokens": 10}, "class": "chat", '
        '"user": "acme", "conversation_id": "s1", "hash_ids": [4, 5, 6], "model": "llama"}\n\n'
        '{"timestamp": "1.5", "input_length": 200, "output_length": 20, "class": "batch", "model": null}\n',
    )
    expected = [
        Arrival(0.5, 100, 10, "chat", "acme", "s1", (4, 5, 6), "llama"),
        Arrival(1.5, 200, 20, "batch"),
    ]
    assert arrivals(csv) == expected
    assert arrivals(lines) == expected


def test_ids_of_blocks_may_be_words(tmp_path: Path) -> None:
    text = 'arrival_s,input_tokens,output_tokens,hash_ids\n0,9,1,"[a3f, b, c]"\n1,9,1,a3f b\n'
    first, second = arrivals(written(tmp_path / "t.csv", text))
    assert first.prefix_blocks[:2] == second.prefix_blocks
    assert len(set(first.prefix_blocks)) == 3


def test_mooncakes_own_lines_are_milliseconds(tmp_path: Path) -> None:
    line = '{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}\n'
    (arrival,) = arrivals(written(tmp_path / "t.jsonl", line))
    assert arrival.arrival_s == 27.482


def test_the_gateways_own_log_is_a_trace_of_what_it_answered(tmp_path: Path) -> None:
    """It was refused for having no `arrival_s`."""
    path, reading = gateways_log(tmp_path / "requests.jsonl"), Reading()
    assert list(ordered_arrivals(path, reading=reading)) == [
        Arrival(0.0, 200, 20, "batch", "acme", model="sha256:5f"),
        Arrival(1.0, 100, 10, "chat", "acme", model="sha256:5f"),
    ]
    assert reading.notes("requests.jsonl")[1:] == [
        "requests.jsonl: 4 of 6 requests left out: 1 turned away before the prompt was read and "
        "3 refused or broken off, whose whole answers nobody knows; the rate is without them"
    ]


def test_a_log_of_refused_requests_alone_says_why_there_is_none(tmp_path: Path) -> None:
    path = written(tmp_path / "requests.jsonl", ended(2.0, "refused", None, 0, NO_CLASS) + "\n")
    with pytest.raises(TraceError, match="holds no request") as caught:
        list(ordered_arrivals(path))
    assert "1 of 1 requests left out" in caught.value.hint


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_neighbours_out_of_order_are_put_right_and_the_first_is_at_zero(
    tmp_path: Path, times: list[float]
) -> None:
    text = HEADER + "".join(f"{at!r},{index + 1},1\n" for index, at in enumerate(times))
    found = list(ordered_arrivals(written(tmp_path / "t.csv", text)))
    assert [arrival.arrival_s for arrival in found] == [at - min(times) for at in sorted(times)]
    assert sorted(arrival.input_tokens for arrival in found) == list(range(1, len(times) + 1))


def test_a_trace_that_is_not_sorted_names_the_row_and_says_what_to_do(tmp_path: Path) -> None:
    rows = [f"{at},5,5\n" for at in [*range(100, 22_300), 3]]
    with pytest.raises(TraceError, match="not sorted") as caught:
        list(ordered_arrivals(written(tmp_path / "t.csv", HEADER + "".join(rows))))
    assert caught.value.place is not None
    assert caught.value.place.line == 22_202
    assert "sort the file" in caught.value.hint


def test_a_request_longer_than_the_context_names_its_row(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", HEADER + "0,100,10\n1,100,30\n")
    assert len(list(ordered_arrivals(path, context_tokens=130))) == 2
    with pytest.raises(
        TraceError, match="130 tokens of request and answer exceed the context of 129"
    ) as caught:
        list(ordered_arrivals(path, context_tokens=129))
    assert caught.value.place is not None
    assert caught.value.place.line == 3


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("", "is empty", 1),
        ("\n\n", "is empty", 1),
        (HEADER, "holds no request", 1),
        (HEADER + "0,1,1\n0.5,1\n", "2 cells where the header has 3", 3),
        ('{"ts": 1, "prompt_tokens": 5, "completion_tokens": 5}\n{"ts": 2, "pro', "not JSON", 2),
        ('{"ts": 1, "prompt_tokens": 5, "completion_tokens": 5}\n[1]\n', "one JSON object", 2),
        ('{"ts": 1, "prompt_tokens": 5}\n', "no column `output_tokens`", 1),
        (HEADER[:-1] + ",tenant\n0,1,1," + "x" * 200, "more than 128 characters", 2),
    ],
)
def test_what_is_empty_truncated_or_corrupt_names_its_line(
    tmp_path: Path, text: str, says: str, line: int
) -> None:
    with pytest.raises(TraceError, match=says) as caught:
        list(ordered_arrivals(written(tmp_path / "t.csv", text)))
    assert caught.value.place is not None
    assert caught.value.place.line == line


def test_a_cut_gzip_file_is_a_broken_one_at_the_line_it_reaches(tmp_path: Path) -> None:
    whole = gzip.compress((HEADER + "".join(f"{at},{at % 97 + 1},5\n" for at in range(20_000))).encode())
    path = tmp_path / "t.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match="broken gzip") as caught:
        list(ordered_arrivals(path))
    assert caught.value.place is not None
    assert caught.value.place.line > 1


def test_dates_beside_seconds_name_the_first_row_of_the_later_clock(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", HEADER + "0,5,5\n2026-01-01T00:00:00,5,5\n2,5,5\n")
    with pytest.raises(TraceError, match="d after the one before it") as caught:
        list(ordered_arrivals(path))
    assert caught.value.place is not None
    assert caught.value.place.line == 3


def test_a_trace_is_read_no_further_than_it_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", HEADER + "".join(f"{at},5,5\n" for at in range(20_000)) + "broken")
    rows = ordered_arrivals(path)
    assert [next(rows).arrival_s for _ in range(3)] == [0, 1, 2]


def test_a_trace_that_is_not_there_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        next(ordered_arrivals(tmp_path / "none.csv"))
