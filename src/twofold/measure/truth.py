"""Rows of a truth table, as text, numbers and words. What a row leaves blank is None, never 0.

The words are those that scores are grouped by, and whether the fits know a row's like: it is a cold start in
a known world when sources other than its own had its accelerator and its framework."""

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Model
from twofold.core.errors import InputError, Place, TableError, TwofoldError, UnknownNameError, unread
from twofold.perf.known import load_known
from twofold.perf.shape import model_kind
from twofold.training.stack import software_family

Row = dict[str, str]
T = TypeVar("T")

TABLE_HINT = "name a table of runs, as CSV in UTF-8"
LARGEST = 1e15  # of anything that a run is made of
ADDED = "added"  # a folder in a folder of tables: measurements of later days
KIN = ("mlperf-train", "mlperf", "aic-gap", "simumax")
"""Beginnings of names whose sources are one: who knows one release has as good as seen the next."""

METRICS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "training": ("step_time_s", "peak_mem_gib"),
        "inference": (
            "ttft_mean_ms", "ttft_p50_ms", "tpot_mean_ms", "tpot_p50_ms",
            "output_tok_s", "e2e_p50_ms", "e2e_p99_ms",
        ),
    }
)  # fmt: skip
"""What is measured of a row and predicted as `pred_…`."""
ENDS = ("", "_low", "_high", "_low_95", "_high_95")  # the middle, and the ranges of 80 % and 95 %


# A table without these columns has no row that says enough; the first half that it could be is meant.
NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"training": ("gpu", "gpus", "seq_len"), "inference": ("model", "gpu")}
)


def half_of(row: Row, path: Path, asked: str = "") -> str:
    """Which half a table belongs to, by its columns."""
    fitting = [half for half, columns in NEEDED.items() if all(name in row for name in columns)]
    if not fitting or (asked and asked not in fitting):
        half = asked if asked in NEEDED else "training"
        raise TableError(
            f"`{path.name}` is no table of {asked or 'training or inference'} runs",
            hint=f"a table of {half} runs needs at least {', '.join(NEEDED[half])}",
        )
    return asked or fitting[0]


def read_rows(path: Path) -> list[Row]:
    """Every row of a CSV file as text by column name; a short row's missing cells are blank.

    Raises InputError where a column stands twice, a row has more cells than the header, or commas separate
    nothing: each would put figures under the wrong name without a word.
    """

    def refused(what: str, line: int, hint: str) -> InputError:
        return InputError(what, place=Place(path.name, line, 1), hint=hint)

    rows = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            lines = csv.reader(handle, strict=True)
            header = next(lines, [])
            twice = sorted(name for name, count in Counter(header).items() if name and count > 1)
            if twice:
                what = f"'{path.name}' has two columns `{twice[0]}`"
                raise refused(what, 1, "remove one, or give it a name of its own")
            if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
                what = f"'{path.name}' separates its columns by other than commas"
                raise refused(what, 1, "save it as comma-separated values")
            for cells in lines:
                if any(cells[len(header) :]):
                    what = f"{len(cells)} cells where the header has {len(header)}"
                    raise refused(what, lines.line_num, "put a cell that holds a comma in quotes")
                if cells:
                    named = zip_longest(header, cells[: len(header)], fillvalue="")
                    rows.append({name: cell for name, cell in named if name})
    except OSError as error:
        raise unread(path, error, TABLE_HINT) from error
    except UnicodeDecodeError as error:
        raise InputError(f"'{path.name}' is not UTF-8 text", hint=TABLE_HINT) from error
    except csv.Error as error:
        what = "this is no CSV: a quotation mark is not closed, text follows one, or a cell is too long"
        raise refused(what, lines.line_num, 'write `"` around the whole cell, and `""` inside it') from error
    if not rows:
        raise InputError(f"'{path.name}' holds no rows", hint="the first line names the columns")
    return rows


def read_tables(folder: Path, name: str) -> list[Row]:
    """Every row of a table of a folder of measurements, and of the one that was added beside it later."""
    return [
        row for each in (folder / name, folder / ADDED / name) if each.is_file() for row in read_rows(each)
    ]


def source_of(row: Row) -> str:
    """Whose measurements they are: all releases and exports of one benchmark are one source."""
    name = text(row, "source")
    return next((kin for kin in KIN if name.startswith(kin)), name)


def read_each(rows: Sequence[Row], read: Callable[[int, Row], T]) -> tuple[dict[int, T], dict[int, str]]:
    """What is read of rows by their place, and the coded reason of each row that cannot be read."""
    found: dict[int, T] = {}
    refused: dict[int, str] = {}
    for place, row in enumerate(rows):
        try:
            found[place] = read(place, row)
        except TwofoldError as error:
            where = f"{error.place}: " if error.place else ""
            refused[place] = f"{error.code}: {where}{error.message}" + (
                f"; {error.hint}" if error.hint else ""
            )
    return found, refused


def refusal(half: str, reason: str) -> Row:
    """The columns of a row that is not predicted: all blank but the reason."""
    names = [f"pred_{name}{end}" for name in METRICS[half] for end in ENDS]
    names += ["pred_states_gib"] if half == "training" else []
    names += ["pred_basis", "pred_assumptions", "pred_group"]
    return dict.fromkeys(names, "") | {"pred_error": reason}


