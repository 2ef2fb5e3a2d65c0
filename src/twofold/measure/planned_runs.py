"""What a run would take by the plan, calibrated on other runs of the same machine alone: to stand beside it.

Nothing of the run itself is read but what was asked of it, so that the distance between both is one of rows
left out. The plan knows number formats by the rates that the device states; of compiled code it knows what
can be saved at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from twofold.catalog.catalog import Catalog
from twofold.contracts.results import trained
from twofold.core.errors import InputError
from twofold.core.estimate import Estimate
from twofold.measure.blind import PREDICT
from twofold.measure.calibration import Array, Fitted, fit_sheet, ranges_of
from twofold.measure.calibration_sheet import sheets_of
from twofold.measure.predict_training import group_entries, hardware, price_group, settled_entries
from twofold.measure.trained_rows import Ran, row_of
from twofold.measure.truth import Row
from twofold.perf.constants import Constants
from twofold.perf.known import load_known
from twofold.training.stack import Stack

STEP = "step_time_s"
# A format whose rate the device does not state may have units of its own, or be made of another one's. Said
# before any such run was seen: fp16 took a processor without units for it 14.6 times as long, and is outside.
UNSTATED_LOG = np.log(2.0)


def planned_steps(
    runs: Sequence[trained.TrainedRun], ran: Ran, catalog: Catalog, constants: Constants
) -> dict[str, Estimate]:
    """The step of each run but the first, by name, from the eager runs of the first's precision but itself.

    One that nothing is left to calibrate for is left out. Raises as `planned_step_s`.
    """
    first = runs[0].settings.precision
    alike = [run for run in runs if (run.settings.compute, run.settings.precision) == ("eager", first)]
    found = {}
    for run in runs[1:]:
        others = [row_of(each, ran) for each in alike if each is not run]
        if others:
            asked = row_of(run, ran), run.settings.compute
            found[run.name] = planned_step_s(others, *asked, catalog, constants)
    return found


def planned_step_s(
    calibrating: Sequence[Row], wanted: Row, compute: str, catalog: Catalog, constants: Constants
) -> Estimate:
    """Seconds of a step of `wanted`, by factors that the `calibrating` rows gave, with its 80 % range.

    Formula  eager: as calibrated; compiled: √(least · eager), least without launches by layer and without
             elementwise passes
    Why      A compiler launches what it makes as few times as it can, and walks over values on the way of
             products: what that saves here nobody told, so it is half of what it can be, and the range is
             all of it, from nothing saved to everything.
    Limits   The products themselves stay as they are. Raises InputError for rows that cannot be read or that
             ran on several devices.
    """
    fitted = _fitted(calibrating, catalog, constants)
    factors = {
        name: np.exp([[log]]) for name, log in zip(fitted.names, fitted.solved.log_factors, strict=True)
    }
    settled, refused = settled_entries([wanted], catalog, constants)
    if refused:
        raise InputError(refused[0])
    (group,) = group_entries([each.entry for each in settled])
    cluster, stack = hardware(group.machine, catalog, constants)
    cluster, stack = cluster.scaled(factors), stack.scaled(factors)

    def step_s(software: Stack) -> float:
        return float(np.squeeze(price_group(group, cluster, software).step.total_s))

    eager_s = step_s(stack)
    least_s = step_s(_all_fused(stack)) if compute == "compiled" else eager_s
    apart = fitted.half_range(STEP)
    if group.machine.precision not in cluster.device.native_formats:
        apart = float(np.hypot(apart, UNSTATED_LOG))
    low_s, high_s = least_s * np.exp(-apart), eager_s * np.exp(apart)
    return Estimate(float(np.sqrt(least_s * eager_s)), float(low_s), float(high_s), "s")


def _all_fused(stack: Stack) -> Stack:
    """The same software where compiled code leaves the host and memory nothing to do between products."""
    nothing = np.zeros_like(np.asarray(stack.host_layer_s))
    return replace(stack, host_layer_s=nothing, host_moe_layer_s=nothing, elementwise_factor=nothing)


def _fitted(rows: Sequence[Row], catalog: Catalog, constants: Constants) -> Fitted:
    ranges: Mapping[str, Array] = ranges_of(
        "training", PREDICT["training"](rows, catalog, constants, load_known())
    )
    sheets, refused = sheets_of("training", rows, catalog, constants)
    if refused:
        raise InputError(next(iter(refused.values())))
    if len(sheets) != 1:
        raise InputError("runs of several machines calibrate nothing together", hint="give those of one")
    return fit_sheet(sheets[0], rows, ranges, constants)
