"""What requests got while a release was being tried: their p95, apart from those before and after."""

from dataclasses import dataclass, field
from math import inf

from twofold.rehearse.tenants import p95
from twofold.twin.serving import FleetResult, FleetWorld, RequestRecord, fault_types

FINISHED = "finished"
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
