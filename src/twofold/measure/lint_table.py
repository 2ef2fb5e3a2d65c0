"""What a lint reads and what it says: measured rows as columns of numbers, and findings about them.

The columns of each half stand here, with what they hold; physics and units are other files'.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from twofold.catalog.names import did_you_mean
from twofold.measure.results import RowFinding, Severity
from twofold.measure.truth import LARGEST, Row, number, read_rows, text
from twofold.perf.known import Half

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
Words = NDArray[np.str_]

RULES = Path(__file__).parent / "lint_rules.csv"
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
ABOUT = ("id", "source", "source_ref", "split", "tier", "notes")
"""Columns that say where a row comes from: they decide nothing and are not compared."""
NO_VALUE = {"-", "--", "n/a", "na", "nan", "none", "null", "unknown", "?"}
NUMBER_AT_START = re.compile(r"[<>~≈]?\s*(-?\d[\d_,  ]*(?:\.\d+)?(?:e[+-]?\d+)?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a truth table: what was run (counts, amounts, words), and what was measured."""

    counts: tuple[str, ...]
    amounts: tuple[str, ...]
    words: tuple[str, ...]
    measured: tuple[str, ...]
    may_be_zero: tuple[str, ...]

    @property
    def numbers(self) -> tuple[str, ...]:
        """Every column whose cells are numbers."""
        return (*self.counts, *self.amounts, *self.measured)

    @property
    def configuration(self) -> tuple[str, ...]:
        """Every column that says what was run."""
        return (*self.counts, *self.amounts, *self.words)

    @property
    def every(self) -> tuple[str, ...]:
        """Every column that something reads."""
        return (*self.configuration, *self.measured, *ABOUT)


