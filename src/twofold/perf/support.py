"""Which kernels an engine has on a device: native, a fallback with its slowdown, or none."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Literal

from twofold.core import Estimate, UnknownNameError
from twofold.perf.constants import Constants, load_constants
from twofold.perf.formats import bytes_per_weight
from twofold.perf.types import Device

Support = Literal["native", "fallback", "missing"]


@dataclass(frozen=True, slots=True)
class KernelSupport:
    """How an engine runs one operation in one number format."""

    engine: str
    operation: str  # gemm attention norm
    format: str
    support: Support
    slowdown: Estimate | None  # of a fallback, over a native 16-bit kernel
    source: str


def kernel_support(
    device: Device, engine: str, constants: Constants | None = None
) -> tuple[KernelSupport, ...]:
    """Every operation and format of `engine` on `device`, by the shipped constants unless others are given.

    A fallback's slowdown is measured: generic attention kernels over those made for the part, and weight-only
    products over 16-bit ones of the same shape.
    """
    constants = constants or load_constants()
    found = {(row["operation"], row["format"]): row for row in _rows(engine)}
    return tuple(
        _judge(device, engine, operation, name, found.get((operation, name), {}), constants)
        for operation, name in sorted({(row["operation"], row["format"]) for row in _table()})
    )


def _judge(
    device: Device, engine: str, operation: str, name: str, row: Mapping[str, str], constants: Constants
) -> KernelSupport:
    """Native needs both the engine's kernel and, for products, matrix units that know the format."""
    known = operation != "gemm" or name in device.native_formats or bytes_per_weight(name) >= 2.0
    source = row.get("source", "not listed by the engine")
    if known and _lists(row.get("native_families", ""), device.family):
        return KernelSupport(engine, operation, name, "native", None, source)
    if _lists(row.get("fallback_families", ""), device.family):
        slowdown = constants.estimate("fallback_slowdown_ratio", family=device.family, operation=operation)
        return KernelSupport(engine, operation, name, "fallback", slowdown, source)
    return KernelSupport(engine, operation, name, "missing", None, source)


def _lists(families: str, family: str) -> bool:
    return families == "*" or family in families.split()


@cache
def _table() -> tuple[dict[str, str], ...]:
    text = (files("twofold.perf") / "kernel_support.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(StringIO(text)))


def _rows(engine: str) -> list[dict[str, str]]:
    rows = [row for row in _table() if row["engine"] == engine]
    if not rows:
        known = ", ".join(engines())
        raise UnknownNameError(f"no kernel table for engine '{engine}'", hint=f"engines: {known}")
    return rows


def engines() -> tuple[str, ...]:
    """The engines whose kernels are known."""
    return tuple(sorted({row["engine"] for row in _table()}))
