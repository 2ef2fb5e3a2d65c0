"""The one answer: of the ways to lease what a spec asks for, the simplest that is nearly the cheapest."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import comb, inf

import numpy as np
from numpy.typing import NDArray

from twofold.catalog.capacity import CONTRACT
from twofold.portfolio.problem import CapacityOffer, Floats
from twofold.portfolio.ways import Way

SETS_MOST = 200_000  # of keys that are tried: of hundreds of leases four at a time are a hundred million
MOST_TOGETHER = 4  # kinds or providers of which every set is tried; a spec that needs more takes the cheapest
ROUNDING = 1e-9  # of sums in another order
Ways = Mapping[str, Sequence[Way]]  # by run and service; none is empty


def simplest(ways: Ways, within_fraction: float, kinds_limit: int | None = None) -> dict[str, Way]:
    """One way for each run and service: fewest kinds of accelerators, providers, leases; then least money.

    Formula  of all sets of kinds the smallest whose cheapest ways cost no more than
             (1 + `within_fraction`) × the cheapest of all; within it providers, then leases, the same way
    Limits   each run is on one offer, and each service on one or two. `kinds_limit` holds whatever it costs,
             where it can. What all together want more units of than there are is left by the one that goes
             elsewhere for least.
    """
    if not ways:
        return {}
    limit_usd = (1.0 + within_fraction) * cheapest_usd(ways)
    if kinds_limit is not None:
        ways = _fewest(ways, _kinds, inf, kinds_limit)
        limit_usd = max(limit_usd, (1.0 + within_fraction) * cheapest_usd(ways))
    every = ways
    for key in (_kinds, _providers, _leases):
        ways = _fewest(ways, key, limit_usd)
    found = {name: min(own, key=_dearness) for name, own in ways.items()}
    left = _elsewhere(found, every)
    if left:
        name = min(left, key=lambda each: min(way.usd for way in left[each]) - found[each].usd)
        return simplest({**every, name: left[name]}, within_fraction, kinds_limit)
    return found


def _elsewhere(found: Mapping[str, Way], every: Ways) -> dict[str, list[Way]]:
    """Of each that takes an account which all together want too much of, its ways without that account."""
    left: dict[str, list[Way]] = {}
    for name, taken in found.items():
        full = {account_of(offer) for offer, _ in taken.leases if is_too_much(found.values(), offer)}
        ways = [way for way in every[name] if not full & {account_of(offer) for offer, _ in way.leases}]
        if full and ways:
            left[name] = ways
    return left


def account_of(offer: CapacityOffer) -> tuple[str, ...]:
    """Whose limit an offer's is: instances of all sizes on one list share it; a quote has its own."""
    if offer.source.startswith("quote"):
        return (offer.name,)
    return offer.provider, offer.accelerator, offer.stated_region, offer.term


def is_too_much(found: Iterable[Way], offer: CapacityOffer) -> bool:
    """Whether all that take an offer's account want more of it at once than it gets; runs might overlap."""
    limit, count = 0, 0
    for way in found:
        for mine, units in way.leases:
            if mine.unit_limit is not None and account_of(mine) == account_of(offer):
                limit = max(limit, mine.unit_limit * mine.accelerator_count)
                count += units * mine.accelerator_count
    return count > limit


def cheapest_usd(ways: Ways) -> float:
    """What all cost where each takes its cheapest way."""
    return sum(min(way.usd for way in own) for own in ways.values())


def _dearness(way: Way) -> tuple[float, bool, str]:
    """Of two that cost the same the one that is not a contract."""
    return way.usd, way.offer.term == CONTRACT, way.offer.name


def _kinds(way: Way) -> set[str]:
    return {way.offer.accelerator}


def _providers(way: Way) -> set[str]:
    return {offer.provider for offer, _ in way.leases}


def _leases(way: Way) -> set[str]:
    # Of equal ones the first is taken.
    return {f"{offer.term == CONTRACT:d} {offer.name}" for offer, _ in way.leases}


def _fewest(ways: Ways, key: Callable[[Way], set[str]], limit_usd: float, most: int | None = None) -> Ways:
    """The ways of the smallest set of keys within a limit, of equal sets the cheapest; all where none is, or
    where too many sets would have to be tried."""
    keys = sorted({each for own in ways.values() for way in own for each in key(way)})
    # The cheapest way of each that needs just these keys.
    costs: list[dict[frozenset[str], float]] = []
    for own in ways.values():
        costs.append({})
        for way in own:
            needs = frozenset(key(way))
            costs[-1][needs] = min(way.usd, costs[-1].get(needs, inf))
    needed = [max(map(len, each)) for each in costs]
    together = min(most or sum(needed), sum(needed), len(keys), MOST_TOGETHER)
    for count in range(together if limit_usd == inf else 1, together + 1):
        if comb(len(keys), count) > SETS_MOST:
            break
        places = np.array(list(combinations(range(len(keys)), count)))
        sets = np.zeros((len(places), len(keys)), bool)
        np.put_along_axis(sets, places, True, axis=1)
        totals = sum((_least(each, keys, sets) for each in costs), np.zeros(len(sets)))
        best = int(np.argmin(totals))
        if totals[best] <= limit_usd * (1.0 + ROUNDING) and totals[best] < inf:
            kept = {each for each, taken in zip(keys, sets[best], strict=True) if taken}
            return {name: [way for way in own if key(way) <= kept] for name, own in ways.items()}
    return ways


def _least(costs: Mapping[frozenset[str], float], keys: Sequence[str], sets: NDArray[np.bool_]) -> Floats:
    """What the cheapest way costs that needs nothing outside of a set, by set; infinite where none does."""
    least = np.full(len(sets), inf)
    for needs, usd in costs.items():
        columns = [keys.index(each) for each in needs]
        least = np.minimum(least, np.where(sets[:, columns].all(axis=1), usd, inf))
    return least
