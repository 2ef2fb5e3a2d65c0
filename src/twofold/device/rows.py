"""This machine measured: from samples to the three tables of a device, and their folder."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from twofold.answer.stacks import cluster_on
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Accelerator
from twofold.device.figures import figures, format_figures, power_figures
from twofold.device.files import DeviceRecord, FitError, Identity, digest_of, this_identity, write_device
from twofold.device.fit import FittedPart, Peaks, fit_kernels, fit_links, measured_row, peaks
from twofold.device.fit_software import SOFTWARE, fit_serving, fit_training
from twofold.device.measuring import Measured, measure
from twofold.perf.constants import ConstantRow, Constants, load_constants

RESIDENT_SPREAD_LOG = 0.2  # pools grow with what passes through them
NAME, NODE = "this-machine", "this-node"
NIC_GBIT_PER_S = 1.0  # of a node; nothing here talks to another
MEASURED_HERE = {"source": "measured here", "licence": "user", "confidence": "measured"}
# What no program can read off a machine.
ASSUMED_TDP_W_PER_CORE, ASSUMED_ACCELERATOR_TDP_W = 15.0, 400.0


@dataclass(frozen=True, slots=True)
class FittedDevice:
    """The three tables, and how far the constants are off."""

    tables: Mapping[str, str]
    accelerator: Accelerator
    constants: Constants  # ours with the measured ones over them
    rows: tuple[ConstantRow, ...]  # the measured ones
    fit: tuple[FitError, ...]


def measure_into(
    folder: Path, rank_count: int | None, today: date, tell: Callable[[str], None] = lambda _: None
) -> DeviceRecord:
    """Measure this machine, fit what was measured, and write both into `folder`, whole or not at all.

    Raises RunError when a rank fails; nothing is written then.
    """
    found = measure(rank_count, tell)
    tell("fitting")
    identity = this_identity(found.accelerator)
    fitted = fit_device(found, identity, today.year)
    kernels, missing = format_figures(found.samples, fitted.accelerator.family)
    record = DeviceRecord(
        name=fitted.accelerator.name,
        measured_on=today,
        identity=identity,
        software=found.software,
        rank_count=found.rank_count,
        duration_s=found.duration_s,
        fit=fitted.fit,
        digest=digest_of(fitted.tables),
        load_average=found.load_average,
        figures=(
            *figures(found.samples, fitted.rows, found.rank_count),
            *power_figures(found.idle_w, found.busy_w),
        ),
        kernels=kernels,
        missing=missing,
    )
    write_device(folder, fitted.tables, record)
    return record


def fit_device(measured: Measured, identity: Identity, year: int) -> FittedDevice:
    """Fit everything that the samples show. Pure but for a folder that the catalogue reads its rows from."""
    found = peaks(measured.samples, measured.rank_count)
    texts = {
        "accelerators.csv": _csv(_accelerator_cells(measured, identity, found, year)),
        "nodes.csv": _csv(_node_cells(measured, identity)),
    }
    with TemporaryDirectory() as folder:  # read as the catalogue reads it, its schema checked
        for name, text in texts.items():
            Path(folder, name).write_text(text, "utf-8")
        accelerator = load_catalog(Path(folder)).accelerator(NAME)
    constants = load_constants()
    rows: list[ConstantRow] = []
    if accelerator.family != "cpu" and accelerator.bf16_flops_per_s:
        rows.append(_steady_clock(accelerator, accelerator.tdp_w / (accelerator.bf16_flops_per_s / 1e12)))
    errors: list[FitError] = []

    def take(parts: Sequence[FittedPart | None]) -> Constants:
        for part in parts:
            if part:
                rows.extend(part.rows)
                errors.append(part.error)
        return constants.with_rows(rows)

    overlaid = take(fit_kernels(measured.samples, accelerator, constants.with_rows(rows)))
    count = measured.rank_count
    node = accelerator, count, NIC_GBIT_PER_S * 1e9 / 8 / count, "ethernet"
    links = cluster_on(*node, overlaid, count).network
    overlaid = take([fit_links(measured.samples, accelerator, links, count)])
    cluster = cluster_on(*node, overlaid, count)
    if accelerator.family == "cpu" and measured.resident_bytes:
        # What a process that trains holds beside the model: its libraries are in the processor's memory.
        scope, held_bytes = f"family=cpu;software={SOFTWARE}", float(measured.resident_bytes)
        scope = f"accelerator={accelerator.name};{scope}"
        rows.append(measured_row("training_workspace_bytes", scope, held_bytes, RESIDENT_SPREAD_LOG, 1))
    overlaid = take([fit_training(measured.samples, cluster, overlaid)])
    overlaid = take([fit_serving(measured.samples, cluster, overlaid)])
    tables = {**texts, "constants.csv": Constants.of(1, rows).text}
    return FittedDevice(tables, accelerator, overlaid, tuple(rows), tuple(errors))


def _steady_clock(accelerator: Accelerator, w_per_tflops: float) -> ConstantRow:
    """Peaks that were measured are sustained: the row that says so, whatever power the family's part has."""
    scope = f"accelerator={accelerator.name};family={accelerator.family}"
    row = measured_row("reference_w_per_tflops", scope, w_per_tflops, 0.0, 1)
    return replace(row, unit="W", note="its peak was measured")


