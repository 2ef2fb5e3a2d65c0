"""`check`: is a spec right?"""

from dataclasses import dataclass

from twofold.app.sources import SpecSource, load
from twofold.contracts import Default, Spec, defaults_used


@dataclass(frozen=True, slots=True)
class Checked:
    """A spec without errors, and what it left open."""

    spec: Spec
    defaults: tuple[Default, ...]

    @property
    def lines(self) -> list[str]:
        """What is planned, in one line, and how much of it is default."""
        runs, services = len(self.spec.training), len(self.spec.services)
        parts = [_counted(runs, "training run"), _counted(services, "service")]
        return [
            f"{self.spec.name}: {' and '.join(filter(None, parts))}; {len(self.defaults)} values are defaults"
        ]


def check(spec: SpecSource) -> Checked:
    """Read and validate a spec as `plan` would. Raises InputErrors with everything wrong, in one pass."""
    loaded = load(spec)
    return Checked(loaded.spec, defaults_used(loaded.spec))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}" if count else ""
