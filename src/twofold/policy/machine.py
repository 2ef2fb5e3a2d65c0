"""What every machine is to its driver, be it a simulator's heap or a server's loop."""

from typing import Protocol, TypeVar

EventT = TypeVar("EventT", contravariant=True)
EffectT = TypeVar("EffectT")


class Machine(Protocol[EventT, EffectT]):
    """State that only events change: no clock, socket, thread, file or randomness of its own."""

    def handle(self, event: EventT, now_s: float) -> list[EffectT]:
        """Fold one event in; what is returned is to be done, in this order."""
        ...

    def wake_at_s(self) -> float | None:
        """When the driver is to send Woke, if nothing else comes first; None: nothing to wait for."""
        ...
