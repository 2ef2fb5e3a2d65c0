"""`check` and `init`: is a spec right, and what is the first one that fits."""

from dataclasses import dataclass

from twofold.app.sources import SpecSource, load, names_of
from twofold.catalog import load_catalog
from twofold.contracts import Default, Spec, defaults_used, infer_spec, starter_spec


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


def starter(kind: str) -> str:
    """A commented spec to begin with: `chat`, `train` or `both`."""
    return starter_spec(kind)


def infer(source: str) -> str:
    """The spec that a `vllm serve …` line, a request log or a Slurm accounting file lets infer."""
    return infer_spec(source, names_of(load_catalog()))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}" if count else ""
