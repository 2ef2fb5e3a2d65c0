"""The one answer: of the ways to lease what a spec asks for, the simplest that is nearly the cheapest."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import inf

import numpy as np

from twofold.catalog.capacity import CONTRACT
from twofold.portfolio.problem import CapacityOffer
from twofold.portfolio.ways import Way

MOST_TOGETHER = 4  # kinds or providers of which every set is tried; a spec that needs more takes the cheapest
ROUNDING = 1e-9  # of sums in another order
Ways = Mapping[str, Sequence[Way]]  # by run and service; none is empty


def simplest(ways: Ways, within_fraction: float, kinds_limit: int | None = None) -> dict[str, Way]:
    """One way for each run and service: fewest kinds of accelerators, providers, leases; then least money.

    Formula  of all sets of kinds the smallest whose cheapest ways cost no more than
             (1 + `within_fraction`) × the cheapest of all; within it providers, then leases, the same way
    Limits   each run and each service is on one offer. `kinds_limit` holds whatever it costs, where it can.
             What all together want more units of than there are is left by the first that may go elsewhere.
    """
    if not ways:
        return {}
    limit_usd = (1.0 + within_fraction) * cheapest_usd(ways)
    if kinds_limit is not None:
        ways = _fewest(ways, _kind, inf, kinds_limit)
        limit_usd = max(limit_usd, (1.0 + within_fraction) * cheapest_usd(ways))
    every = ways
    for key in (_kind, _provider, _lease):
        ways = _fewest(ways, key, limit_usd)
    found = {name: min(own, key=_dearness) for name, own in ways.items()}
    for name, own in every.items():
        left = [way for way in own if account_of(way.offer) != account_of(found[name].offer)]
        if left and is_too_much(found.values(), found[name].offer):
            return simplest({**every, name: left}, within_fraction, kinds_limit)
    return found


def account_of(offer: CapacityOffer) -> tuple[str, ...]:
    """Whose limit an offer's is: instances of all sizes on one list share it; a quote has its own."""
    if offer.source.startswith("quote"):
        return (offer.name,)
    return offer.provider, offer.accelerator, offer.stated_region, offer.term


def is_too_much(found: Iterable[Way], offer: CapacityOffer) -> bool:
    """Whether all that take an offer's account want more of it at once than it gets; runs might overlap."""
    limit, count = 0, 0
    for way in found:
        mine = way.offer
        if mine.unit_limit is not None and account_of(mine) == account_of(offer):
            limit = max(limit, mine.unit_limit * mine.accelerator_count)
            count += way.units * mine.accelerator_count
    return count > limit


def cheapest_usd(ways: Ways) -> float:
    """What all cost where each takes its cheapest way."""
    return sum(min(way.usd for way in own) for own in ways.values())


def _dearness(way: Way) -> tuple[float, bool, str]:
    """Of two that cost the same the one that is not a contract."""
    return way.usd, way.offer.term == CONTRACT, way.offer.name


def _kind(way: Way) -> str:
    return way.offer.accelerator


def _provider(way: Way) -> str:
    return way.offer.provider


def _lease(way: Way) -> str:
    return f"{way.offer.term == CONTRACT:d} {way.offer.name}"  # of equal ones the first is taken


def _fewest(ways: Ways, key: Callable[[Way], str], limit_usd: float, most: int | None = None) -> Ways:
    """The ways of the smallest set of keys within a limit, of equal sets the cheapest; all where none is."""
    keys = sorted({key(way) for own in ways.values() for way in own})
    costs = np.full((len(ways), len(keys)), inf)
    for row, own in enumerate(ways.values()):
        for way in own:
            column = keys.index(key(way))
            costs[row, column] = min(costs[row, column], way.usd)
    together = min(most or len(ways), len(ways), len(keys), MOST_TOGETHER)
    for count in range(together if limit_usd == inf else 1, together + 1):
        sets = np.array(list(combinations(range(len(keys)), count)))
        totals = costs[:, sets].min(axis=2).sum(axis=0)
        best = int(np.argmin(totals))
        if totals[best] <= limit_usd * (1.0 + ROUNDING) and totals[best] < inf:
            kept = {keys[each] for each in sets[best]}
            return {name: [way for way in own if key(way) in kept] for name, own in ways.items()}
    return ways
