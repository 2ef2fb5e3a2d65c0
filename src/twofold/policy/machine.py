"""What every machine is to its driver, a simulator's heap or a server's loop, and what both machines have."""

from dataclasses import dataclass
from typing import Protocol, TypeVar, dataclass_transform

T = TypeVar("T")
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


@dataclass_transform(frozen_default=True)
def record(made: type[T]) -> type[T]:
    """Slots, equality and a hash by value. Writing to a field is refused by the type checker alone.

    # HOT: per event and effect; `frozen=True` sets each field through `object.__setattr__`, which made the
    # making of a Send 2.9 times slower: bench/policy.py
    """
    return dataclass(slots=True, unsafe_hash=True)(made)


@record
class Woke:
    """The time that `wake_at_s` named has come."""
