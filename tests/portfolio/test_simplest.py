"""The simplest of ways that are nearly the cheapest, against all combinations."""

import tracemalloc
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.answer.serving_choice import Held
from twofold.portfolio.simplest import cheapest_usd, is_too_much, simplest
from twofold.portfolio.ways import Way

from .conftest import make_offer


def way(part: str, kind: str, provider: str, usd: float, term: str = "on_demand") -> Way:
    offer = make_offer(f"{provider} {kind} {term}", 1.0, accelerator=kind, provider=provider)
    machine: Any = None
    return Way(part, offer, machine, machine, usd)


PARTS = {
    "run": [way("run", "A", "x", 100.0), way("run", "B", "y", 108.0), way("run", "B", "z", 104.0)],
    "service": [way("service", "B", "y", 1000.0), way("service", "A", "y", 1050.0)],
}


def names(found: dict[str, Way]) -> list[str]:
    return [each.offer.name for each in found.values()]


def test_nothing_is_paid_for_being_simple_where_nothing_may_be() -> None:
    assert names(simplest(PARTS, 0.0)) == ["x A on_demand", "y B on_demand"]
    assert cheapest_usd(PARTS) == 1100.0


def test_one_kind_comes_before_one_provider_and_that_before_money() -> None:
    assert names(simplest(PARTS, 0.005)) == ["z B on_demand", "y B on_demand"]  # one kind for 4 more
    assert names(simplest(PARTS, 0.01)) == ["y B on_demand", "y B on_demand"]  # one provider for 8 more


def test_a_limit_of_kinds_holds_whatever_it_costs() -> None:
    dear = {**PARTS, "service": [way("service", "C", "y", 10.0), way("service", "A", "y", 5000.0)]}
    assert names(simplest(dear, 0.0)) == ["x A on_demand", "y C on_demand"]
    assert names(simplest(dear, 0.0, kinds_limit=1)) == ["x A on_demand", "y A on_demand"]
    # What cannot be is left as it is: a service has nothing but C.
    only = {**PARTS, "service": [way("service", "C", "y", 10.0)]}
    assert names(simplest(only, 0.0, kinds_limit=1)) == ["x A on_demand", "y C on_demand"]


ways = st.lists(
    st.tuples(st.sampled_from("AB"), st.sampled_from("xyz"), st.integers(1, 40)), min_size=1, max_size=5
)


@given(st.lists(ways, min_size=1, max_size=3), st.sampled_from([0.0, 0.1, 0.5]))
def test_no_combination_within_the_limit_has_fewer_kinds_or_as_many_and_fewer_providers(
    parts: list[list[tuple[str, str, int]]], within: float
) -> None:
    own = {str(at): [way(str(at), *each) for each in rows] for at, rows in enumerate(parts)}
    found = simplest(own, within)
    limit = (1.0 + within) * cheapest_usd(own) * (1 + 1e-9)

    def size(taken: Any) -> tuple[int, int]:
        return len({each.offer.accelerator for each in taken}), len({each.offer.provider for each in taken})

    assert sum(each.usd for each in found.values()) <= limit
    affordable = [taken for taken in product(*own.values()) if sum(each.usd for each in taken) <= limit]
    assert size(found.values())[0] == min(size(taken)[0] for taken in affordable)
    kinds = {each.offer.accelerator for each in found.values()}
    same = [taken for taken in affordable if {each.offer.accelerator for each in taken} <= kinds]
    assert size(found.values())[1] == min(size(taken)[1] for taken in same)


def test_nothing_to_rent_is_nothing_to_choose() -> None:
    assert simplest({}, 0.1) == {}
    with pytest.raises(ValueError, match="min"):
        simplest({"a": []}, 0.1)


def test_what_all_want_too_much_of_is_left_by_one_that_may_go_elsewhere() -> None:
    few = make_offer("few", 1.0, unit_limit=3)
    held = Held(2, 1.0, {}, 10.0)
    machine: Any = None
    own = {
        name: [Way(name, few, machine, machine, 10.0, held), way(name, "A", "x", 11.0)] for name in ("a", "b")
    }
    assert names(simplest(own, 0.0)) == ["x A on_demand", "few"]
    assert names(simplest({"a": own["a"]}, 0.0)) == ["few"]
    both = {
        name: [Way(name, few, machine, machine, usd, held) for usd in (10.0, 12.0)] for name in ("a", "b")
    }
    assert names(simplest(both, 0.0)) == ["few", "few"]  # nobody may go elsewhere: it went round for ever


