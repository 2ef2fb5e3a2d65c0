"""What is noted of the gateway: why it went, when it is back, which CPU tier holds requests up. Mutable."""

from pathlib import Path
from typing import Any

from twofold.live.control.memory import Memory
from twofold.live.control.service import ServiceSettings, gateway_changes


class GatewayNotes:
    """One gateway after the other, each event once."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.was_there = False  # when it was last looked for, and nobody ended it
        self._bottleneck: str | None = None

    def looked(
        self, gateway: dict[str, Any] | None, now_s: float, *, is_there: bool, is_ending: bool
    ) -> None:
        """One that is gone, and that nobody ended, died. `gateway` is what it last said."""
        if self.was_there and not is_there and not is_ending:
            self.died("its process ended", gateway, now_s)
        self.was_there = is_there and not is_ending

    def died(self, why: str, gateway: dict[str, Any] | None, now_s: float) -> None:
        """Or was ended for what it did not do."""
        beside = with_requests((gateway or {}).get("in_flight", 0))
        self._memory.down("gateway", f"the gateway died ({why}){beside}", now_s)

    def restarts(self, config: Path, settings: ServiceSettings, state: Path, now_s: float) -> None:
        """In peace, to be told something else than this configuration."""
        changes = gateway_changes(config, settings, state)
        self._memory.down("gateway", f"the gateway restarts: {changes} changed", now_s)

    def started(self) -> None:
        """The first one; of those after it is said when they are back."""
        if not self._memory.is_down("gateway"):
            self._memory.note("gateway", "the gateway started")

    def answers(self, tier: str | None, now_s: float, *, is_ending: bool) -> None:
        """It is back; and a CPU tier begins to hold requests up, or none does any more."""
        if not is_ending:  # one that ends answers until it has
            self._memory.back("gateway", now_s)
        if tier != self._bottleneck:
            before, self._bottleneck = self._bottleneck, tier
            what = f"{tier} is the bottleneck" if tier else f"{before} is none any more"
            self._memory.note("gateway", f"CPU tier {what}")


def with_requests(count: int) -> str:
    """What a death cost, as notes end with it."""
    return f", with {count} request{'s' if count != 1 else ''}" if count else ""
