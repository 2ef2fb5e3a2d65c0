"""What every machine is to its driver, a simulator's heap or a server's loop."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, dataclass_transform

T = TypeVar("T")
ToldT = TypeVar("ToldT", contravariant=True)
DoneT = TypeVar("DoneT")


class Machine(Protocol[ToldT, DoneT]):
    """State that only events change: no clock, socket, thread, file or randomness of its own."""

    def handle(self, event: ToldT, now_s: float) -> list[DoneT]:
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


EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")


@record
class Entry(Generic[EventT, EffectT]):
    """One line of a machine's log: what came, when, and what the machine answered."""

    now_s: float  # as the driver gave it
    event: EventT
    effects: tuple[EffectT, ...]
