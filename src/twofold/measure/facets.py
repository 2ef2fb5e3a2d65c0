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
    names = _Names(half, catalog)
    return [names.facets(row) for row in rows]


class _Names:
    """Looks each spelling up once: resolving one takes longer than scoring its row. Holds a cache."""

    def __init__(self, half: str, catalog: Catalog) -> None:
        self._half, self._catalog = half, catalog
        self._gpus: dict[str, str] = {}
        self._models: dict[str, Model | None] = {}

    def facets(self, row: Row) -> Facets:
        source, gpu = text(row, "source"), self._gpu(text(row, "gpu"))
        if self._half == "training":
            precision = text(row, "precision").lower() or "bf16"
            framework = software_family(text(row, "framework"), precision)
            precision = "8 bits" if precision in NARROW else "16 bits"
            phase = "training"
        else:
            framework = text(row, "framework").lower()
            precision, phase = text(row, "precision_weights").lower(), text(row, "mode").lower()
        return Facets(
            source=source,
            gpu=gpu,
            framework=framework,
            arch=self._arch(row),
            phase=phase,
            precision=precision,
            recompute="stated" if text(row, "recompute") else "",
            known="yes" if is_known(self._half, source, gpu, framework) else "",
        )

    def _gpu(self, name: str) -> str:
        if name not in self._gpus:
            try:
                self._gpus[name] = self._catalog.benchmark_accelerator(name).name
            except TwofoldError:
                self._gpus[name] = name
        return self._gpus[name]

    def _arch(self, row: Row) -> str:
        """Of a training row as it states itself; else as the catalogue knows the model."""
        if self._half == "training" and (text(row, "arch") or number(row, "experts")):
            return "moe" if number(row, "experts") or text(row, "arch").lower() == "moe" else "dense"
        model = self._model(text(row, "model"))
        if model is None:
            return ""
        kind = model_kind(model)
        return "moe" if self._half == "training" and kind == "mla" and model.experts else kind

    def _model(self, name: str) -> Model | None:
        if name not in self._models:
            try:
                self._models[name] = self._catalog.benchmark_model(name)
            except TwofoldError:
                self._models[name] = None
        return self._models[name]


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