def number(row: Row, column: str) -> float | None:
    """The positive finite number in `column`, or None where it is blank or no such number."""
    value = signed_number(row, column)
    return value if value is not None and value > 0 else None


def signed_number(row: Row, column: str) -> float | None:
    """As `number`, zero and negatives included; nothing that is counted or timed is beyond `LARGEST`, or
    a part of 1 as small."""
    try:
        value = float(row.get(column, "") or "nan")
    except ValueError:
        return None
    return value if value == 0.0 or 1.0 / LARGEST <= abs(value) <= LARGEST else None


def count(row: Row, column: str, default: int) -> int:
    """The whole number in `column`, or `default` where it is blank or less than one."""
    value = number(row, column)
    return default if value is None else max(1, round(value))


def text(row: Row, column: str) -> str:
    """The cell without surrounding space; blank where the column is missing."""
    return (row.get(column) or "").strip()


def known_framework(name: str, catalog: Catalog) -> str:
    """What the catalogue calls a framework; another name stays. Raises UnknownNameError if misspelt."""
    try:
        return catalog.framework(name)
    except UnknownNameError as error:
        if error.hint.startswith("did you mean"):
            raise
        return name


def framework_of(row: Row) -> str:
    """What a training row's software is called, with a year where only that tells the stack.

    Why      Since Megatron-Core (0.5, 2024) runs name its release. Megatron-LM without one, on accelerators
             before Hopper, is that of the papers until 2023, whose scripts fused no attention by default.
    Limits   a later run on such accelerators that names no release is taken for an old one.
    """
    named = text(row, "framework")
    old = named.lower() == "megatron-lm" and text(row, "gpu").upper().startswith(("V100", "A100", "A800"))
    return f"{named} {UNNAMED_YEAR}" if old else named


def measured_figures(half: str, row: Row) -> list[tuple[str, float]]:
    """(predicted metric, measured value) of a row. A benchmark of ten requests per slot reports means."""
    figures: dict[str, float | None] = {}
    if half == "training":
        figures = {name: number(row, name) for name in METRICS[half]}
    else:
        closed = "uniform" in row.get("isl_dist", "") and row.get("mode") != "online"
        for metric in ("ttft", "tpot"):
            mean, middle = number(row, f"{metric}_mean_ms"), number(row, f"{metric}_p50_ms")
            as_mean = mean or (middle if closed else None)
            figures |= {f"{metric}_mean_ms": as_mean} if as_mean else {f"{metric}_p50_ms": middle}
        if not row.get("request_rate_rps"):  # there the rate that was asked for is what comes out
            figures["output_tok_s"] = number(row, "output_tok_s")
    return [(name, value) for name, value in figures.items() if value]


UNNAMED_YEAR = 2023
FACETS = ("source", "gpu", "framework", "arch", "phase")  # that scores can be grouped by
NARROW = {"fp8", "fp4"}  # precisions of training below 16 bits


@dataclass(frozen=True, slots=True)
class Facets:
    """One row in words; blank where it does not say."""

    source: str
    gpu: str  # the catalogue's name
    framework: str = ""  # family of training software, or engine
    arch: str = ""  # dense moe mla
    phase: str = ""  # training, how requests arrived, prefill or decode
    precision: str = ""  # 16 bits or 8 bits of a training run; the weights' format of a served one
    recompute: str = ""  # stated or blank
    known: str = ""  # yes: other sources brought its accelerator and its framework into the fits

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

    found = []
    for row in rows:
        source, gpu, training = source_of(row), gpu_of(text(row, "gpu")), half == "training"
        model, arch = model_of(text(row, "model")), ""
        if training and (text(row, "arch") or number(row, "experts")):  # as it states itself
            arch = "moe" if number(row, "experts") or text(row, "arch").lower() == "moe" else "dense"
        elif model is not None:
            arch = model_kind(model)
            arch = "moe" if training and arch == "mla" and model.experts else arch
        precision, framework = text(row, "precision").lower() or "bf16", framework_of(row)
        software = software_family(framework, precision) if training else framework.lower()
        bits = "8 bits" if precision in NARROW else "16 bits"
        found.append(
            Facets(
                source=source,
                gpu=gpu,
                framework=software,
                arch=arch,
                phase="training" if training else text(row, "mode").lower(),
                precision=bits if training else text(row, "precision_weights").lower(),
                recompute="stated" if text(row, "recompute") else "",
                known="yes" if is_known(half, source, gpu, software) else "",
            )
        )
    return found


def is_known(half: str, source: str, gpu: str, framework: str) -> bool:
    """Whether sources other than `source` had the accelerator, and whether they had the framework."""
    return all(
        _brought(half).get(part, set()) - {source} for part in (("gpu", gpu), ("framework", framework))
    )


def fitted_sources(half: str) -> frozenset[str]:
    """The sources whose rows a fit of this half saw."""
    return frozenset(source for row in load_known().seen if row.half == half for source in row.sources)


@cache
def _brought(half: str) -> dict[tuple[str, str], set[str]]:
    """Who brought each accelerator into the fits, and who each framework; engines of any era are one."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in load_known().seen:
        if row.half == half:
            for part in (("gpu", row.accelerator), ("framework", row.software.partition(" ")[0])):
                found.setdefault(part, set()).update(row.sources)
    return found
