"""Names of a catalogue: compared loosely, guessed when misspelt, unchecked without a catalogue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.names import Names, did_you_mean, fold, unknown_name

KNOWN = ("llama-3.1-70b", "llama-3.1-8b", "qwen3-32b")


@given(name=st.sampled_from(KNOWN), data=st.data())
def test_one_wrong_letter_is_guessed(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 1))
    wrong = name[:at] + "?" + name[at + 1 :]
    assert f"`{name}`" in did_you_mean(wrong, KNOWN, "")


@given(name=st.sampled_from(KNOWN))
def test_case_spaces_and_dashes_do_not_tell_names_apart(name: str) -> None:
    names = Names(models=frozenset(KNOWN))
    for spelling in (name.upper(), name.replace("-", "_"), name.replace("-", " "), name.replace("-", "")):
        assert fold(spelling) == fold(name)
        assert unknown_name(spelling, ("models",), names) is None


def test_without_names_everything_passes() -> None:
    assert unknown_name("anything", ("models",), Names()) is None


@pytest.mark.parametrize(("text", "is_known"), [("us-east", True), ("us-east-1", True), ("mars", False)])
def test_a_region_may_name_a_family(text: str, is_known: bool) -> None:
    names = Names(regions=frozenset({"us-east-1", "us-east-2"}))
    assert (unknown_name(text, ("regions",), names) is None) is is_known


def test_what_may_stand_in_two_tables_is_unknown_only_to_both() -> None:
    names = Names(providers=frozenset({"aws"}), accelerators=frozenset({"H100-SXM"}))
    tables = ("providers", "accelerators")
    assert unknown_name("aws", tables, names) is unknown_name("h100-sxm", tables, names) is None
    error = unknown_name("asw", tables, names)
    assert error is not None
    assert "not a known provider or accelerator" in error.message
    assert "`aws`" in error.hint
