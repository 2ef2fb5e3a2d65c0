"""Quantities of a choice of hardware to serve on: by cost per token, and by the cost of whole fleets."""

from collections.abc import Mapping

import numpy as np

from twofold.core import InfeasibleError
from twofold.inference import (
    Replica,
    default_activation_format,
    engine,
    load_axis,
    model_kind,
    model_shape,
    rate_limit,
)
from twofold.perf import DEFAULT_ENGINE
from twofold.verdicts.machines import machines, price_usd_per_h
from twofold.verdicts.quantities_serving import PROMISED
from twofold.verdicts.quantities_serving_fleet import gpus_for_rate
from twofold.verdicts.world import World

SERVERS = (
    "L4",
    "A10",
    "L40S",
    "A100-SXM4-80GB",
    "H100-SXM5-80GB",
    "H200-SXM5-141GB",
    "B200-SXM-180GB",
    "MI300X",
    "RTX-PRO-6000-SE",
    "Inferentia2",
)
"""Accelerators that a choice of hardware is made from, all with list prices."""
FORMATS = ("bf16", "fp8")
SPLITS = (1, 2, 4, 8)


def _served(world: World, model: str) -> Mapping[str, float]:
    """Dollars per million output tokens of each accelerator within 1 s and 50 ms per token, cheapest first.

    Each in the better of 16 and 8 bits and split over the best of 1, 2, 4 and 8 devices; those without a list
    price, and those that keep the promises nowhere, are left out.
    """

    def compute() -> Mapping[str, float]:
        costs = {name: _least_usd_per_mtok(world, model, name) for name in SERVERS}
        priced = {name: usd for name, usd in costs.items() if usd is not None}
        return dict(sorted(priced.items(), key=lambda item: item[1]))

    return world.once(("served", model), compute)


def _least_usd_per_mtok(world: World, model: str, name: str) -> float | None:
    found, shape = machines(world, f"8x{name}"), world.catalog.model(model)
    price, device = price_usd_per_h(found), found.cluster.device
    if price is None:
        return None
    software = engine(world.constants, DEFAULT_ENGINE, family=device.family, model=model_kind(shape))
    splits = np.array([tp for tp in SPLITS if shape.heads % tp == 0], float)
    best = 0.0  # requests/s of one device
    for weights in FORMATS:
        if weights not in device.native_formats:
            continue
        kernels = default_activation_format(device, weights)
        made = Replica(model_shape(shape), found.cluster, software, weights, kernels, tp=splits)
        carried = np.asarray(rate_limit(load_axis(made), PROMISED).requests_per_s, float) / splits
        best = max(best, float(np.max(np.where(np.isfinite(carried), carried, 0.0))))
    return price / 3600.0 / (best * float(np.max(PROMISED.lengths.output_tokens))) * 1e6 if best > 0 else None


def cheapest_server(world: World, model: str) -> str:
    """The accelerator that serves a model at least cost per token, within 1 s and 50 ms per token."""
    return next(iter(_priced(world, model)))


def _priced(world: World, model: str) -> Mapping[str, float]:
    found = _served(world, model)
    if not found:
        raise InfeasibleError(f"nothing serves {model} within its promises")
    return found


def serving_rank(world: World, model: str, gpu: str) -> int | None:
    """Where an accelerator stands by cost per token, 1 the cheapest; None if it misses the promises."""
    names = list(_priced(world, model))
    return names.index(gpu) + 1 if gpu in names else None


def served_usd_per_mtok(world: World, model: str, gpu: str = "") -> float | None:
    """Dollars per million output tokens within promises, on one accelerator or on the cheapest."""
    found = _priced(world, model)
    return found.get(gpu or next(iter(found)))


def cheapest_fleet(world: World, model: str, rate: float) -> str:
    """The accelerator whose fleet for a peak of `rate` requests/s costs least, whole devices counted."""
    costs: dict[str, float] = {}
    for name in SERVERS:
        price = price_usd_per_h(machines(world, f"8x{name}"))
        native = machines(world, f"8x{name}").cluster.device.native_formats
        for weights in FORMATS:
            if price is None or weights not in native:
                continue
            try:
                usd = price * gpus_for_rate(world, model, name, rate, weights)
            except InfeasibleError:
                continue
            costs[name] = min(usd, costs.get(name, usd))
    if not costs:
        raise InfeasibleError(f"nothing serves {model} within its promises")
    return min(costs, key=lambda name: costs[name])
