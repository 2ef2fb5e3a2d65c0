"""From what rows measured and how a model's figures slope, to named log factors: a robust fit with shrinkage.

Everything is linear algebra in logarithms; what the figures and factors are is none of its business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NOISE_LOG = 0.05  # of a measurement whose repeats nobody shows
TAIL_DEGREES = 4.0  # of Student's t: rows far off count less
RANGE_ROWS = 2.0  # measured rows that the range of uncalibrated predictions stands for
ROUNDS = 12
STRENGTHS = (1.0, 3.0, 10.0, 0.3, 0.1)  # of the prior's width, tried in turn
Z_80 = NormalDist().inv_cdf(0.9)


@dataclass(frozen=True, slots=True)
class Gaps:
    """Measured figures against a model whose factors are all 1."""

    slopes: Array  # (figures, factors): change of log predicted per log factor
    log_gap: Array  # log(measured / predicted)
    metric: NDArray[np.str_]
    row: NDArray[np.intp]  # figures of one row are left out together
    weight: Array | float = 1.0  # of a figure: how much of it the model means to say


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed before a row is seen: of the factors, and how far rows of one stack lie apart."""

    log_covariance: Array  # of the factors, around 0
    spread_log: Mapping[str, float]  # by metric: standard deviation of the uncalibrated range
    noise_log: float  # of one measurement


@dataclass(frozen=True, slots=True)
class Solved:
    """The factors after the rows."""

    log_factors: Array
    log_covariance: Array
    figure_noise_log: Array  # of every figure: what the factors leave of its metric, more where it is far off


def prior_covariance(spreads_log: Sequence[float], common_log: Sequence[float]) -> Array:
    """Covariance of log factors: each one's own variance, and a part that is common to all.

    Why      The named ranges say what each property does; sources left out say how far off the whole is,
             which no single factor explains. `common_log` is that common part in each factor, 0 for none.
    """
    own, common = np.asarray(spreads_log, float), np.asarray(common_log, float)
    covariance: Array = np.diag(own**2) + np.outer(common, common)
    return covariance


def solve(gaps: Gaps, belief: Belief) -> Solved:
    """The most probable factors under Student's t errors, by iterated weights.

    Formula  minimise Σ log(1 + r²/(ν·s²))·(ν+1)/2 + ½·xᵀ·P⁻¹·x, r = gap − slopes·x, s by metric
    Why      Few rows move the factors only as far as their prior and the noise allow; the noise of a metric
             is what its own rows leave, held by the range of uncalibrated predictions while rows are few.
    Shapes   (figures, factors); no figures: the prior.
    Source   Lange, Little & Taylor 1989, robust modelling with the t distribution.
    """
    precision = np.linalg.inv(belief.log_covariance)
    metrics = sorted(set(gaps.metric.tolist()))
    own = [gaps.metric == name for name in metrics]
    scale = np.array([_noise(belief, name, 0.0, 0.0) for name in gaps.metric])
    noise = scale
    factors, covariance = np.zeros(len(precision)), belief.log_covariance
    for _ in range(ROUNDS if metrics else 0):
        told = gaps.slopes * (gaps.weight / noise**2)[:, np.newaxis]
        covariance = np.linalg.inv(gaps.slopes.T @ told + precision)
        factors = covariance @ (told.T @ gaps.log_gap)
        left = gaps.log_gap - gaps.slopes @ factors
        unsure = left**2 + np.sum((gaps.slopes @ covariance) * gaps.slopes, axis=1)
        weighed = unsure * (scale / noise) ** 2
        for name, here in zip(metrics, own, strict=True):
            scale[here] = _noise(belief, name, float(np.sum(weighed[here])), float(here.sum()))
        noise = scale * np.sqrt((TAIL_DEGREES + left**2 / scale**2) / (TAIL_DEGREES + 1))
    return Solved(factors, covariance, noise)


def _noise(belief: Belief, metric: str, squares: float, count: float) -> float:
    """Standard deviation of what the factors do not explain, never below that of a measurement."""
    held = RANGE_ROWS * (belief.spread_log[metric] / 2) ** 2
    return max(belief.noise_log, float(np.sqrt((held + squares) / (RANGE_ROWS + count))))


