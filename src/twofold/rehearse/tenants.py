"""What is noted of requests as they end: what each tenant got, and what came while a release was tried."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from twofold.contracts.results import TenantFigures
from twofold.twin.serving import FleetResult, FleetWorld, RequestRecord, fault_types

FINISHED = "finished"


@dataclass(slots=True)
class TenantTally:
    """Requests by tenant as they end. Mutable; takes memory with each request."""

    warm_up_s: float
    _arrived: dict[str, int] = field(default_factory=dict)
    _ttft_s: dict[str, list[float]] = field(default_factory=dict)
    _e2e_s: dict[str, list[float]] = field(default_factory=dict)
    _served_tokens: dict[str, int] = field(default_factory=dict)

    def record(self, request: RequestRecord) -> None:
        """One request ended; what arrived in the warm-up is left out."""
        if request.arrival_s < self.warm_up_s:
            return
        name = request.tenant
        self._arrived[name] = self._arrived.get(name, 0) + 1
        if request.outcome == FINISHED:
            self._e2e_s.setdefault(name, []).append(request.e2e_s)
            tokens = request.input_tokens + request.output_tokens
            self._served_tokens[name] = self._served_tokens.get(name, 0) + tokens
            if request.ttft_s is not None:
                self._ttft_s.setdefault(name, []).append(request.ttft_s)

    def add(self, other: "TenantTally") -> None:
        """What another counted of other requests."""
        counted = ((self._arrived, other._arrived), (self._served_tokens, other._served_tokens))
        for counts, more in counted:
            for name, count in more.items():
                counts[name] = counts.get(name, 0) + count
        for own, theirs in ((self._ttft_s, other._ttft_s), (self._e2e_s, other._e2e_s)):
            for name, values in theirs.items():
                own.setdefault(name, []).extend(values)

    def figures(self) -> tuple[TenantFigures, ...]:
        """By name."""
        fair_tokens = fair_shares(self._asked_tokens(), float(sum(self._served_tokens.values())))
        return tuple(
            TenantFigures(
                name,
                count,
                len(self._e2e_s.get(name, [])),
                p95(self._ttft_s.get(name, [])),
                p95(self._e2e_s.get(name, [])),
                self._served_tokens.get(name, 0),
                self._served_tokens.get(name, 0) / fair_tokens[name] if fair_tokens[name] else None,
            )
            for name, count in sorted(self._arrived.items())
        )

    def _asked_tokens(self) -> dict[str, float]:
        """What each asked for, by name: those that were not answered as long as its answered ones.

        Why      nobody had less than its share because it asks for little at once, nor more because for much:
                 where all are answered, each has exactly what it asked for.
        Limits   a tenant of whom nothing was answered counts with the mean of all.
        """
        answered_count = sum(len(values) for values in self._e2e_s.values())
        common_tokens = sum(self._served_tokens.values()) / max(1, answered_count)
        asked_tokens: dict[str, float] = {}
        for name, count in self._arrived.items():
            own_count = len(self._e2e_s.get(name, []))
            # Multiplied first: who was answered all has asked for exactly what it was served.
            asked_tokens[name] = (
                self._served_tokens[name] * count / own_count if own_count else common_tokens * count
            )
        return asked_tokens


def fair_shares(asked: Mapping[str, float], served: float) -> dict[str, float]:
    """What each would get of so much, if nobody gets more than it asks for and the rest is equal.

    Formula  min(asked, level), with the level at which all shares make up what is served (max-min fairness)
    Source   Bertsekas & Gallager 1992, "Data networks", section 6.5

    >>> fair_shares({"greedy": 90.0, "modest": 10.0, "usual": 50.0}, 80.0)
    {'greedy': 35.0, 'modest': 10.0, 'usual': 35.0}
    """
    shares: dict[str, float] = {}
    left = served
    for number, name in enumerate(sorted(asked, key=lambda each: asked[each])):
        shares[name] = min(asked[name], left / (len(asked) - number))
        left -= shares[name]
    return {name: shares[name] for name in asked}


def p95(values: Sequence[float]) -> float | None:
    """The smallest value that 95 % do not exceed."""
    ordered = sorted(values)
    return ordered[ceil(0.95 * len(ordered)) - 1] if ordered else None


DECIDED = ("PromoteRelease", "RollBackRelease")


@dataclass(slots=True)
class RolloutTally:
    """Answers to what arrived from the first release on. Mutable; takes memory with each request."""

    from_s: float
    _answers: list[tuple[float, str, float, float | None, float]] = field(default_factory=list)

    def record(self, request: RequestRecord) -> None:
        """One request ended."""
        if request.arrival_s < self.from_s or request.outcome != FINISHED or request.ttft_s is None:
            return
        gaps = request.output_tokens - 1
        tpot_s = (request.e2e_s - request.ttft_s) / gaps if gaps > 0 else None
        self._answers.append((request.arrival_s, request.class_name, request.ttft_s, tpot_s, request.e2e_s))

    def p95_s(self, until_s: float = inf) -> dict[str, float]:
        """By class and metric, of what arrived until then: `chat.ttft`."""
        values: dict[str, list[float]] = {}
        for arrival_s, name, ttft_s, tpot_s, e2e_s in self._answers:
            if arrival_s <= until_s:
                for metric, value in (("ttft", ttft_s), ("tpot", tpot_s), ("e2e", e2e_s)):
                    if value is not None:
                        values.setdefault(f"{name}.{metric}", []).append(value)
        return {name: found for name, each in values.items() if (found := p95(each)) is not None}


def rollout_tally(world: FleetWorld) -> RolloutTally | None:
    """For a world in which something is released; its trial begins with the offer."""
    offered = [fault.at_s for fault in world.faults if isinstance(fault, fault_types.Release)]
    return RolloutTally(min(offered)) if offered else None


def decided_s(result: FleetResult) -> float:
    """When the release was promoted or rolled back; infinity: never."""
    return min(
        (result.first_effects_s[name] for name in DECIDED if name in result.first_effects_s), default=inf
    )
