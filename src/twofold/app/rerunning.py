"""`registry rerun`: a version is trained again from its lineage, and its weights are compared."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from twofold.core.extras import require_extra
from twofold.live.registry.registry import Registry
from twofold.live.training import rerun
from twofold.report.answers import Shown
from twofold.report.registry import rerun_lines


@dataclass(frozen=True, slots=True)
class Rerun(Shown):
    """What a second training came to. Exits 3 where its weights are other."""

    schema = "twofold/rerun/1"
    version: str
    weights_sha256: str
    again_sha256: str
    differences: tuple[rerun.Difference, ...]  # of the two lineages

    @property
    def lines(self) -> list[str]:
        """Whether the weights are equal, then what else is other."""
        told = [(each.what, each.was, each.found) for each in self.differences]
        return rerun_lines(self.version, self.weights_sha256, self.again_sha256, told)

    @property
    def exit_code(self) -> int:
        return 0 if self.weights_sha256 == self.again_sha256 else 3


def rerun_version(reference: str, registry: Path, data: str, tell: Callable[[str], None]) -> Rerun:
    """Train a version again from its lineage alone.

    Raises MissingExtraError without `train`, ValueRefusedError where inputs are gone, AlteredError where the
    data is other than it was.
    """
    require_extra("train", "live")
    opened = Registry(registry)
    described = opened.trusted(reference)
    text, facts = described.version.text, described.stored.facts
    with tempfile.TemporaryDirectory() as kept:
        first = Path(kept) / "first"
        opened.pull(text, first)
        tell(f"train {text} again")
        made, differences = rerun.trained_again(first, Path(kept) / "again", data, tell)
        return Rerun(text, str(facts["weights_sha256"]), opened.weights_of(made), differences)
