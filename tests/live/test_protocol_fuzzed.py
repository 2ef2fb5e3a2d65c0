"""The gateway's HTTP over a socket: hypothesis cuts requests, bends heads and hides requests in bodies.

A request that is well formed is answered once, however its bytes come. One whose length can be read in two
ways is refused and the connection ends: what stands in its body is never taken for another's request.
"""

import json
import socket
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.threaded import Threaded, served_on_a_thread

BOUNDED = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
LINE = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
BODY = json.dumps({"prompt": "honest", "max_tokens": 2}).encode()
HIDDEN = json.dumps({"prompt": "SMUGGLED", "max_tokens": 2}).encode()
SMUGGLED = LINE + b"content-length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threaded]:
    with served_on_a_thread(tmp_path_factory.mktemp("gateway")) as made:
        yield made


def said_to(port: int, pieces: Sequence[bytes]) -> bytes:
    """All that comes back until the gateway ends the connection, asked to by the end of ours."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as opened:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                opened.sendall(piece)
            while not complete(answer) and (data := opened.recv(65536)):
                answer += data
        except ConnectionError:
            pass
    return answer


def complete(answer: bytes) -> bool:
    """Whether a whole answer with a stated length has come."""
    head, found, body = answer.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(found and lengths) and len(body) >= int(lengths[0].partition(b":")[2])


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(place % len(data) for place in places)})
    return [data[start:end] for start, end in pairwise(ends)]


def in_chunks(body: bytes, places: Sequence[int], extension: bytes, trailer: bytes) -> bytes:
    chunks = [b"%x%b\r\n%b\r\n" % (len(each), extension, each) for each in cut(body, places)]
    return b"".join(chunks) + b"0\r\n" + trailer + b"\r\n"


PLACES = st.lists(st.integers(0, 10_000), max_size=6)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12).map(lambda name: f"x-{name}")
HEADERS = st.lists(st.tuples(NAMES, st.text("abc 123;=,\"'", max_size=20)), max_size=5)


@BOUNDED
@given(
    headers=HEADERS,
    chunks=PLACES,
    cuts=PLACES,
    chunked=st.booleans(),
    extension=st.sampled_from([b"", b";a=b"]),
    trailer=st.sampled_from([b"", b"x-t: 1\r\n"]),
)
def test_a_request_is_answered_once_however_its_bytes_come(
    served: Threaded,
    headers: list[tuple[str, str]],
    chunks: list[int],
    cuts: list[int],
    chunked: bool,
    extension: bytes,
    trailer: bytes,
) -> None:
    before = len(served.engine.requests)
    more = "".join(f"{name}: {value}\r\n" for name, value in headers).encode()
    if chunked:
        whole = (
            LINE + more + b"transfer-encoding: chunked\r\n\r\n" + in_chunks(BODY, chunks, extension, trailer)
        )
    else:
        whole = LINE + more + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    answer = said_to(served.port, cut(whole, cuts))
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.count(b"HTTP/1.1") == 1
    [asked] = [each for _, _, each in served.engine.requests[before:]]
    assert asked["prompt"] == "honest"


LENGTHS = st.one_of(
    st.sampled_from(
        [
            *(b"+%d", b"-%d", b"0x%x", b"%d, %d", b"%d %d", b"%d;", b"'%d'", b"\x0b%d", b"%d\x00", b"%d.0"),
            *(b"1e%d", b"_%d"),
        ]
    ),
).map(lambda form: form % ((len(BODY),) * form.count(b"%")))
CODINGS = st.sampled_from(
    [
        *(b"chunked", b"Chunked", b"identity, chunked", b"chunked, identity", b"xchunked", b"chunked;q=1"),
        *(b"\x0bchunked", b"chunked\x00", b"gzip", b'"chunked"'),
    ]
)
NAMES_OF_CODING = st.sampled_from([b"transfer-encoding: ", b"Transfer-Encoding:", b"transfer-encoding : "])
AMBIGUOUS = st.one_of(
    st.tuples(NAMES_OF_CODING, CODINGS, st.integers(0, 80)).map(
        lambda told: b"content-length: %d\r\n%b%b\r\n" % (told[2], told[0], told[1])
    ),
    st.tuples(st.integers(0, 40), st.integers(41, 90)).map(
        lambda told: b"content-length: %d\r\ncontent-length: %d\r\n" % told
    ),
    LENGTHS.map(lambda value: b"content-length: " + value + b"\r\n"),
    st.sampled_from(
        [
            b"transfer-encoding: chunked, identity\r\n",
            b"transfer-encoding : chunked\r\n",
            b"content-length:\r\n",
        ]
    ),
)


def test_a_second_request_behind_a_sound_one_is_served(served: Threaded) -> None:
    """So that the next test would see one that is not hidden well."""
    before = len(served.engine.requests)
    first = LINE + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as opened:
        opened.sendall(first + SMUGGLED.replace(b"host: x", b"host: x\r\nconnection: close"))
        while opened.recv(65536):
            pass
    assert "SMUGGLED" in [each["prompt"] for _, _, each in served.engine.requests[before:]]
    served.engine.requests.clear()


@BOUNDED
@given(length=AMBIGUOUS, in_order=st.booleans(), cuts=PLACES)
def test_what_stands_in_a_body_of_doubtful_length_is_nobodys_request(
    served: Threaded, length: bytes, in_order: bool, cuts: list[int]
) -> None:
    if not in_order:
        lines = length.splitlines(keepends=True)
        length = b"".join(reversed(lines))
    whole = LINE + length + b"\r\n" + b"0\r\n\r\n" + SMUGGLED + SMUGGLED
    answer = said_to(served.port, cut(whole, cuts))
    assert b" 200 " not in answer and (not answer or answer.startswith(b"HTTP/1.1 4")), length
    assert not [each for _, _, each in served.engine.requests if each["prompt"] == "SMUGGLED"], length


@BOUNDED
@given(
    data=st.one_of(
        st.binary(max_size=400),
        st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=8)).map(
            lambda told: (LINE + b"content-length: 2\r\n\r\n{}")[: told[0]] + told[1] + b"\r\n\r\n"
        ),
    )
)
def test_bytes_that_are_no_request_harm_nobody(served: Threaded, data: bytes) -> None:
    before = len(served.engine.requests)
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as opened:
        opened.sendall(data)
        opened.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := opened.recv(65536):
                answer += part
        except ConnectionError:
            pass
    assert b"HTTP/1.1 5" not in answer and b" 200 " not in answer
    assert b"Traceback" not in answer and len(served.engine.requests) == before
    honest = LINE + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    assert said_to(served.port, [honest]).startswith(b"HTTP/1.1 200 ")
