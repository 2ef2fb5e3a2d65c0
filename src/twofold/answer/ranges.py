"""Ranges of an answer: re-evaluated over the common draws, stretched to what left-out sources showed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.answer.calibrated import SPREAD, Software, run_scope, service_scope, spread_of_rows
from twofold.answer.uncertainty import Draws, Spread, draws_in, estimate_of, stretch
from twofold.catalog.types import Accelerator, Model
from twofold.core.estimate import Estimate, Source
from twofold.inference.replica import Engine
from twofold.perf.constants import Constants
from twofold.perf.known import load_known
from twofold.perf.shape import model_kind
from twofold.perf.types import Cluster, Device, Floats
from twofold.training.job import TrainingJob
from twofold.training.stack import software_family

Samples = NDArray[np.float64]  # one per draw

# Searches for what holds as surely as asked: how often, and what is too dear against what its middle takes.
SURE_ROUNDS, GROWN_MOST = 5, 3.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure: its middle, and what it is under every draw, already stretched."""

    middle: float
    samples: Samples

    def estimate(self, unit: str, source: Source = Source.FITTED) -> Estimate:
        """With the deciles of the draws as the range."""
        return estimate_of(self.middle, self.samples, unit, source)

    def probability_within(self, limit: float) -> float:
        """The share of the draws in which the figure is at most `limit`: 0.9 at the range's upper end."""
        return float(np.mean(self.samples <= limit))

    def within(self, least: Floats = 0.0, most: Floats = np.inf) -> "Drawn":
        """The same without what physics forbids; the middle itself stays in the range."""
        low, high = min(float(np.max(least)), self.middle), max(float(np.max(most)), self.middle)
        return Drawn(self.middle, np.clip(self.samples, low, high))

    def times(self, factor: "float | Drawn") -> "Drawn":
        """The product, draw by draw."""
        if isinstance(factor, Drawn):
            return Drawn(self.middle * factor.middle, self.samples * factor.samples)
        return Drawn(self.middle * factor, self.samples * factor)

    def inverse(self, numerator: "float | Drawn" = 1.0) -> "Drawn":
        """`numerator` over this figure, draw by draw."""
        if isinstance(numerator, Drawn):
            return Drawn(numerator.middle / self.middle, numerator.samples / self.samples)
        return Drawn(numerator / self.middle, numerator / self.samples)


def short_of(figure: Drawn, limit: float, asked: float | None) -> float:
    """How far a figure's quantile lies above its limit, as a ratio; 1 where it is sure enough to keep it."""
    if asked is None or figure.probability_within(limit) >= asked:
        return 1.0
    return float(np.quantile(figure.samples, asked, method="inverted_cdf")) / limit


def drawn(middle: Floats, samples: Floats, spread: Spread | None = None) -> Drawn:
    """A figure from its middle and its raw samples; a figure of 0 stays 0."""
    value = float(np.max(middle))
    raw = np.ravel(np.asarray(samples, float))
    if not np.isfinite(value) or value <= 0 or np.median(raw) <= 0:
        return Drawn(value, np.full(raw.shape, value))
    return Drawn(value, stretch(value, raw, spread))


def under_draws(
    cluster: Cluster, software: Software, scope: Mapping[str, str], draws: Draws
) -> tuple[Cluster, Software]:
    """Hardware and software under every draw, calibrated ones under their own."""
    own = draws_in(draws, scope)
    return cluster.scaled(own), software.scaled(own)


def step_spread(constants: Constants, job: TrainingJob, accelerator: Accelerator) -> Spread | None:
    """How far steps that no fit saw lay from their predictions; where calibrated, the user's left out."""
    own, scope = run_scope(accelerator.name, job), training_scope("step", job, accelerator)
    return spread_of_rows(constants, "step", own, own["kind"], "interval_training_step_ratio", scope)


def training_scope(figure: str, job: TrainingJob, accelerator: Accelerator) -> dict[str, str]:
    """The scope of a run's range of `step` or `memory`."""
    arch = "moe" if job.model.arch == "moe" else "dense"
    software = software_family(job.framework, job.precision)
    names = job.model.name, arch, accelerator.name, accelerator.family, software
    return load_known().training_scope(figure, *names)


def serving_power_spread(constants: Constants, device: Device) -> Spread:
    """How far published power of serving devices lay from their median, in watts.

    It holds what the model leaves out: on H100 the share above idle is 0.6 at 8 sequences, 0.9 at 500.
    """
    row = constants.estimate("serving_power_fraction", family=device.family)
    low_w, middle_w, high_w = (float(device.power_w(share)) for share in (row.low, row.value, row.high))
    return Spread(low_w / middle_w, high_w / middle_w, "serving_power_fraction")


def serving_spread(
    constants: Constants, model: Model, metric: str, load: str, device: Device, engine: Engine
) -> Spread | None:
    """How far serving measurements that no fit saw lay from predictions: `ttft`, `tpot` or `output`.

    Those of the user's own rows, where they measured this kind of model. Tokens/s that they did not are the
    inverse of tokens' times.
    """
    own, kind = service_scope(device, engine), model_kind(model)
    if metric == "output" and not constants.has(SPREAD, **own, metric=metric, kind=kind):
        told = serving_spread(constants, model, "tpot", load, device, engine)
        return told and Spread(1 / told.high_factor, 1 / told.low_factor, told.reference)
    scope = serving_scope(metric, load, model, device, engine)
    return spread_of_rows(constants, metric, own, kind, "interval_serving_ratio", scope)


def serving_scope(metric: str, load: str, model: Model, device: Device, engine: Engine) -> dict[str, str]:
    """The scope of a service's range of a metric."""
    names = model.name, model_kind(model), device.name, device.family, engine.name, engine.era
    return load_known().serving_scope(metric, load, *names)