def test_sizes_of_one_list_share_what_its_account_gets() -> None:
    """Eight accelerators of a provider are eight, in whatever instances; a quote is beside its list."""
    machine: Any = None
    ones = make_offer("ones", 1.0, accelerator_count=1, unit_limit=8)
    eights = make_offer("eights", 8.0, unit_limit=1)
    quoted = make_offer("quoted", 8.0, unit_limit=1, source="quote offers.csv:2")

    def wants(name: str, offer: Any, units: int) -> Way:
        return Way(name, offer, machine, machine, 10.0, Held(units, 1.0, {}, 10.0))

    run, service = wants("run", eights, 1), wants("service", ones, 1)
    assert not is_too_much([run], eights) and not is_too_much([wants("service", ones, 8)], ones)
    assert is_too_much([run, service], ones)
    assert not is_too_much([wants("run", quoted, 1), wants("service", ones, 8)], ones)
    left = simplest({"run": [run, way("run", "H100", "x", 11.0)], "service": [service]}, 0.0)
    assert names(left) == ["x H100 on_demand", "ones"]


def mix(part: str, base: tuple[str, str], rest: tuple[str, str], usd: float) -> Way:
    """A lease that is held under another; each a kind of machine and a provider."""
    (kind, first), (_, second) = base, rest
    held = make_offer(
        f"{first} {kind} reserved_1y", 1.0, accelerator=kind, provider=first, term="reserved_1y"
    )
    hourly = make_offer(f"{second} {kind} on_demand", 1.0, accelerator=kind, provider=second)
    machine: Any = None
    return Way(part, hourly, machine, machine, usd, Held(5, 0.6, {}, usd, machine, 2, 0.5), held)


def test_two_leases_are_two_and_are_taken_where_one_costs_too_much() -> None:
    one, two = way("s", "A", "x", 108.0), mix("s", ("A", "x"), ("A", "x"), 100.0)
    assert simplest({"s": [one, two]}, 0.1)["s"] is one
    assert simplest({"s": [one, two]}, 0.05)["s"] is two
    assert [units for _, units in two.leases] == [2, 3]
    # Two providers are more than one, and one of them is what a run has anyway.
    run, apart = way("r", "A", "y", 50.0), mix("s", ("A", "x"), ("A", "y"), 95.0)
    assert simplest({"s": [two, apart]}, 0.1)["s"] is two
    assert simplest({"r": [run], "s": [two, apart]}, 0.1)["s"] is apart


mixes = st.lists(
    st.tuples(st.sampled_from("AB"), st.sampled_from("xy"), st.sampled_from("xyz"), st.integers(1, 40)),
    max_size=3,
)


@given(st.lists(st.tuples(ways, mixes), min_size=1, max_size=2), st.sampled_from([0.0, 0.1, 0.5]))
def test_no_combination_of_leases_within_the_limit_has_fewer_kinds_providers_or_leases(
    parts: list[tuple[list[tuple[str, str, int]], list[tuple[str, str, str, int]]]], within: float
) -> None:
    own = {
        str(at): [way(str(at), *each) for each in ones]
        + [mix(str(at), (kind, first), (kind, second), usd) for kind, first, second, usd in twos]
        for at, (ones, twos) in enumerate(parts)
    }
    limit = (1.0 + within) * cheapest_usd(own) * (1 + 1e-9)

    def size(taken: Any) -> tuple[int, int, int]:
        offers = [offer for each in taken for offer, _ in each.leases]
        return tuple(
            len({getattr(each, key) for each in offers}) for key in ("accelerator", "provider", "name")
        )

    found = simplest(own, within).values()
    every = [taken for taken in product(*own.values()) if sum(each.usd for each in taken) <= limit]
    assert sum(each.usd for each in found) <= limit
    kinds = {each.offer.accelerator for each in found}
    providers = {offer.provider for each in found for offer, _ in each.leases}
    same = [taken for taken in every if {each.offer.accelerator for each in taken} <= kinds]
    there = [t for t in same if {offer.provider for each in t for offer, _ in each.leases} <= providers]
    assert size(found)[0] == min(size(taken)[0] for taken in every)
    assert size(found)[1] == min(size(taken)[1] for taken in same)
    assert size(found)[2] == min(size(taken)[2] for taken in there)


def test_it_is_left_by_the_one_that_goes_elsewhere_for_least() -> None:
    """The first in the spec had to go, whatever that cost."""
    few = make_offer("few", 1.0, unit_limit=3)
    machine: Any = None
    own = {
        name: [Way(name, few, machine, machine, 10.0, Held(2, 1.0, {}, 10.0)), way(name, "A", "x", usd)]
        for name, usd in (("dear", 99.0), ("cheap", 11.0))
    }
    assert names(simplest(own, 0.0)) == ["few", "x A on_demand"]


def test_hundreds_of_leases_for_many_parts_take_no_memory() -> None:
    """Eight parts on leases of their own were tried four leases at a time: a hundred million sets."""
    ways = {
        f"part {part}": [
            way(f"part {part}", f"{part} kind {lease % 9}", f"{part} seller {lease}", 100.0 + lease)
            for lease in range(40)
        ]
        for part in range(8)
    }
    tracemalloc.start()
    found = simplest(ways, 0.0)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(each.usd for each in found.values()) == cheapest_usd(ways)
    assert most_bytes < 500e6
