"""Pools and runs of a plan, flat."""

from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.results.plan import Plan
from twofold.core.errors import ValueRefusedError
from twofold.rendering.records import NAME_MOST, label, longest_tokens, served_pools


@given(parts=st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=4))
def test_a_name_is_a_label_of_dns_or_refused(parts: list[str]) -> None:
    try:
        name = label(*parts)
    except ValueRefusedError as error:
        assert error.hint
        return
    assert 0 < len(name) <= NAME_MOST
    assert name == name.strip("-")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_the_longest_request_is_longer_than_its_95th_percentile(examples: dict[str, Plan]) -> None:
    for each in examples["assistant"].serving[0].classes:
        mean = (each.input_tokens or 0.0) + (each.output_tokens or 0.0)
        assert longest_tokens(each) % 256 == 0
        assert longest_tokens(each) > mean


def test_no_context_is_exceeded(examples: dict[str, Plan]) -> None:
    plan = examples["assistant"]
    assert {pool.longest_tokens for pool in served_pools(plan, {"llama-3.1-70b": 4096})} == {4096}
    ports = [pool.port for pool in served_pools(plan, {})]
    assert len(set(ports)) == len(ports)
