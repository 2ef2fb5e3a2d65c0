"""The serving software: which era of an engine a version belongs to, and the constants fitted for it."""

import re
from dataclasses import fields

from twofold.inference.types import Engine
from twofold.perf import Constants, Device, engine_software


def engine_era(name: str, version: str | None) -> str:
    """The era of `version`, the engine's newest when it cannot be told, "" for an engine without eras.

    >>> engine_era("vllm", "0.15.1"), engine_era("vllm", "2024, unstated"), engine_era("trtllm", "1.2.0rc6")
    ('0.12+', '2024', '1.1+')
    >>> engine_era("vllm", "0.2-0.3 era, modified"), engine_era("vllm", None), engine_era("sglang", "main")
    ('0.3-', '0.12+', '0.5+')
    """
    text, software = (version or "").strip(), engine_software(name)
    year = re.match(r"20\d\d", text)
    if year:
        return software.era_by_year.get(year.group(), "")
    number = re.match(r"v?(\d+)\.(\d+)", text)
    eras = software.eras
    if not number:
        return eras[-1][1] if eras else ""
    release = (int(number.group(1)), int(number.group(2)))
    return next((era for first, era in reversed(eras) if release >= first), "")


def engine(
    constants: Constants,
    name: str,
    version: str | None = None,
    *,
    family: str = "",
    model: str = "dense",
    weights_format: str = "bf16",
) -> Engine:
    """The engine's constants: the narrowest of name and era, the device's family, the model and its format.

    `model` is `dense`, `moe` or `mla` (see `model_kind`).
    """
    era = engine_era(name, version)
    scope = {"engine": name, "era": era, "family": family, "model": model, "format": weights_format}
    held = [field.name for field in fields(Engine) if field.name not in ("name", "era")]
    return Engine(name, era, **{each: constants.get(f"serving_{each}", **scope) for each in held})


def default_activation_format(device: Device, weights_format: str) -> str:
    """What activations are quantised to when nobody says: int4 is weight-only, mxfp4 wants 8-bit tensor cores
    that take block scales, other formats match their weights."""
    if weights_format == "int4":
        return "bf16"
    if weights_format == "mxfp4":
        return "mxfp8" if device.family.startswith(("blackwell", "rubin", "cdna4")) else "bf16"
    return weights_format
