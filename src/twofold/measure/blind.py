"""Predictions of either half, also by constants of fits that did not see something.

`validate` predicts each row by constants that never saw its source, its fold of configurations, or any row
at all. That is the honest error of a row that nobody has shown to the fit. The fits write all of them beside
themselves, in `fits/` of a checkout; what ships are those that the packaged rows ask for, and the priors.
"""

import csv
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from twofold.catalog.catalog import Catalog
from twofold.core import errors
from twofold.core.estimate import Estimate, Source
from twofold.measure.predict_inference import predict_inference
from twofold.measure.predict_training import predict_training
from twofold.measure.truth import Row, source_of, text
from twofold.perf.constants import ConstantRow, Constants
from twofold.perf.known import Known, load_known

ALL = Path(__file__).parents[3] / "fits" / "blind.csv"  # of a checkout
OF_THE_SAMPLE = Path(__file__).parent / "sample" / "blind.csv"  # all that its rows ask for, and no more
PRIORS = Path(__file__).parent / "priors.csv"
FOLD_COUNT = 4
EVERYTHING = "everything"  # no row was seen: the priors alone
SPREAD = "training_memory_spread_factor"  # an upper end of memory ranges, by which layouts must fit

# What makes a configuration. Loads and releases of one configuration stay in one fold: it is unseen whole.
CONFIGURATION: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "training": (
            "model", "layers", "hidden", "seq_len", "gpu", "gpus", "precision", "dp", "tp", "pp", "cp", "ep",
            "vpp", "zero_stage", "micro_batch", "global_batch_seqs", "recompute",
        ),
        "inference": (
            "model", "gpu", "gpus_total", "framework", "precision_weights", "tp", "pp", "ep", "dp", "mode",
            "isl_mean", "osl_mean", "isl_dist",
        ),
    }
)  # fmt: skip


Predict = Callable[[Sequence[Row], Catalog, Constants, Known], list[Row]]
"""Rows with `pred_…` columns, each once and in order; `Known` is what the fit of these constants has seen."""
PREDICT: Mapping[str, Predict] = MappingProxyType(
    {"training": predict_training, "inference": predict_inference}
)


@dataclass(frozen=True, slots=True)
class BlindRow:
    """One constant of a fit that did not see `hidden`."""

    half: str  # training or inference
    hidden: str  # source=… fold=… everything
    name: str
    scope: str
    estimate: Estimate


def hidden_source(row: Row) -> str:
    """What hides the row's source."""
    return f"source={source_of(row)}"


def fold_of(row: Row) -> str:
    """What hides the row's configuration: one of `FOLD_COUNT` folds, the same wherever the row stands."""
    half = "training" if "seq_len" in row else "inference"
    told = "|".join(text(row, column) for column in CONFIGURATION[half])
    return f"fold={zlib.crc32(told.encode()) % FOLD_COUNT}"


def all_hidden(_row: Row) -> str:
    """What hides every row: the priors alone answer."""
    return EVERYTHING


def kept_blind() -> Path:
    """The table for rows other than the packaged ones: all fits in a checkout, elsewhere the priors alone."""
    return ALL if ALL.exists() else PRIORS


def hidden_constants(half: str, hidden: str, constants: Constants, blind: Path) -> Constants:
    """`constants` with those of the fit that did not see `hidden`; as they are where `blind` has none of it.

    Ranges that the hidden rows shaped go with them.
    """
    assert hidden == EVERYTHING or hidden.startswith(("source=", "fold=")), hidden
    found = read_blind(blind).get((half, hidden), ())
    if not found:
        return constants
    if any(made_by_ranges(row.name) for row in found):
        word = "training" if half == "training" else "serving"
        kept = [row for row in constants.rows if not (made_by_ranges(row.name) and word in row.name)]
        constants = Constants.of(constants.version, kept)
    elif half == "training":  # no range of its own, but what fits must not know the hidden rows either
        kept = [row for row in constants.rows if row.name != SPREAD]
        constants = Constants.of(constants.version, [*kept, unfitted_spread()])
    old = {(row.name, row.scope): row for row in constants.rows}
    laid = []
    for row in found:
        told, before = row.estimate, old.get((row.name, row.scope))
        if before is None:
            ends = told.value, told.low, told.high, told.unit, told.source
            before = ConstantRow(*ends, name=row.name, scope=row.scope, rows=0, fitted_by=half, note="blind")
        laid.append(replace(before, value=told.value, low=told.low, high=told.high))
    return constants.with_rows(laid)


def made_by_ranges(name: str) -> bool:
    """Whether the fit of ranges makes this constant, and no other."""
    return name.startswith("interval_") or name == SPREAD


def unfitted_spread() -> ConstantRow:
    """How far memory may exceed its middle, before any row was seen."""
    ends, note = (1.2, 1.0, 1.5, "ratio", Source.ASSUMED), "before any fit"
    return ConstantRow(*ends, name=SPREAD, scope="", rows=0, fitted_by="ranges", note=note)


def predict_blind(
    half: str,
    rows: Sequence[Row],
    catalog: Catalog,
    constants: Constants,
    hidden_of: Callable[[Row], str],
    blind: Path,
    known: Known | None = None,
) -> list[Row]:
    """As `predict_training` or `predict_inference`, each row by those of `blind` that did not see it."""
    known = known or load_known()
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(hidden_of(row), []).append(place)
    answers: list[Row] = [{} for _ in rows]
    for hidden, here in places.items():
        told = hidden_constants(half, hidden, constants, blind)
        answered = PREDICT[half]([rows[place] for place in here], catalog, told, known.without(hidden))
        for place, answer in zip(here, answered, strict=True):
            answers[place] = answer
    return answers


@cache
def read_blind(path: Path) -> Mapping[tuple[str, str], tuple[BlindRow, ...]]:
    """The rows by half and by what was hidden."""
    found: dict[tuple[str, str], list[BlindRow]] = {}
    seen: set[tuple[str, ...]] = set()
    with path.open(newline="", encoding="utf-8") as handle:
        for cells in csv.DictReader(handle):
            estimate = Estimate(float(cells["value"]), float(cells["low"]), float(cells["high"]), "ratio")
            row = BlindRow(cells["half"], cells["hidden"], cells["name"], cells["scope"], estimate)
            key = (row.half, row.hidden, row.name, row.scope)
            if key in seen:
                raise errors.ConstantsError(
                    f"'{path.name}' has two rows of '{row.name}' without {row.hidden}"
                )
            seen.add(key)
            found.setdefault((row.half, row.hidden), []).append(row)
    return MappingProxyType({key: tuple(rows) for key, rows in found.items()})
