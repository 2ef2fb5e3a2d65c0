"""Separate pools for requests that cannot wait and for those that can, and when one may use the other's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolRules:
    """Two pools. A latency-critical request overflows into the bulk pool when its own has no room; a bulk
    request borrows from the latency pool only while that is at most `borrow_fraction` full: the rest of it is
    the reserve that the pools were parted for."""

    latency_pool: str = "latency"
    bulk_pool: str = "bulk"
    bulk_classes: tuple[str, ...] = ()  # every other class is latency-critical
    borrow_fraction: float = 0.5

    def __post_init__(self) -> None:
        assert self.latency_pool != self.bulk_pool and 0 <= self.borrow_fraction <= 1, self


def pools_for(rules: PoolRules, class_name: str) -> tuple[tuple[str, float], ...]:
    """The pools that a class may use, in order, each with how full it may be for that."""
    if class_name in rules.bulk_classes:
        return (rules.bulk_pool, 1.0), (rules.latency_pool, rules.borrow_fraction)
    return (rules.latency_pool, 1.0), (rules.bulk_pool, 1.0)


def home_pool(rules: PoolRules | None, class_name: str) -> str:
    """The pool that a class is sized in; without rules, the one that has no name."""
    return "" if rules is None else pools_for(rules, class_name)[0][0]
