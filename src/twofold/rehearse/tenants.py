"""What is noted of requests as they end: what each tenant got, and what came while a release was tried."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from twofold.contracts.results import simulated
from twofold.policy.gate.limits import fair_level
from twofold.twin.serving import fleet_types

FINISHED = "finished"
Answer = tuple[float | None, float, int]  # seconds to its first token and to its last, tokens with the prompt


@dataclass(slots=True)
class TenantTally:
    """Requests by tenant as they end. Mutable; takes memory with each request."""

    warm_up_s: float
    _seen: dict[str, list[Answer | None]] = field(default_factory=dict)  # None: it was not answered

    def record(self, request: fleet_types.RequestRecord) -> None:
        """One request ended; what arrived in the warm-up is left out."""
        if request.arrival_s >= self.warm_up_s:
            tokens = request.input_tokens + request.output_tokens
            answer = (request.ttft_s, request.e2e_s, tokens) if request.outcome == FINISHED else None
            self._seen.setdefault(request.tenant, []).append(answer)

    def add(self, other: "TenantTally") -> None:
        """What another counted of other requests."""
        for name, seen in other._seen.items():
            self._seen.setdefault(name, []).extend(seen)

    def figures(self) -> tuple[simulated.TenantFigures, ...]:
        """By name; what each was served stands against its fair share of what all were.

        Who was not answered has asked for as much as its answered requests did, in the mean.

        Why      nobody had less than its share because it asks for little at once, nor more because for much:
                 where all are answered, each has exactly what it asked for.
        Limits   a tenant of whom nothing was answered counts with the mean of all.
        """
        answered = {name: [each for each in seen if each] for name, seen in self._seen.items()}
        served = {name: sum(tokens for _, _, tokens in each) for name, each in answered.items()}
        common_tokens = sum(served.values()) / max(1, sum(map(len, answered.values())))
        asked = {}
        for name, seen in self._seen.items():  # multiplied first: exact where all was answered
            own_count = len(answered[name])
            asked[name] = served[name] * len(seen) / own_count if own_count else common_tokens * len(seen)
        level_tokens = fair_level(asked.values(), float(sum(served.values())))
        fair_tokens = {name: min(each, level_tokens) for name, each in asked.items()}
        return tuple(
            simulated.TenantFigures(
                name,
                len(seen),
                len(answered[name]),
                p95([ttft_s for ttft_s, _, _ in answered[name] if ttft_s is not None]),
                p95([e2e_s for _, e2e_s, _ in answered[name]]),
                served[name],
                served[name] / fair_tokens[name] if fair_tokens[name] else None,
            )
            for name, seen in sorted(self._seen.items())
        )


def p95(values: Sequence[float]) -> float | None:
    """The smallest value that 95 % do not exceed."""
    ordered = sorted(values)
    return ordered[ceil(0.95 * len(ordered)) - 1] if ordered else None


DECIDED = ("PromoteRelease", "RollBackRelease")  # effects with which the trial of a release ends


@dataclass(slots=True)
class RolloutTally:
    """Answers to what arrived from the first release on. Mutable; takes memory with each request."""

    from_s: float
    _answers: list[tuple[float, str, float, float | None, float]] = field(default_factory=list)

    def record(self, request: fleet_types.RequestRecord) -> None:
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
