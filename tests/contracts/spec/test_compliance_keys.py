"""`compliance`: a word, or a mapping with more."""

import pytest

from twofold.contracts.spec.reader import parse_spec
from twofold.core.errors import InputErrors, TwofoldError

RUN = "training: {model: llama-3.1-8b, tokens: 1 Gtok}\n"


def test_a_word_is_the_regime_and_the_rest_has_defaults() -> None:
    short = parse_spec(f"{RUN}compliance: il5\n", "x").compliance
    long = parse_spec(f"{RUN}compliance: {{regime: il5}}\n", "x").compliance
    assert short == long
    assert short is not None
    assert (short.regime, short.users_count, short.recorded) == ("il5", 200, "content")
    assert (short.retention_s, short.cites) == (None, ())
    assert parse_spec(RUN, "x").compliance is None


def test_everything_may_be_said() -> None:
    keys = "{regime: air-gapped, users: 40, recorded: audit, retention: 90 d, cites: [EO 14110, M-25-21]}"
    rules = parse_spec(f"{RUN}compliance: {keys}\n", "x").compliance
    assert rules is not None
    assert (rules.users_count, rules.recorded, rules.retention_s) == (40, "audit", 90 * 86400)
    assert rules.cites == ("EO 14110", "M-25-21")


@pytest.mark.parametrize("keys", ["il6", "{users: 3}", "{regime: il5, retention: 90}", "{regime: il5, x: 1}"])
def test_what_is_no_regime_or_has_no_unit_is_refused(keys: str) -> None:
    with pytest.raises((TwofoldError, InputErrors)):
        parse_spec(f"{RUN}compliance: {keys}\n", "x")
