"""`catalog kernels`: which kernels each engine has on a device, and what a missing one costs."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from twofold.catalog import load_catalog
from twofold.perf import KernelSupport, device, engines, kernel_support, load_constants
from twofold.report import Shown, field, table


@dataclass(frozen=True, slots=True)
class Kernels(Shown):
    """The kernels of every engine on one device."""

    schema: ClassVar[str] = "twofold/kernels/1"
    accelerator: str
    kernels: tuple[KernelSupport, ...]

    @property
    def lines(self) -> list[str]:
        """A matrix: operations and formats downwards, engines across."""
        names = tuple(dict.fromkeys(kernel.engine for kernel in self.kernels))
        cells = {(k.operation, k.format, k.engine): _cell(k) for k in self.kernels}
        works = list(dict.fromkeys((k.operation, k.format) for k in self.kernels))
        rows = [(*work, *(cells[*work, name] for name in names)) for work in works]
        meaning = ["fallback: time over that of a native 16-bit kernel, f", "–: no kernel"]
        return [
            f"{self.accelerator}: kernels by engine",
            *table(("operation", "format", *names), rows),
            *field("", meaning),
        ]


def kernels(accelerator: str, folder: Path | None = None) -> Kernels:
    """Every operation and number format on a device, engine by engine. Raises InputError for its name."""
    constants = load_constants()
    part = device(load_catalog(folder).accelerator(accelerator), constants)

    found = (row for engine in engines() for row in kernel_support(part, engine, constants))
    return Kernels(part.name, tuple(found))


def _cell(kernel: KernelSupport) -> str:
    """`native`, `fallback ×1.7 [1.0–5.5]`, or a dash where there is no kernel."""
    if kernel.slowdown is None:
        return "–" if kernel.support == "missing" else kernel.support
    slow = kernel.slowdown
    return f"{kernel.support} ×{slow.value:.1f} [{slow.low:.1f}–{slow.high:.1f}]"
