"""What a measured row is about: the words that scores are grouped by, and whether the fits know its like.

A row is a cold start in a known world when sources other than its own had its accelerator and its framework.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from twofold.catalog import Catalog, Model
from twofold.core import TwofoldError
from twofold.inference import model_kind
from twofold.measure.truth import Row, number, text
from twofold.perf import load_known
from twofold.training import software_family

FACETS = ("source", "gpu", "framework", "arch", "phase")  # that scores can be grouped by
NARROW = {"fp8", "fp4"}  # precisions of training below 16 bits


@dataclass(frozen=True, slots=True)
class Facets:
    """One row in words; blank where it does not say."""

    source: str
    gpu: str  # the catalogue's name
    framework: str  # family of training software, or engine
    arch: str  # dense moe mla
    phase: str  # training, how requests arrived, prefill or decode
    precision: str  # 16 bits or 8 bits of a training run; the weights' format of a served one
    recompute: str  # stated or blank
    known: str  # yes: other sources brought its accelerator and its framework into the fits

    def key(self, names: Sequence[str]) -> tuple[str, ...]:
        """The facets `names`."""
        return tuple(getattr(self, name) for name in names)


def facets_of(half: str, rows: Iterable[Row], catalog: Catalog) -> list[Facets]:
    """The facets of each row; a name that the catalogue does not have stays as it is written."""

    @cache  # resolving a spelling takes longer than scoring its row
    def gpu_of(name: str) -> str:
        try:
            return catalog.benchmark_accelerator(name).name
        except TwofoldError:
            return name

    @cache
    def model_of(name: str) -> Model | None:
        try:
            return catalog.benchmark_model(name)
        except TwofoldError:
            return None

    return [_facets(half, row, gpu_of(text(row, "gpu")), model_of(text(row, "model"))) for row in rows]


def _facets(half: str, row: Row, gpu: str, model: Model | None) -> Facets:
    source, training = text(row, "source"), half == "training"
    precision, framework = text(row, "precision").lower() or "bf16", text(row, "framework")
    software = software_family(framework, precision) if training else framework.lower()
    bits = "8 bits" if precision in NARROW else "16 bits"
    return Facets(
        source=source,
        gpu=gpu,
        framework=software,
        arch=_arch(half, row, model),
        phase="training" if training else text(row, "mode").lower(),
        precision=bits if training else text(row, "precision_weights").lower(),
        recompute="stated" if text(row, "recompute") else "",
        known="yes" if is_known(half, source, gpu, software) else "",
    )


def _arch(half: str, row: Row, model: Model | None) -> str:
    """Of a training row as it states itself; else as the catalogue knows the model."""
    if half == "training" and (text(row, "arch") or number(row, "experts")):
        return "moe" if number(row, "experts") or text(row, "arch").lower() == "moe" else "dense"
    if model is None:
        return ""
    kind = model_kind(model)
    return "moe" if half == "training" and kind == "mla" and model.experts else kind


def is_known(half: str, source: str, gpu: str, framework: str) -> bool:
    """Whether sources other than `source` had the accelerator, and whether they had the framework."""
    gpus, frameworks = _brought(half)
    return bool(gpus.get(gpu, set()) - {source}) and bool(frameworks.get(framework, set()) - {source})


def fitted_sources(half: str) -> frozenset[str]:
    """The sources whose rows a fit of this half saw."""
    return frozenset(source for row in load_known().seen if row.half == half for source in row.sources)


@cache
def _brought(half: str) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Who brought each accelerator into the fits, and who each framework; engines of any era are one."""
    gpus: dict[str, set[str]] = {}
    frameworks: dict[str, set[str]] = {}
    for row in load_known().seen:
        if row.half == half:
            gpus.setdefault(row.accelerator, set()).update(row.sources)
            frameworks.setdefault(row.software.partition(" ")[0], set()).update(row.sources)
    return gpus, frameworks
