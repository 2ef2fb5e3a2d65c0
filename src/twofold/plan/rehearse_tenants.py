"""What the tenants of a scenario got: figures of a run by who sent its requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from twofold.contracts import TenantFigures
from twofold.twin import RequestRecord

FINISHED = "finished"


@dataclass(slots=True)
class TenantTally:
    """Requests by tenant as they end. Mutable; takes memory with each request."""

    warm_up_s: float
    _arrived: dict[str, int] = field(default_factory=dict)
    _ttft_s: dict[str, list[float]] = field(default_factory=dict)
    _e2e_s: dict[str, list[float]] = field(default_factory=dict)

    def record(self, request: RequestRecord) -> None:
        """One request ended; what arrived in the warm-up is left out."""
        if request.arrival_s < self.warm_up_s:
            return
        name = request.tenant
        self._arrived[name] = self._arrived.get(name, 0) + 1
        if request.outcome == FINISHED:
            self._e2e_s.setdefault(name, []).append(request.e2e_s)
            if request.ttft_s is not None:
                self._ttft_s.setdefault(name, []).append(request.ttft_s)

    def add(self, other: "TenantTally") -> None:
        """What another counted of other requests."""
        for name, count in other._arrived.items():
            self._arrived[name] = self._arrived.get(name, 0) + count
        for own, theirs in ((self._ttft_s, other._ttft_s), (self._e2e_s, other._e2e_s)):
            for name, values in theirs.items():
                own.setdefault(name, []).extend(values)

    def figures(self) -> tuple[TenantFigures, ...]:
        """By name."""
        return tuple(
            TenantFigures(
                name,
                count,
                len(self._e2e_s.get(name, [])),
                p95(self._ttft_s.get(name, [])),
                p95(self._e2e_s.get(name, [])),
            )
            for name, count in sorted(self._arrived.items())
        )


def p95(values: Sequence[float]) -> float | None:
    """The smallest value that 95 % do not exceed."""
    ordered = sorted(values)
    return ordered[ceil(0.95 * len(ordered)) - 1] if ordered else None