def calibrated(gaps: Gaps, belief: Belief) -> tuple[Solved, Array]:
    """The factors, moved as far as helps rows that they have not seen; and the errors of rows left out.

    Why      Where rows differ from the model in other ways than the factors can, a fit to few of them
             misleads; where the stack is unlike any that was seen, the prior is too narrow. It is taken
             narrower, as it is, or wider: as rows left out lie nearest. A narrower one leaves no less doubt.
    """
    spread = np.array([belief.spread_log[name] for name in gaps.metric])
    best, errors, least, whole = solve(gaps, belief), gaps.log_gap, np.inf, solve(gaps, belief)
    for strength in STRENGTHS:
        tried = replace(belief, log_covariance=belief.log_covariance * strength**2)
        solved = solve(gaps, tried)
        left = left_out_gaps(gaps, tried, solved)
        score = float(np.sum(gaps.weight * np.log1p((left / spread) ** 2)))
        if score < least:
            doubt = solved if strength > 1 else whole
            best, errors, least = replace(doubt, log_factors=solved.log_factors), left, score
    return best, errors


def left_out_gaps(gaps: Gaps, belief: Belief, solved: Solved) -> Array:
    """log(measured / predicted) of every figure by factors that never saw its row.

    Formula  (K_rr)⁻¹·(K·gap)_r of each row r, K the inverse of slopes·P·slopesᵀ + noise
    Why      The errors that fits without each row would make, without making them; noise and weights are
             those of all rows.
    Source   Rasmussen & Williams 2006, equation 5.12, by blocks.
    """
    noise = np.diag(solved.figure_noise_log**2 / gaps.weight)
    inverse = np.linalg.inv(gaps.slopes @ belief.log_covariance @ gaps.slopes.T + noise)
    pulled = inverse @ gaps.log_gap
    out = np.empty(gaps.log_gap.size)
    for row in np.unique(gaps.row):
        here = np.flatnonzero(gaps.row == row)
        out[here] = np.linalg.solve(inverse[np.ix_(here, here)], pulled[here])
    return out


def spread_after(left_out: Array, before_log: float, noise_log: float, share: float = 0.8) -> float:
    """Half the width, in logarithms, of the range that holds `share` of further rows.

    Formula  min(t·s, z·max(before, s)), s = √((2·before² + Σ w·g²) / (2 + n)), g errors of rows left out,
             w = 5 / (4 + g²/s²) as in Student's t
    Why      The range of uncalibrated predictions counts as two rows; few rows widen by Student's t with
             1 + n degrees, yet not beyond the range before. Nobody is surer than a measurement is.
    """
    count = left_out.size
    deviation, errors = before_log, np.square(left_out)
    for _ in range(ROUNDS):
        weight = (TAIL_DEGREES + 1) / (TAIL_DEGREES + errors / deviation**2)  # one row far off is not all
        squares = RANGE_ROWS * before_log**2 + float(np.sum(weight * errors))
        deviation = max(noise_log, float(np.sqrt(squares / (RANGE_ROWS + count))))
    probability = (1 + share) / 2
    widest = NormalDist().inv_cdf(probability) * max(before_log, deviation)
    return min(widest, student_quantile(probability, RANGE_ROWS + count - 1) * deviation)


def student_quantile(probability: float, degrees: float) -> float:
    """A quantile of Student's t, by the first terms of its expansion around the normal's.

    Source   Abramowitz & Stegun 26.7.5.
    Limits   2 % off at 2 degrees for 0.9, less above; 1 degree is not asked here.

    >>> round(student_quantile(0.9, 9.0), 3)
    1.383
    """
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2


def repeat_noise(log_values: Sequence[Array]) -> float | None:
    """Standard deviation of repeats around their means, pooled; None where nothing was repeated."""
    repeated = [values for values in log_values if values.size > 1]
    if not repeated:
        return None
    squares = sum(float(np.sum((values - values.mean()) ** 2)) for values in repeated)
    return float(np.sqrt(squares / sum(values.size - 1 for values in repeated)))
