"""Ranges of an answer: re-evaluated over the common draws, stretched to what left-out sources showed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.catalog import Model
from twofold.core import Estimate, Source
from twofold.inference import Engine, scale_engine
from twofold.perf import Cluster, Constants, Device, Floats, power_w, scale_cluster
from twofold.plan.uncertainty import Draws, Spread, estimate_of, stretch
from twofold.training import Stack, scale_stack, software_family

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


def drawn_cluster(cluster: Cluster, draws: Draws) -> Cluster:
    """The cluster with a leading axis of draws on every rate."""
    return scale_cluster(cluster, draws)


def drawn_stack(stack: Stack, factors: Mapping[str, Floats]) -> Stack:
    """Training software with its launch times divided and its exposed shares multiplied by the factors."""
    return scale_stack(stack, factors)


def drawn_engine(engine: Engine, factors: Mapping[str, Floats]) -> Engine:
    """Serving software with its own times divided by the factor of the host."""
    return scale_engine(engine, factors)


def step_spread(
    constants: Constants, model: Model, framework: str, precision: str, family: str
) -> Spread | None:
    """How far the steps of left-out training runs lay from their predictions."""
    name = "interval_training_step_ratio"
    scope = {
        "arch": "moe" if model.arch == "moe" else "dense",
        "software": software_family(framework, precision),
        "family": family,
    }
    if not constants.has(name, **scope):
        return None
    row = constants.estimate(name, **scope)
    return Spread(row.low / row.value, row.high / row.value, name)


def serving_power_spread(constants: Constants, device: Device) -> Spread:
    """How far published power of serving devices lay from their median, in watts.

    It holds what the model leaves out: on H100 the share above idle is 0.6 at 8 sequences, 0.9 at 500.
    """
    row = constants.estimate("serving_power_fraction", family=device.family)
    low_w, middle_w, high_w = (float(power_w(device, share)) for share in (row.low, row.value, row.high))
    return Spread(low_w / middle_w, high_w / middle_w, "serving_power_fraction")


def serving_spread(constants: Constants, model: Model, metric: str, load: str) -> Spread | None:
    """How far left-out serving measurements lay from their predictions: `ttft`, `tpot` or `output`."""
    name = "interval_serving_low"
    kind = "mla" if model.mla_kv_rank else "moe" if model.arch == "moe" else "dense"
    scope = {"metric": metric, "model": kind, "load": load, "basis": "stated"}
    if not constants.has(name, **scope):
        return None
    return Spread(constants.get(name, **scope), constants.get("interval_serving_high", **scope), name)