def _accelerator_cells(measured: Measured, identity: Identity, found: Peaks, year: int) -> dict[str, object]:
    """The device's row: one rank's share of a processor, or one whole accelerator."""
    own = bool(measured.accelerator)
    memory = measured.memory_bytes or identity.memory_bytes // measured.rank_count
    rates = found.flops_per_s
    assumed_w = ASSUMED_ACCELERATOR_TDP_W if own else ASSUMED_TDP_W_PER_CORE * measured.thread_count
    told = "its limit of power is the driver's" if measured.limit_w else "the power is assumed"
    link = found.link_bytes_per_s / 1e9
    return {
        "name": NAME,
        "vendor": "NVIDIA" if own else "generic",
        "family": accelerator_family(measured.accelerator),
        "year": year,  # of the measurement: nothing tells that of the part
        "form_factor": "measured",
        "mem_gb": f"{memory / 1e9:.6g}",
        "visible_gib": f"{memory / 2**30:.6g}",
        "mem_type": "measured",
        "mem_bw_gb_s": f"{found.memory_bytes_per_s / 1e9:.6g}",
        "fp32_tflops": f"{rates['fp32'] / 1e12:.6g}",
        "bf16_tflops": f"{rates['bf16'] / 1e12:.6g}" if "bf16" in rates else "",
        "fp8_tflops": f"{rates['fp8'] / 1e12:.6g}" if "fp8" in rates else "",
        "sm_count": measured.cores or measured.thread_count,
        "link_name": "collectives" if link else "none",
        "link_gb_s": f"{link:.6g}",
        "link_both_ways_gb_s": f"{2 * link:.6g}",
        "link_domain": measured.rank_count if link else 1,
        "tdp_w": f"{measured.limit_w or assumed_w:.6g}",
        "idle_w": f"{measured.idle_w / measured.rank_count:.6g}" if measured.idle_w else "",
        "notes": f"{measured.accelerator or identity.processor}; {told}",
        **MEASURED_HERE,
    }


def accelerator_family(name: str) -> str:
    """The family whose fitted constants stand in for what was not measured.

    >>> accelerator_family(""), accelerator_family("NVIDIA H100 80GB HBM3"), accelerator_family("NVIDIA L4")
    ('cpu', 'hopper', 'ada')
    """
    words = {"H100": "hopper", "H200": "hopper", "A100": "ampere", "A10": "ampere", "B200": "blackwell"}
    words |= {"GB200": "blackwell", "L40S": "ada", "L4": "ada", "T4": "turing", "V100": "volta"}
    for word in name.replace("-", " ").split():
        if word in words:
            return words[word]
    return "hopper" if name else "cpu"


def _node_cells(measured: Measured, identity: Identity) -> dict[str, object]:
    return {
        "name": NODE,
        "provider": "onprem",
        "accelerator": NAME,
        "accelerator_count": measured.rank_count,
        "cpu": identity.processor,
        "vcpus": identity.core_count,
        "ram_gb": f"{identity.memory_bytes / 1e9:.6g}",
        "nic_gbit_s": NIC_GBIT_PER_S,
        "nic_type": "assumed",
        "fabric": "ethernet",
        **MEASURED_HERE,
    }


def _csv(cells: Mapping[str, object]) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(cells)
    writer.writerow(cells.values())
    return out.getvalue()
