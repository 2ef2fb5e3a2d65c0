"""What is not known, as a dozen named factors; the draws common to all figures, and the ranges made of them.

A factor multiplies one property of the hardware, the software or the world. Every answer of a plan is
re-evaluated over the same draws, so that two answers can be compared draw by draw. What is common to all
stacks keeps its own draws; the factors of a stack that the user's rows calibrated move with them, less far.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from twofold.core.estimate import Estimate, Source
from twofold.perf.constants import Constants, format_scope

COVARIANCE = "calibration_log_covariance"
NO_DOUBT = 1e-12
DRAW_COUNT = 200
RANGE_FRACTION = 0.8  # what the shown ranges hold
CLOSE_FRACTION = 0.2  # of the draws: a choice that flips more often says so
NO_WIDTH = 1e-9  # samples that do not vary
LOW_PERCENTILE, HIGH_PERCENTILE = 10.0, 90.0

# Their order is the order of draws; the 80 % range of each is a row `uncertainty_factor` of constants.csv.
FACTORS = MappingProxyType(
    {
        "compute": "FLOP/s that kernels reach",
        "memory_bandwidth": "bytes/s of device memory that kernels reach",
        "link": "bytes/s inside the scale-up domain",
        "fabric": "bytes/s between nodes",
        "host": "launch and scheduling time of the software",
        "overlap": "communication that compute hides",
        "memory_use": "bytes that a layout really takes",
        "failure_rate": "interruptions per accelerator-hour",
        "storage": "bytes/s of the file system, at checkpoints and at load",
        "traffic": "requests at the peak, against the spec",
        "power": "watts drawn, against the model",
        "price": "what the same instance costs elsewhere or next quarter",
    }
)

Draws = Mapping[str, NDArray[np.float64]]  # factor -> (count, 1); as a factor of time it is 1 / factor


@dataclass(frozen=True, slots=True)
class Spread:
    """How wide measurements from sources that no fit saw lay around their predictions: an 80 % factor."""

    low_factor: float
    high_factor: float
    reference: str  # the constant it is read from


def draw_factors(constants: Constants, count: int = DRAW_COUNT, seed: int = 0) -> Draws:
    """`count` draws of every factor, each of shape (count, 1) and of median 1.

    Formula  exp(sigma · z), sigma = ln(high/low) / (2 · 1.2816), z standard normal
    Why      Errors of performance models are ratios. A Latin hypercube puts one draw into each of `count`
             equal slices of every factor, so that 200 draws give the deciles of one factor exactly.
    Units    factors; the ranges are constants `uncertainty_factor`.
    Source   McKay, Beckman and Conover 1979, Latin hypercube sampling.
    Limits   Factors are independent. The same seed gives the same draws.
    """
    generator = np.random.default_rng(seed)
    grid = _normal_grid(count)
    z_80 = NormalDist().inv_cdf((1 + RANGE_FRACTION) / 2)
    result, sigmas = {}, {}
    for name in FACTORS:
        row = constants.estimate("uncertainty_factor", factor=name)
        sigmas[name] = float(np.log(row.high / row.low) / (2 * z_80))
        result[name] = np.exp(sigmas[name] * generator.permutation(grid))[:, np.newaxis]
    return MappingProxyType(with_doubt(result, constants, sigmas))


def with_doubt(draws: Draws, constants: Constants, sigma_log: Mapping[str, float]) -> Draws:
    """The common draws, and further ones for every calibrated stack under keys `scope|factor`.

    Formula  exp(root · z), z the common draws as standard normals, root · rootᵀ the covariance after the rows
    Why      The same draw stays lucky or unlucky for all figures; a calibrated one is just less so.
    """
    by_scope: dict[str, dict[tuple[str, str], float]] = {}  # covariance of each pair of logarithms
    for pairs, row in constants.by_name.get(COVARIANCE, ()):
        told = dict(pairs)
        key = told.pop("factor"), told.pop("with")
        by_scope.setdefault(format_scope(told), {})[key] = row.value

    def normal(name: str) -> NDArray[np.float64]:
        if sigma_log.get(name, 0.0) > NO_DOUBT:
            common: NDArray[np.float64] = np.log(np.ravel(draws[name])) / sigma_log[name]
            return common
        count: int = next(iter(draws.values())).shape[0]
        return np.random.default_rng([len(draws), *name.encode()]).standard_normal(count)

    further = dict(draws)
    for scope, covariances in by_scope.items():
        names = tuple(dict.fromkeys(first for first, _ in covariances))
        covariance = np.array([[covariances[one, other] for other in names] for one in names])
        spread, axes = np.linalg.eigh(covariance)
        root = axes * np.sqrt(np.maximum(spread, 0.0)) @ axes.T  # symmetric: a factor stays with its own draw
        for name, values in zip(names, root @ np.array([normal(each) for each in names]), strict=True):
            further[f"{scope}|{name}"] = np.exp(values)[:, np.newaxis]
    return further


def draws_in(draws: Draws, scope: Mapping[str, str]) -> Draws:
    """The draws of a stack: its calibrated factors' own in place of the common ones."""
    own: dict[str, NDArray[np.float64]] = {}
    narrowest = 0
    for key, values in draws.items():
        where, bar, name = key.partition("|")
        pairs = dict(part.split("=", 1) for part in where.split(";")) if bar else {}
        if bar and pairs.items() <= scope.items():
            own = {} if len(pairs) > narrowest else own
            if len(pairs) >= narrowest:
                own[name] = values
                narrowest = len(pairs)
    return {**draws, **own} if own else draws


