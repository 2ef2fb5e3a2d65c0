"""What is found out about measured rows: scores by group, refusals, goals, the gate, findings of a lint."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from twofold.measure.scores import Score

Severity = Literal["impossible", "suspect", "note"]


class Column(StrEnum):
    """What the constants that predicted a row had seen."""

    SEEN = "seen"  # other configurations of its source
    LEFT_OUT = "left_out"  # every source but its own
    PRIORS = "priors"  # no row of training or serving
    CALIBRATED = "calibrated"  # as left out, then ten rows of the same user


@dataclass(frozen=True, slots=True)
class Figure:
    """What is measured and predicted as `pred_…`; of several columns the first that was measured counts."""

    half: str
    name: str
    title: str
    columns: tuple[str, ...]


FIGURES = (
    Figure("training", "step_time", "step time", ("step_time_s",)),
    Figure("training", "peak_memory", "peak memory", ("peak_mem_gib",)),
    Figure("inference", "ttft", "time to first token", ("ttft_mean_ms", "ttft_p50_ms")),
    Figure("inference", "tpot", "time per output token", ("tpot_mean_ms", "tpot_p50_ms")),
    Figure("inference", "output_rate", "output tokens/s", ("output_tok_s",)),
    Figure("inference", "e2e", "whole answer, median", ("e2e_p50_ms",)),
    Figure("inference", "e2e_p99", "whole answer, p99", ("e2e_p99_ms",)),
)


@dataclass(frozen=True, slots=True)
class Line:
    """The scores of one group of rows, per column."""

    half: str
    figure: str
    group: tuple[str, ...]
    basis: str  # stated or assumed
    scores: Mapping[Column, Score]


@dataclass(frozen=True, slots=True)
class Refusals:
    """Rows of one half that got no answer, by code, and those that a planner would not have run at all."""

    half: str
    rows: int
    by_code: Mapping[str, int]
    not_fitting: int  # refused as not fitting, although they ran


@dataclass(frozen=True, slots=True)
class Reached:
    """A goal's figure in one column. `missed_by` is 0 where it is met, None where no goal is set."""

    value: float | None
    rows: int
    otherwise: float | None  # errors: weighed the other way; regrets: the worst
    limit: float | None
    missed_by: float | None


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal and what each column reached."""

    title: str
    statistic: str
    at_least: bool
    reached: Mapping[Column, Reached]


@dataclass(frozen=True, slots=True)
class Moved:
    """A group whose figures are not the committed ones; `points` of the mean error, above 0 where worse."""

    name: str
    rows: int
    before: float
    after: float
    lost: int  # rows that were answered before

    @property
    def points(self) -> float:
        """How much worse, in percentage points."""
        return 100.0 * (self.after - self.before)


@dataclass(frozen=True, slots=True)
class Gate:
    """What moved, worst first; groups with other rows than committed; why it fails, blank where it holds."""

    compared: int
    moved: tuple[Moved, ...]
    unlike: tuple[str, ...]
    failure: str


@dataclass(frozen=True, slots=True)
class RowFinding:
    """One thing that is wrong, or odd, with one row.

    `line` counts the header as 1, so that it is the line of the file where no cell holds a line break.
    `impossible`: as it stands the row cannot be true. `suspect`: it can be, but rarely is. `note`: the rest.
    """

    line: int
    row_id: str  # blank where the row has none
    rule: str
    severity: Severity
    columns: tuple[str, ...]
    message: str  # what is wrong, with the figures
    hint: str  # what it should be, or the likely cause
