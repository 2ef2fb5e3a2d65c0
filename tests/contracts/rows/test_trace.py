"""Traffic traces: any order and spelling gives the same summary; what cannot be read names its line."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.contracts.rows.trace import Trace, read_trace
from twofold.contracts.rows.trace_rows import numbered_arrivals
from twofold.core.errors import TwofoldError

HEADER = "arrival_s,input_tokens,output_tokens\n"
SHARED = Path(__file__).parents[3] / ".." / "shared" / "traces"
ROWS = st.lists(
    st.tuples(st.floats(0, 1e6), st.integers(1, 10**6), st.integers(1, 10**6)), min_size=2, max_size=40
).filter(lambda rows: max(rows)[0] - min(rows)[0] > 1e-3)


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def rows_text(rows: list[tuple[float, int, int]]) -> str:
    return HEADER + "".join(f"{arrival!r},{sent},{answered}\n" for arrival, sent, answered in rows)


def near(one: Trace, other: Trace) -> bool:
    return (one.request_count, one.peak_ratio) == (other.request_count, other.peak_ratio) and math.isclose(
        one.input.mean_tokens, other.input.mean_tokens
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_order_does_not_matter_and_percentiles_are_near(
    tmp_path: Path, rows: list[tuple[float, int, int]]
) -> None:
    path = tmp_path / "t.csv"
    trace = read_trace(written(path, rows_text(rows)))
    assert near(read_trace(written(path, rows_text(rows[::-1]))), trace)
    sent = sorted(row[1] for row in rows)
    for part, found in ((0.5, trace.input.p50_tokens), (0.95, trace.input.p95_tokens)):
        exact = sent[math.ceil(part * len(sent)) - 1]
        assert math.isclose(found, exact, rel_tol=0.0055)
    assert trace.peak_ratio >= 1
    assert math.isclose(trace.mean_rate_per_s * trace.duration_s, len(rows))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes_are_a_trace_or_a_coded_error(tmp_path: Path, content: bytes) -> None:
    for start in (b"", HEADER.encode(), b"\x1f\x8b\x08\x00"):
        path = tmp_path / "t.csv"
        path.write_bytes(start + content)
        try:
            read_trace(path)
        except TwofoldError as error:
            assert error.exit_code == 2


def test_a_compressed_trace_is_the_same_trace(tmp_path: Path) -> None:
    text = rows_text([(0.0, 10, 5), (60.0, 20, 5), (61.0, 30, 5)])
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_trace(packed) == read_trace(written(tmp_path / "t.csv", text))
    assert [arrival.arrival_s for _, arrival in numbered_arrivals(packed)] == [0.0, 60.0, 61.0]


def test_known_spellings_and_clocks_are_read(tmp_path: Path) -> None:
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    azure = header + "2023-11-16 18:17:03.9799600,400,50\n2023-11-16 18:18:03.98,4,5"
    logs = "prompt_tokens,completion_tokens,ts\n400,50,1700158623980\n4,5,1700158683980\n"
    for text in (azure, logs):
        trace = read_trace(written(tmp_path / "t.csv", text))
        assert math.isclose(trace.duration_s, 60, rel_tol=1e-4)
        assert trace.input.mean_tokens == 202


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("", "is empty", 1),
        ("a,b\n1,2\n", "no column `arrival_s`", 1),
        (HEADER, "holds no request", 1),
        (HEADER + "0,1,1\n1,x,1\n", "`x` is not a count of tokens", 3),
        (HEADER + "0,1,1\n1,-5,1\n", "`-5` is not a count of tokens", 3),
        *((HEADER + f"0,1,1\n1,{text},1\n", "is not a count of tokens", 3) for text in ("10.5", "1_0", "١٠")),
        (HEADER + "0,1,1\nnan,5,1\n", "`nan` is not a time", 3),
        (HEADER + "0,1,1\nnoon,5,1\n", "`noon` is not a time", 3),
        (HEADER + "0,1,1\n1,5\n", "2 cells where the header has 3", 3),
        (HEADER + "5,1,1\n5,1,1\n", "arrive at once", 2),
        (HEADER + "0,0,1\n9,0,2\n", "has input tokens", 2),
        (HEADER + "0,1,0\n9,1,0\n", "has output tokens", 2),
        (HEADER + "x" * (1 << 20), "a line of more than", 2),
    ],
)
def test_what_cannot_be_read_names_its_line(tmp_path: Path, text: str, says: str, line: int) -> None:
    with pytest.raises(TwofoldError) as caught:
        read_trace(written(tmp_path / "t.csv", text))
    assert says in caught.value.message
    assert caught.value.place is not None
    assert caught.value.place.line == line


def test_azures_conversation_trace_has_its_published_lengths() -> None:
    path = SHARED / "req_azure2023_conv.csv.gz"
    if not path.is_file():
        pytest.skip("needs ../shared/traces")
    trace = read_trace(path)
    assert trace.request_count == 19_366
    assert (round(trace.input.mean_tokens), round(trace.output.mean_tokens)) == (1155, 211)
    assert math.isclose(trace.input.p95_tokens, 4083, rel_tol=0.006)
    assert math.isclose(trace.output.p95_tokens, 451, rel_tol=0.006)


def test_caches_find_what_a_plain_cache_of_their_size_does(tmp_path: Path) -> None:
    """Against lists of the blocks that were used last, one request after the other."""
    random = np.random.default_rng(3)
    prompts = [[1000 * int(each) + block for block in range(40)] for each in random.integers(0, 40, 600)]
    rows = "".join(f"{at},{40 * 512},10,{' '.join(map(str, blocks))}\n" for at, blocks in enumerate(prompts))
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,hash_ids\n" + rows, "utf-8")
    hits = dict(read_trace(path).prefix_hits)
    for tokens in (131_072.0, 524_288.0):
        used: list[int] = []
        found = 0
        for blocks in prompts:
            leading = next((at for at, each in enumerate(blocks) if each not in used), len(blocks))
            found += min(leading * 512, 40 * 512 - 1)
            used = [each for each in used if each not in blocks] + blocks[::-1]
            used = used[-int(tokens // 512) :]
        assert hits[tokens] == pytest.approx(found / (600 * 40 * 512))
    assert list(hits.values()) == sorted(hits.values()) and hits[134_217_728.0] > 0.9


def test_a_trace_without_prefixes_tells_none(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,10,10\n1,10,10\n", "utf-8")
    assert read_trace(path).prefix_hits == ()
