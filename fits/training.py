"""Fit what training software adds to the kernels: overlap, fusion, host time, fabrics, memory.

Kernel efficiencies stay as the kernel tables fixed them. A fit minimises a robust loss of log(predicted /
measured) over rows of tiers A and B, every source with the same weight, with a ridge toward the priors of
`training_priors.csv` and toward each constant's parent. Fits that leave a source or a fold out start cold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fits.fitted import Fitted, rounded
from fits.robust import Values, solve
from fits.training_priors import Prior, read_priors, ridge_of
from fits.training_truth import MEMORY, STEP, Columns, Truth, columns_of, log_errors, read_truth
from twofold.catalog.catalog import load_catalog
from twofold.core.estimate import Estimate, Source
from twofold.measure.blind import EVERYTHING, BlindRow
from twofold.measure.truth import read_tables, text
from twofold.perf.constants import ConstantRow, Constants

FITTED_BY = "training"
NOISE = {STEP: 0.05, MEMORY: 0.10}  # log error of a row that the model explains: releases differ by 2-5 %
EFFECTIVE_ROWS = {STEP: 48, MEMORY: 12}  # a source counts for at most this many rows
FELT = 0.01  # a row tells a constant if its prediction moves at least this much of what the constant moves
SPREAD = "training_memory_spread_factor"
KINDS = ("yes", "memory")  # of fitted priors: those of step times, those of peak memory


@dataclass(frozen=True, slots=True)
class Told:
    """What one constant rests on: how many rows, of which sources."""

    rows: int
    sources: tuple[str, ...]


def fit(truth: Path, constants: Constants) -> Fitted:
    """Every constant that training owns, fitted on `truth`, and again without each source and each fold."""
    catalog = load_catalog()
    rows = [row for row in read_tables(truth, "training.csv") if text(row, "tier") in ("A", "B")]
    priors = read_priors()
    start = constants_of(priors, constants)
    truths = {
        kind: read_truth(rows, column, catalog, start)
        for kind, column in zip(KINDS, (STEP, MEMORY), strict=True)
    }
    fits = {hidden: fit_without(priors, truths, hidden) for hidden in ("", *hidden_sets(truths))}
    told = told_by(fits[""], truths)
    out = [constant_row(*pair, told) for pair in zip(fits[""], priors, strict=True) if pair[0].name != SPREAD]
    fits[EVERYTHING] = priors
    blind = [row for hidden, fitted in fits.items() if hidden for row in blind_rows(hidden, fitted, priors)]
    return Fitted(out, tuple(blind))


def constants_of(priors: Sequence[Prior], constants: Constants) -> Constants:
    """The table with the priors in place of all that training owns, so that every fit starts cold."""
    kept = Constants.of(
        constants.version,
        [row for row in constants.rows if row.fitted_by != FITTED_BY and row.name != SPREAD],
    )
    return kept.with_rows([constant_row(prior, prior, {}) for prior in priors])


def hidden_sets(truths: Mapping[str, Truth]) -> tuple[str, ...]:
    """What is left out in turn: each source, each fold."""
    sources = sorted({f"source={source}" for truth in truths.values() for source in truth.source})
    folds = sorted({str(fold) for truth in truths.values() for fold in truth.fold})
    return (*sources, *folds)


def fit_without(priors: Sequence[Prior], truths: Mapping[str, Truth], hidden: str) -> list[Prior]:
    """The priors with their fitted values, from a cold start, rows of `hidden` unseen; "" hides nothing."""
    fitted = list(priors)
    for kind, truth in truths.items():
        fitted = fit_kind(fitted, kind, truth, hidden)
    return fitted


def fit_kind(
    priors: Sequence[Prior], kind: str, truth: Truth, hidden: str = "", columns: Columns | None = None
) -> list[Prior]:
    """As `fit_without`, the constants of one kind alone; rows take the priors of `columns`, or their own."""
    free = [i for i, prior in enumerate(priors) if prior.fitted == kind]
    base = np.array([prior.value for prior in priors])
    columns = columns or columns_of(priors, truth)

    def trial_errors(logs: Values) -> Values:
        values = np.repeat(base[None], len(logs), axis=0)
        values[:, free] = np.exp(logs)
        return log_errors(truth, columns, values)

    logs = solve(trial_errors, weights(truth, hidden), NOISE[truth.column], ridge_of(priors, free))
    fitted = list(priors)
    for place, log in zip(free, logs, strict=True):
        fitted[place] = replace(priors[place], value=rounded(np.exp(log)))
    return fitted


def weights(truth: Truth, hidden: str = "") -> Values:
    """Every source counts for its rows up to `EFFECTIVE_ROWS`; what is hidden counts nothing."""
    seen = (np.char.add("source=", truth.source) != hidden) & (truth.fold != hidden)
    weight = np.zeros(len(truth.source))
    for source in np.unique(truth.source[seen]):
        here = seen & (truth.source == source)
        weight[here] = min(np.sum(here), EFFECTIVE_ROWS[truth.column]) / np.sum(here)
    return weight


def errors(priors: Sequence[Prior], truth: Truth) -> Values:
    """log(predicted / measured) of every row."""
    values = np.array([[prior.value for prior in priors]])
    found: Values = log_errors(truth, columns_of(priors, truth), values)[0]
    return found


def told_by(priors: Sequence[Prior], truths: Mapping[str, Truth]) -> dict[tuple[str, str], Told]:
    """What each fitted constant rests on: the rows whose prediction it moves."""
    found = {}
    for kind, truth in truths.items():
        columns = columns_of(priors, truth)
        values = np.array([prior.value for prior in priors])
        still = log_errors(truth, columns, values[None])[0]
        for i, prior in enumerate(priors):
            if prior.fitted == kind:
                moved = values.copy()
                moved[i] *= np.exp(0.1)
                told = np.abs(log_errors(truth, columns, moved[None])[0] - still) > FELT * 0.1
                sources = tuple(str(source) for source in np.unique(truth.source[told]))
                found[prior.name, prior.scope] = Told(int(np.sum(told)), sources)
    return found


def constant_row(prior: Prior, before: Prior, told: Mapping[tuple[str, str], Told]) -> ConstantRow:
    """A prior or its fitted value as a row of the table; the range narrows with the rows behind it."""
    rests_on = told.get((prior.name, prior.scope), Told(0, ()))
    fitted = rests_on.rows > 0
    narrow = 1 / np.sqrt(1 + rests_on.rows / EFFECTIVE_ROWS[MEMORY]) if fitted else 1.0
    low = prior.value * (before.low / before.value) ** narrow if before.value else 0.0
    high = prior.value * (before.high / before.value) ** narrow if before.value else 0.0
    return ConstantRow(
        name=prior.name,
        scope=prior.scope,
        value=prior.value,
        low=rounded(max(low, min(before.low, prior.value))),
        high=rounded(min(high, max(before.high, prior.value))),
        unit=prior.unit,
        source=Source.FITTED if fitted else Source.ASSUMED,
        rows=rests_on.rows,
        fitted_by=FITTED_BY,
        note="; ".join(filter(None, (prior.note, " ".join(rests_on.sources)))),
    )


def blind_rows(hidden: str, fitted: Sequence[Prior], priors: Sequence[Prior]) -> list[BlindRow]:
    """The free constants of one fit."""
    rows = []
    for prior, before in zip(fitted, priors, strict=True):
        if before.fitted in KINDS:
            value = rounded(prior.value)
            estimate = Estimate(value, min(before.low, value), max(before.high, value), "ratio")
            rows.append(BlindRow("training", hidden, prior.name, prior.scope, estimate))
    return rows
