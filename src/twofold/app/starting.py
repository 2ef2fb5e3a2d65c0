"""`init`: the first spec, commented or inferred from what somebody runs already."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from twofold.app.files import whole_file
from twofold.app.sources import names_of
from twofold.catalog import load_catalog
from twofold.contracts.spec import infer_spec, starter_spec
from twofold.report import Shown


@dataclass(frozen=True, slots=True)
class FirstSpec(Shown):
    """A spec to begin with, and the file that it was written to; None where it is only shown."""

    schema: ClassVar[str] = "twofold/init/1"
    file: str | None
    spec: str

    @property
    def lines(self) -> list[str]:
        """The spec itself, or what to do with its file."""
        if self.file is None:
            return self.spec.splitlines()
        return [f"wrote {self.file}", f"next: twofold check {self.file} · twofold plan {self.file}"]


def starter(kind: Literal["chat", "train", "both"]) -> str:
    """A commented spec to begin with: `chat`, `train` or `both`."""
    return starter_spec(kind)


def infer(source: str) -> str:
    """The spec that a `vllm serve …` line, a request log or a Slurm accounting file lets infer."""
    return infer_spec(source, names_of(load_catalog()))


def first_spec(
    kind: Literal["chat", "train", "both"] = "both", source: str | None = None, out: Path = Path("-")
) -> FirstSpec:
    """A starter, or with `source` what it lets infer, written to `out`; `-` writes no file."""
    text = starter(kind) if source is None else infer(source)
    if out == Path("-"):
        return FirstSpec(None, text)
    with whole_file(out) as handle:
        handle.write(text)
    return FirstSpec(str(out), text)
