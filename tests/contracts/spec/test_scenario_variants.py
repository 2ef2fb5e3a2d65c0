"""A variant is its scenario with a few keys other, and an error in it names its own line."""

import pytest

from twofold.contracts.spec.scenario import Reading, parse_scenario
from twofold.core.errors import InputErrors, ShapeError, UnknownNameError

TEXT = """name: zone
fleet: {spares: 2, zones: 3}
policies: {routing: prefix}
variants:
  bare: {fleet: {spares: 0}}
  wrong: {fleet: {spare: 0}}
"""


def read(variant: str = "", *overrides: tuple[str, str]) -> object:
    return parse_scenario(TEXT, "zone.yaml", Reading(variant=variant, overrides=overrides))


def test_a_variant_changes_what_it_names_and_nothing_else() -> None:
    base, bare = parse_scenario(TEXT, "a"), parse_scenario(TEXT, "a", Reading(variant="bare"))
    assert (base.fleet.spares, bare.fleet.spares) == (2, 0)
    assert bare.fleet.zones == base.fleet.zones == 3
    assert bare.policies == base.policies
    assert (base.name, bare.name) == ("zone", "zone:bare")


def test_an_override_stands_for_the_value_of_the_file_and_of_the_variant() -> None:
    read_ = parse_scenario(TEXT, "a", Reading(variant="bare", overrides=(("fleet.spares", "5"),)))
    assert (read_.fleet.spares, read_.fleet.zones) == (5, 3)


def test_a_mistake_in_a_variant_stands_at_its_line() -> None:
    with pytest.raises(InputErrors) as caught:
        read("wrong")
    (error,) = caught.value.errors
    assert error.place is not None and error.place.line == 6
    assert "did you mean `spares`" in error.hint


def test_an_unknown_variant_and_one_without_keys_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="`bear` is not a variant of `zone`") as caught:
        read("bear")
    assert "did you mean `bare`" in caught.value.hint
    with pytest.raises(ShapeError, match="the variant `a` needs keys"):
        parse_scenario("variants: {a: 1}", "b")


@pytest.mark.parametrize("key", ["fleet.spare", "fleet.spares.more", "nothing"])
def test_an_override_of_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(InputErrors):
        read("", (key, "1"))
