"""`simulate --sweep`: one key of a scenario at several values, each under the same seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from twofold import __version__
from twofold.contracts.results import Simulation, Sweep
from twofold.core import UsageError, to_data
from twofold.rehearse import swept
from twofold.report import Shown, sweep_lines

MISSED = 3  # exit code
VALUES_MAX = 24
HINT = "write for example `--sweep traffic.scale=0.5x,1x,1.5x`"


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """The key of a scenario and the texts that stand for its value."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Swept(Shown):
    """A sweep that shows itself."""

    data: Sweep

    @property
    def lines(self) -> tuple[str, ...]:
        """At most 100 columns each."""
        return tuple(sweep_lines(self.data))

    @property
    def as_data(self) -> Any:
        """The data, which carry their schema."""
        return to_data(self.data)

    @property
    def exit_code(self) -> int:
        """Whether the goals are met at any value."""
        return 0 if any(point.slos_met for point in self.data.points) else MISSED


def parse_sweep(text: str) -> SweepAxis:
    """`key=value,value,…`. Raises UsageError with what to write instead."""
    key, _, listed = text.partition("=")
    values = tuple(value.strip() for value in listed.split(","))
    if not key.strip() or len(values) < 2 or not all(values):
        raise UsageError(f"`--sweep {text}` names no key with two values or more", hint=HINT)
    if len(values) > VALUES_MAX:
        raise UsageError(f"{len(values)} values are too many for one sweep", hint=f"at most {VALUES_MAX}")
    if len(set(values)) < len(values):
        raise UsageError(f"`--sweep {text}` names a value twice", hint=HINT)
    return SweepAxis(key.strip(), values)


def sweep_of(axis: SweepAxis, runs: Sequence[Sequence[Simulation]]) -> Sweep:
    """The sweep of runs by value, then by seed; its version and plan are those of its runs."""
    made = swept(axis.key, axis.values, runs)
    first = runs[0][0]
    return replace(made, twofold=__version__, plan_digest=first.plan_digest, notes=first.notes)
