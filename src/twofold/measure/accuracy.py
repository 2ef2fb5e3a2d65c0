"""How far predictions lie from published measurements, by source: writes docs/accuracy.md.

    python -m twofold.measure.accuracy TRUTH_FOLDER PAGE.md

Rows of tiers A and B are scored; the fit saw them, so the page also says how left-out sources fare. Every
source weighs the same in the means, however many rows it has.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold.catalog import load_catalog
from twofold.measure.left_out import LeftOut, read_left_out
from twofold.measure.predict_inference import predict_inference
from twofold.measure.predict_training import predict_training
from twofold.measure.truth import number, read_rows
from twofold.perf import load_constants

SCORED_TIERS = {"A", "B"}
# Their unnamed statistic behaves as a mean over the run, its first burst included.
TTFT_IS_MEAN = {"inferencex"}
Row = dict[str, str]
Triple = tuple[float, float, float, float]  # measured, predicted, low, high


@dataclass(frozen=True, slots=True)
class Figure:
    """A predicted column, the measured one it answers, and its heading."""

    title: str
    measured: str
    predicted: str


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of one group of rows; fractions of the measured value."""

    rows: int
    mean_error: float
    median_error: float
    bias: float
    coverage: float
    width: float  # median of high / low


TRAINING = (
    Figure("Step time", "step_time_s", "pred_step_time_s"),
    Figure("Peak memory", "peak_mem_gib", "pred_peak_mem_gib"),
)
INFERENCE = (
    Figure("TTFT, mean", "ttft_mean_ms", "pred_ttft_mean_ms"),
    Figure("TTFT, median", "ttft_p50_ms", "pred_ttft_p50_ms"),
    Figure("TPOT, mean", "tpot_mean_ms", "pred_tpot_mean_ms"),
    Figure("TPOT, median", "tpot_p50_ms", "pred_tpot_p50_ms"),
    Figure("Output tokens/s", "output_tok_s", "pred_output_tok_s"),
)


def score(triples: Sequence[Triple]) -> Score:
    """Mean and median absolute error, geometric bias, share inside the 80 % range, and its width."""
    measured, predicted, low, high = np.array(triples).T
    error = np.abs(predicted / measured - 1.0)
    return Score(
        rows=len(triples),
        mean_error=float(error.mean()),
        median_error=float(np.median(error)),
        bias=float(np.exp(np.mean(np.log(predicted / measured))) - 1.0),
        coverage=float(np.mean((low <= measured) & (measured <= high))),
        width=float(np.median(high / low)),
    )


def by_source(rows: Sequence[Row], figure: Figure) -> dict[str, list[Triple]]:
    """The scored rows that hold both the measurement and an answer, grouped by source."""
    groups: dict[str, list[Triple]] = {}
    for row in rows:
        measured, middle, low, high = (
            number(row, name)
            for name in (
                figure.measured,
                figure.predicted,
                *(figure.predicted + end for end in ("_low", "_high")),
            )
        )
        if row.get("tier", "A") in SCORED_TIERS and measured and middle and low and high:
            groups.setdefault(row.get("source", ""), []).append((measured, middle, low, high))
    return groups


