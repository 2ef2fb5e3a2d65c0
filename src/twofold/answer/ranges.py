"""Ranges of an answer: re-evaluated over the common draws, stretched to what left-out sources showed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.answer.calibrated import calibrated_spread, run_scope, service_scope
from twofold.answer.uncertainty import Draws, Spread, draws_in, estimate_of, stretch
from twofold.catalog import Accelerator, Model
from twofold.core import Estimate, Source
from twofold.inference import Engine
from twofold.perf import Cluster, Constants, Device, Floats, load_known, model_kind
from twofold.training import Stack, TrainingJob, software_family

Samples = NDArray[np.float64]  # one per draw


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure: its middle, and what it is under every draw, already stretched."""

    middle: float
    samples: Samples

    def estimate(self, unit: str, source: Source = Source.FITTED) -> Estimate:
        """With the deciles of the draws as the range."""
        return estimate_of(self.middle, self.samples, unit, source)

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


def drawn(middle: Floats, samples: Floats, spread: Spread | None = None) -> Drawn:
    """A figure from its middle and its raw samples; a figure of 0 stays 0."""
    value = float(np.max(middle))
    raw = np.ravel(np.asarray(samples, float))
    if not np.isfinite(value) or value <= 0 or np.median(raw) <= 0:
        return Drawn(value, np.full(raw.shape, value))
    return Drawn(value, stretch(value, raw, spread))


def drawn_run(cluster: Cluster, stack: Stack, job: TrainingJob, draws: Draws) -> tuple[Cluster, Stack]:
    """Hardware and training software under every draw, calibrated ones under their own."""
    own = draws_in(draws, run_scope(cluster.device.name, job))
    return cluster.scaled(own), stack.scaled(own)


def drawn_service(cluster: Cluster, engine: Engine, draws: Draws) -> tuple[Cluster, Engine]:
    """Hardware and serving software under every draw, calibrated ones under their own."""
    own = draws_in(draws, service_scope(cluster.device.name, engine.name, engine.era))
    return cluster.scaled(own), engine.scaled(own)


def step_spread(constants: Constants, job: TrainingJob, accelerator: Accelerator) -> Spread | None:
    """How far steps that no fit saw lay from their predictions; where calibrated, the user's left out."""
    own = run_scope(accelerator.name, job)
    calibrated = calibrated_spread(constants, "step", own["kind"], own)
    if calibrated:
        return calibrated
    name, scope = "interval_training_step_ratio", training_scope(job, accelerator)
    if not constants.has(name, **scope):
        return None
    row = constants.estimate(name, **scope)
    return Spread(row.low / row.value, row.high / row.value, name)


def training_scope(job: TrainingJob, accelerator: Accelerator) -> dict[str, str]:
    """The scope of a run's ranges."""
    arch = "moe" if job.model.arch == "moe" else "dense"
    software = software_family(job.framework, job.precision)
    return load_known().training_scope(job.model.name, arch, accelerator.name, accelerator.family, software)


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

    Those of the user's own rows, where they measured this kind of model.
    """
    own = service_scope(device.name, engine.name, engine.era)
    calibrated = calibrated_spread(constants, metric, model_kind(model), own)
    if calibrated:
        return calibrated
    name, scope = "interval_serving_ratio", serving_scope(model, load, device, engine)
    if not constants.has(name, metric=metric, **scope):
        return None
    row = constants.estimate(name, metric=metric, **scope)
    return Spread(row.low / row.value, row.high / row.value, name)


def serving_scope(model: Model, load: str, device: Device, engine: Engine) -> dict[str, str]:
    """The scope of a service's ranges, but for the metric."""
    names = model.name, model_kind(model), device.name, device.family, engine.name, engine.era
    return load_known().serving_scope(*names, load)
