"""`init`: the first spec, commented or inferred from what somebody runs already."""

from typing import Literal

from twofold.app.sources import names_of
from twofold.catalog import load_catalog
from twofold.contracts.spec import infer_spec, starter_spec


def starter(kind: Literal["chat", "train", "both"]) -> str:
    """A commented spec to begin with: `chat`, `train` or `both`."""
    return starter_spec(kind)


def infer(source: str) -> str:
    """The spec that a `vllm serve …` line, a request log or a Slurm accounting file lets infer."""
    return infer_spec(source, names_of(load_catalog()))