def table(rows: Sequence[Row], figure: Figure) -> list[str]:
    """One Markdown table: a line per source, then the mean over sources."""
    scores = {source: score(triples) for source, triples in sorted(by_source(rows, figure).items())}
    lines = [
        f"### {figure.title}",
        "",
        "| source | rows | mean error | median error | bias | in the 80 % range | high / low |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    lines += [f"| {source} | {_cells(each)} |" for source, each in scores.items()]
    if scores:
        values = list(scores.values())
        means = [
            np.mean([getattr(s, k) for s in values])
            for k in ("mean_error", "median_error", "bias", "coverage", "width")
        ]
        every = Score(sum(s.rows for s in values), *map(float, means))
        lines.append(f"| **mean of sources** | {_cells(every)} |")
    return [*lines, ""]


def _cells(s: Score) -> str:
    return (
        f"{s.rows} | {s.mean_error:.1%} | {s.median_error:.1%} | {s.bias:+.1%} | {s.coverage:.0%} "
        f"| {s.width:.2f}"
    )


def answered(rows: Sequence[Row]) -> list[str]:
    """How many rows were answered, from what basis, and why others were refused."""
    reasons: dict[str, int] = {}
    for row in rows:
        reason = row.get("pred_error") or f"answered, {row.get('pred_basis')}"
        reasons[reason] = reasons.get(reason, 0) + 1
    lines = ["| outcome | rows |", "| --- | --: |"]
    return [*lines, *(f"| {reason} | {count} |" for reason, count in sorted(reasons.items())), ""]


def means_where_they_are(rows: Sequence[Row]) -> list[Row]:
    """The rows with TTFT in the mean's column for the sources whose statistic behaves as a mean."""
    return [
        row | {"ttft_mean_ms": row["ttft_p50_ms"], "ttft_p50_ms": ""}
        if row.get("source") in TTFT_IS_MEAN and not row.get("ttft_mean_ms")
        else row
        for row in rows
    ]


def page(truth: Path) -> str:
    """The whole page as Markdown."""
    catalog, constants = load_catalog(), load_constants()
    halves: list[tuple[str, str, tuple[Figure, ...], Callable[..., list[Row]]]] = [
        ("Training", "training.csv", TRAINING, predict_training),
        ("Inference", "inference.csv", INFERENCE, predict_inference),
    ]
    lines = [HEAD]
    for title, file, figures, predict in halves:
        rows = read_rows(truth / file)
        joined = [row | answer for row, answer in zip(rows, predict(rows, catalog, constants), strict=True)]
        joined = means_where_they_are(joined) if title == "Inference" else joined
        lines += [f"## {title}", "", *answered(joined)]
        for figure in figures:
            lines += table(joined, figure)
        lines += left_out_table([line for line in read_left_out() if line.half == title.lower()])
    return "\n".join(lines)


def left_out_table(left_out: Sequence[LeftOut]) -> list[str]:
    """One Markdown table of sources that the fit never saw, a mean over sources after each figure."""
    lines = [
        "### Sources left out of the fit, one at a time, from a cold start",
        "",
        "| figure | source | models | rows | mean error | median error | bias |",
        "| --- | --- | --- | --: | --: | --: | --: |",
    ]
    for figure in dict.fromkeys(line.figure for line in left_out):
        inside = [line for line in left_out if line.figure == figure]
        lines += [
            f"| {figure} | {x.source} | {x.kind} | {x.rows} | {x.mean_error:.1%} | {x.median_error:.1%} "
            f"| {x.bias:+.1%} |"
            for x in inside
        ]
        for kind in dict.fromkeys(line.kind for line in inside):
            of_kind = [line for line in inside if line.kind == kind]
            mean, median, bias = (
                float(np.mean([getattr(x, name) for x in of_kind]))
                for name in ("mean_error", "median_error", "bias")
            )
            rows = sum(x.rows for x in of_kind)
            numbers = f"{rows} | {mean:.1%} | {median:.1%} | {bias:+.1%}"
            lines.append(f"| {figure} | **mean of sources** | {kind} | {numbers} |")
    return [*lines, ""]


HEAD = """# Accuracy

Written by `make accuracy`; do not edit. Errors of `twofold predict` on published measurements (tiers A and B)
by source; a mean of sources weighs each source the same.

The first tables of each half are errors on rows that the constants were fitted on. The last table
predicts each source by a fit that never saw it, written by `make fit`; large sources are thinned there.
It is nearer to what an unseen source would show, but still flatters: which terms, software eras and
formats the models know was chosen while looking at these same sources. Those errors also made the 80 %
ranges, whose coverage above it is therefore not independent; coverage on unseen sources was not
measured.

Others, by their makers' figures on rows of their own choice: Calculon 3.7 % (8 dense A100 points), vTrain
8.4 % on one node and 14.7 % on several, SimuMax 5.6 % (43 B200 rows), AIConfigurator 31 % TPOT and 52 % TTFT
(728 InferenceX rows), BLIS 6.7 % end to end (36 configurations).
"""


def main() -> None:
    """Write the page."""
    truth, out = map(Path, sys.argv[1:])
    out.write_text(page(truth), "utf-8")


if __name__ == "__main__":
    main()
