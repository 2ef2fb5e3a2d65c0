"""What every fit hands over."""

from dataclasses import dataclass

from twofold.measure.blind import BlindRow
from twofold.perf import ConstantRow, Seen


@dataclass(frozen=True, slots=True)
class Fitted:
    """The rows that a fit owns, its constants where it did not see something, and what it has seen."""

    rows: list[ConstantRow]
    blind: tuple[BlindRow, ...] = ()
    seen: tuple[Seen, ...] = ()