TRAINING = Columns(
    counts=(
        *("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "experts", "experts_topk"),
        *("vocab", "seq_len", "gpus", "gpus_per_node", "dp", "tp", "pp", "cp", "ep", "vpp", "sp"),
        *("zero_stage", "micro_batch", "global_batch_seqs"),
    ),
    amounts=("params_total", "params_active"),
    words=(
        *("model", "arch", "gpu", "interconnect", "framework", "precision", "recompute", "adapter"),
        *("overlap_notes", "flops_counting"),
    ),
    measured=("step_time_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu", "peak_mem_gib"),
    may_be_zero=("sp", "zero_stage", "experts"),
)
INFERENCE = Columns(
    counts=("gpus_total", "tp", "pp", "ep", "dp", "prefill_workers", "decode_workers"),
    amounts=(
        *("isl_mean", "osl_mean", "concurrency", "request_rate_rps", "max_batch"),
        *("spec_decode", "prefix_cache"),
    ),
    words=(
        *("model", "gpu", "framework", "framework_version", "precision_weights", "precision_kv"),
        *("mode", "isl_dist"),
    ),
    measured=(
        *("ttft_p50_ms", "ttft_mean_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_mean_ms", "tpot_p99_ms"),
        *("e2e_p50_ms", "e2e_p99_ms", "output_tok_s", "output_tok_s_per_gpu", "total_tok_s"),
        *("tok_s_per_user", "requests_per_s", "watts_per_gpu", "joules_per_token", "mem_gib"),
    ),
    may_be_zero=("spec_decode", "prefix_cache"),
)
COLUMNS: dict[Half, Columns] = {"training": TRAINING, "inference": INFERENCE}


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of `lint_rules.csv`; message and hint show figures of a row, as `{mfu:.4g}`."""

    finding: RowFinding  # of no row yet; suspect where what it rests on need not be sure
    least_ratio: float | None  # of the second column to the first, where that is the rule


@cache
def lint_rules() -> dict[str, Rule]:
    """The rules by name, in the order of the table."""
    return {
        row["key"]: Rule(
            RowFinding(
                0,
                "",
                row["rule"],
                next((each for each in SEVERITIES if each == row["severity"]), "suspect"),
                tuple(row["columns"].split(";")),
                row["message"],
                row["hint"],
            ),
            number(row, "least_ratio"),
        )
        for row in read_rows(RULES)
    }


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one half, and their numbers by column; NaN where a cell is blank or cannot be used."""

    half: Half
    rows: Sequence[Row]
    numbers: dict[str, Values]

    def __getitem__(self, column: str) -> Values:
        """One column of numbers."""
        return self.numbers[column]

    def first(self, *columns: str) -> Values:
        """Per row the first of the columns that holds a number."""
        return first_known(*(self[column] for column in columns))

    def words(self, column: str) -> list[str]:
        """One column of text, in lower case."""
        return [text(row, column).lower() for row in self.rows]

    def find(
        self, key: str | Words, where: Mask, sure: Mask | None = None, **figures: Values
    ) -> list[RowFinding]:
        """One finding for each row of the mask, by one rule or by each row's own; columns are figures too."""
        found = []
        for i in (int(each) for each in np.flatnonzero(where)):
            told = lint_rules()[key if isinstance(key, str) else str(key[i])].finding
            severity: Severity = "impossible" if sure is not None and sure[i] else told.severity
            own = {name: values[i] for name, values in (self.numbers | figures).items()}
            message, hint = told.message.format(**own), told.hint.format(**own)
            found.append(self.finding(i, told.rule, severity, told.columns, message, hint))
        return found

    def finding(
        self, i: int, rule: str, severity: Severity, columns: tuple[str, ...], message: str, hint: str
    ) -> RowFinding:
        """A finding about row `i`; of the columns it names those that the row fills."""
        filled = tuple(column for column in columns if text(self.rows[i], column))
        return RowFinding(i + 2, text(self.rows[i], "id"), rule, severity, filled or columns, message, hint)


def first_known(*values: Values) -> Values:
    """Per row the first of the figures that is a number."""
    return reduce(lambda known, further: np.where(np.isnan(known), further, known), values)


def read_table(half: Half, rows: Sequence[Row]) -> tuple[Table, list[RowFinding]]:
    """The table, its unusable cells blanked, and a finding for each of them and for unknown columns.

    A misspelt column is worse than a missing one, for nobody misses it.
    """
    table = Table(half, [dict(row) for row in rows], {})
    known = COLUMNS[half].every
    findings = [
        RowFinding(
            1,
            "",
            "column",
            "note",
            (name,),
            f"nothing reads a column '{name}'",
            did_you_mean(name, known, "see `twofold predict --help` for the columns"),
        )
        for name in dict.fromkeys(name for row in rows for name in row)
        if name not in known and not name.startswith("pred_")
    ]
    for column in COLUMNS[half].numbers:
        values = table.numbers[column] = np.full(len(rows), np.nan)
        for i, row in enumerate(table.rows):
            if cell := text(row, column):
                read = _read_cell(COLUMNS[half], column, cell)
                if isinstance(read, float):
                    values[i] = read
                else:
                    row[column] = ""
                    findings.append(table.finding(i, "cell", read[0], (column,), *read[1:]))
    return table, findings


def _read_cell(columns: Columns, column: str, cell: str) -> float | tuple[Severity, str, str]:
    """The number in a cell, or how bad, what is wrong with it and what to write."""
    if cell.lower() in NO_VALUE:
        return "note", f"{column} is '{cell}', which is read as blank", "leave the cell blank"
    try:
        value = float(cell)
    except ValueError:
        start = NUMBER_AT_START.match(cell)
        bare = re.sub(r"[_,  ]", "", start[1]) if start else ""
        hint = f"write {bare} in the unit of the column's name" if bare else "write a number, or nothing"
        # 4,12 may be four and a bit, or four hundred and twelve.
        if re.fullmatch(r"-?\d+,(\d{1,2}|\d{4,})", cell):
            hint = f"write {cell.replace(',', '.')} or {bare}: a comma may mean either"
        return "impossible", f"{column} is '{cell}', which is no number", hint
    if not math.isfinite(value) or (abs(value) > LARGEST and column in columns.configuration):
        return "impossible", f"{column} is {cell}", "write a finite number, or nothing"
    if value < 0 or (value == 0 and column not in columns.may_be_zero):
        return "impossible", f"{column} is {cell}", "leave the cell blank where nobody knows it"
    if column in columns.counts and value != round(value):
        return "impossible", f"{column} is {cell}, which is no whole number", "counts are whole"
    return value
