"""Number formats: what a weight costs to hold, and what the tensor cores run it as."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from twofold.core.errors import UnknownNameError

# Bytes per weight, scales included: fp8_block one fp32 scale per 128×128 block; int4 one fp16 scale and zero
# point per 128; nvfp4 one fp8 scale per 16; mxfp4 and mxfp8 one 8-bit exponent per 32.
FORMAT_BYTES: Mapping[str, float] = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4.0 / (128 * 128),
    "mxfp8": 1.0 + 1.0 / 32,
    "int8": 1.0,
    "int4": 0.5 + 4.0 / 128,
    "nvfp4": 0.5 + 1.0 / 16,
    "fp4": 0.5 + 1.0 / 16,
    "mxfp4": 0.5 + 1.0 / 32,
}
"""Bytes of one number in each format, its share of scales included."""

WEIGHT_ONLY = "weight_only"
PEAK_OF = MappingProxyType({"fp8_block": "fp8", "mxfp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"})


@dataclass(frozen=True, slots=True)
class ComputeFormat:
    """What the tensor cores run, and whether that is a fallback from what was asked."""

    format: str
    fallback: bool
    reason: str = ""


def bytes_per_weight(format_name: str) -> float:
    """Bytes that one weight takes, scales included."""
    if format_name not in FORMAT_BYTES:
        raise UnknownNameError(
            f"unknown number format '{format_name}'", hint="formats: " + ", ".join(sorted(FORMAT_BYTES))
        )
    return FORMAT_BYTES[format_name]


def peak_format(format_name: str) -> str:
    """The catalogue's format whose peak applies: block-scaled fp8 runs at the fp8 peak."""
    bytes_per_weight(format_name)
    return PEAK_OF.get(format_name, format_name)


def kernel_format(format_name: str, weight_format: str | None = None) -> str:
    """The key of a kernel's constants: its format, or `weight_only` if weights are widened on the fly."""
    if weight_format is None or bytes_per_weight(format_name) < 2.0:
        return format_name
    return WEIGHT_ONLY if bytes_per_weight(weight_format) < bytes_per_weight(format_name) else format_name
