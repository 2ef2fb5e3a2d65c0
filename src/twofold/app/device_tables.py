"""Tables of one device: `catalog partitions` and `catalog kernels`, what it is cut into, what runs on it."""

import re
from dataclasses import dataclass
from pathlib import Path

from twofold.catalog.catalog import load_catalog
from twofold.catalog.partitions import PartitionRefused, Placement, check_partition_request, legal_partitions
from twofold.catalog.types import Partition
from twofold.core.display import format_bytes
from twofold.core.errors import InfeasibleError, ValueRefusedError
from twofold.core.estimate import Estimate
from twofold.perf.constants import load_constants
from twofold.perf.device import KernelSupport, device, kernel_support
from twofold.report.answers import Shown
from twofold.report.lines import field, table

_ITEM = re.compile(r"\s*(?:(\d{1,3})\s*[x×]\s*)?(\S+)\s*", re.IGNORECASE)
SHOWN_CUTS = 8
MOST_PARTITIONS = 64


@dataclass(frozen=True, slots=True)
class Profiles(Shown):
    """Every legal profile of one device, every full cut of it, and where a requested mix would stand."""

    schema = "twofold/partitions/1"
    accelerator: str
    profiles: tuple[Partition, ...]
    cuts: tuple[tuple[Placement, ...], ...]
    placed: tuple[Placement, ...]  # empty without a request

    @property
    def lines(self) -> list[str]:
        """The profiles, some cuts, and the answer to the request."""
        if not self.profiles:
            return [f"{self.accelerator} cannot be partitioned"]
        rows = [
            (
                one.profile,
                str(one.count_max),
                f"{one.compute_slices}/{one.compute_slices_total}",
                f"{one.memory_slices}/{one.memory_slices_total}",
                format_bytes(one.memory_bytes),
                one.memory_modes or "–",
                one.notes,
            )
            for one in self.profiles
        ]
        columns = ("profile", "at most", "compute", "memory slices", "memory", "modes", "")
        cuts = [" + ".join(part.profile for part in cut) for cut in self.cuts[:SHOWN_CUTS]]
        placed = [f"{part.profile} at memory slice {part.start}" for part in self.placed]
        return [
            f"{self.accelerator}: {len(self.profiles)} profiles, {len(self.cuts)} full cuts",
            *table(columns, rows, numbers=(1, 4)),
            *field("cuts", *([*cuts, "…"] if len(self.cuts) > SHOWN_CUTS else cuts)),
            *field("fits", *placed),
        ]


def partitions(accelerator: str, request: str = "") -> Profiles:
    """The legal profiles of a device. `request`, such as `3x 1g.10gb + 4g.40gb`, must fit on one device.

    Raises InfeasibleError with the reason when it does not.
    """
    catalog = load_catalog()
    name = catalog.accelerator(accelerator).name
    placed = check_partition_request(catalog, name, _requested(request)) if request else ()
    if isinstance(placed, PartitionRefused):
        raise InfeasibleError(f"`{request}` does not fit on one {name}", lines=(("reason", placed.reason),))
    return Profiles(name, catalog.partitions(name), legal_partitions(catalog, name), placed)


def _requested(request: str) -> list[str]:
    """Profiles one by one: `2x 1g.10gb + 3g.40gb` is three of them."""
    names: list[str] = []
    for item in re.split(r"\s+\+\s+|,", request):
        match = _ITEM.fullmatch(item)
        if not match:
            hint = "write for example `3x 1g.10gb + 4g.40gb`"
            raise ValueRefusedError(f"`{item}` is not a profile", hint=hint)
        names += [match[2]] * int(match[1] or 1)
    if len(names) > MOST_PARTITIONS:
        raise ValueRefusedError(f"{len(names)} partitions are more than any device holds")
    return names


@dataclass(frozen=True, slots=True)
class Kernels(Shown):
    """The kernels of every engine on one device."""

    schema = "twofold/kernels/1"
    accelerator: str
    kernels: tuple[KernelSupport, ...]

    @property
    def lines(self) -> list[str]:
        """A matrix, operations and formats down, engines across; beneath it the cost of what falls back."""
        names = tuple(dict.fromkeys(kernel.engine for kernel in self.kernels))
        cells = {(k.operation, k.format, k.engine): k for k in self.kernels}
        works = list(dict.fromkeys((k.operation, k.format) for k in self.kernels))
        supports = ((cells[*work, name].support.replace("missing", "–") for name in names) for work in works)
        rows = [(*work, *supported) for work, supported in zip(works, supports, strict=True)]
        costs: dict[tuple[str, ...], list[str]] = {}  # by operation and figures: formats that share kernels
        for work in works:
            falls = [cells[*work, name] for name in names if cells[*work, name].support == "fallback"]
            for one in falls[:1]:
                figures = _times(one.slowdown), _times(one.decode_slowdown)
                measured = f"{one.measured_count} shapes on {one.measured_on.replace(' ', ', ')}"
                costs.setdefault((one.operation, *figures, measured), []).append(one.format)
        slower = [(cost[0], " ".join(formats), *cost[1:]) for cost, formats in costs.items()]
        heads = ("falls back", "formats", "prompts", "decode", "measured")
        return [
            f"{self.accelerator}: kernels by engine",
            *table(("operation", "format", *names), rows),
            *field("", "–: no kernel"),
            *(["", *table(heads, slower)] if slower else []),
            *(field("", "time over that of a native 16-bit kernel of the same shape, f") if slower else []),
        ]


def kernels(accelerator: str, folder: Path | None = None) -> Kernels:
    """Every operation and number format on a device, engine by engine. Raises InputError for its name."""
    constants = load_constants()
    part = device(load_catalog(folder).accelerator(accelerator), constants)
    return Kernels(part.name, kernel_support(part, constants))


def _times(slowdown: Estimate | None) -> str:
    """`×0.49 [0.41–0.88]`."""
    return f"×{slowdown.value:.2f} [{slowdown.low:.2f}–{slowdown.high:.2f}]" if slowdown else ""