def factor_ends(constants: Constants, name: str) -> tuple[float, float]:
    """The 80 % range of one factor."""
    row = constants.estimate("uncertainty_factor", factor=name)
    return row.low, row.high


def stretch(middle: float, samples: NDArray[np.float64], spread: Spread | None = None) -> NDArray[np.float64]:
    """Samples around `middle`, widened where left-out sources showed more than the draws explain.

    Formula  middle · (sample / median(samples))^k, k = max(1, log end of the spread / log decile of samples)
    Why      The draws know what each factor does, the left-out sources how far off the whole is: the wider
             holds, on either side. Samples that vary on one side only, or not, take the spread's own shape.
    Units    those of the samples, which are positive.
    Source   Ranges of sources left out, measured by the fits: constants `interval_*`.
    Limits   Keeps the ranks of the samples, so draws of two figures stay comparable.
    """
    logs: NDArray[np.float64] = np.log(np.asarray(samples, float).ravel() / np.median(samples))
    if spread is None:
        return middle * np.exp(logs)
    low, high = np.percentile(logs, (LOW_PERCENTILE, HIGH_PERCENTILE))
    asked_low, asked_high = min(np.log(spread.low_factor), low), max(np.log(spread.high_factor), high)
    if min(-low, high) < NO_WIDTH:  # most draws fall together: their ranks are all that they tell
        logs = _normal_grid(len(logs))[np.argsort(np.argsort(logs, kind="stable"))]
        low, high = np.percentile(logs, (LOW_PERCENTILE, HIGH_PERCENTILE))
    below, above = asked_low / low, asked_high / high
    stretched: NDArray[np.float64] = middle * np.exp(np.where(logs < 0, logs * below, logs * above))
    return stretched


def _normal_grid(count: int) -> NDArray[np.float64]:
    """The middles of `count` equally likely slices of a standard normal, ascending."""
    return np.array([NormalDist().inv_cdf((index + 0.5) / count) for index in range(count)])


def draws_between(middle: float, low: float, high: float, count: int, stream: int) -> NDArray[np.float64]:
    """`count` draws of a measured figure whose median and deciles are `middle`, `low` and `high`.

    Formula  middle · (high/middle)^(z/1.2816) above the middle, (middle/low) below it, z standard normal
    Why      A measurement's doubt is its own: it is drawn in another order than the common factors.
    Units    those of `middle`; `stream` tells figures apart that are drawn independently.
    """
    z_80 = NormalDist().inv_cdf((1 + RANGE_FRACTION) / 2)
    shares = np.random.default_rng([len(FACTORS), stream]).permutation(_normal_grid(count)) / z_80
    ends = np.where(shares > 0, np.log(high / middle), np.log(middle / low))
    samples: NDArray[np.float64] = middle * np.exp(shares * ends)
    return samples


def estimate_of(
    middle: float, samples: NDArray[np.float64], unit: str, source: Source = Source.FITTED
) -> Estimate:
    """The one place where samples become an `Estimate`: the given middle, the deciles of the draws."""
    low, high = np.percentile(np.asarray(samples, float), (LOW_PERCENTILE, HIGH_PERCENTILE)).tolist()
    return Estimate(float(middle), min(low, float(middle)), max(high, float(middle)), unit, source)


def flip_fraction(chosen: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """In what part of the draws some other candidate beats the choice; less is better.

    Shapes   chosen (draws,), others (draws, candidates).
    """
    return float(np.mean(others.min(axis=1) < chosen)) if others.size else 0.0


def flip_warning(flips_fraction: float, what: str) -> tuple[str, ...]:
    """Says that a choice is close, when it is; what is mostly dearer was taken for another reason."""
    if not CLOSE_FRACTION < flips_fraction <= 0.5:
        return ()
    return (f"the choice is close: {what} in {flips_fraction:.0%} of the draws",)
