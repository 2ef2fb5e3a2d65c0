"""For whom a request counts: by its key where there are keys, else by what it says."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.live.gateway.gateway_config import GatewayKey
from twofold.live.gateway.openai_requests import NO_KEY, Caller, Problem, caller_of

KEYS = tuple(
    GatewayKey(tenant, hashlib.sha256(key).hexdigest())
    for tenant, key in (("blue", b"k-blue"), ("red", b"k-red"), ("red", b"k-red-2"))
)
NAMES = st.sampled_from([b"authorization", b"x-tenant", b"x-stainless-retry-count", b"accept"])
VALUES = st.sampled_from(
    [b"red", b"Bearer k-blue", b"Bearer k-red", b"bearer  k-red-2 ", b"2", b""]
) | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=6)


@given(HEADERS)
def test_with_keys_nobody_asks_in_the_name_of_another(headers: list[tuple[bytes, bytes]]) -> None:
    shown = next((value for name, value in headers if name == b"authorization"), b"")
    key = shown[7:].strip() if shown[:7].lower() == b"bearer " else None
    caller = caller_of(headers, {key.sha256: key.tenant for key in KEYS})
    owner = {b"k-blue": "blue", b"k-red": "red", b"k-red-2": "red"}.get(key or b"")
    assert caller is NO_KEY if owner is None else isinstance(caller, Caller) and caller.tenant == owner


@given(HEADERS)
def test_without_keys_clients_are_believed_and_need_none(headers: list[tuple[bytes, bytes]]) -> None:
    said = next((value for name, value in headers if name == b"x-tenant"), b"")
    caller = caller_of(headers, None)
    assert isinstance(caller, Caller) and caller.tenant == said.strip().decode("latin-1")


@pytest.mark.parametrize(
    ("said", "count"),
    [(b"0", 0), (b"3", 3), (b"999", 999), (b"1000", 0), (b"-1", 0), (b"many", 0), (b"", 0), (b"\xb2", 0)],
)
def test_what_is_no_small_number_is_no_count_of_repeats(said: bytes, count: int) -> None:
    assert caller_of([(b"x-stainless-retry-count", said)], None) == Caller("", count)


def test_a_name_without_end_is_refused() -> None:
    assert isinstance(caller_of([(b"x-tenant", b"a" * 128)], None), Caller)
    refused = caller_of([(b"x-tenant", b"a" * 129)], None)
    assert isinstance(refused, Problem) and refused.status == 400
