"""The serving software: which era of an engine a version belongs to, and the constants fitted for it."""

import re
from dataclasses import fields

from twofold.inference.types import Engine
from twofold.perf import Constants, Device

# Where an engine's step changed by more than its noise: scheduler rewrites, graphs, asynchronous output.
# First version of each era, oldest first; an unreadable version is taken for the newest.
ERAS: dict[str, tuple[tuple[tuple[int, ...], str], ...]] = {
    "vllm": (((0, 0), "0.3-"), ((0, 4), "0.4+"), ((0, 12), "0.12+")),
    "trtllm": (((0, 0), "0.9-"), ((0, 10), "0.10+"), ((1, 1), "1.1+")),
    "sglang": (((0, 0), "0.4-"), ((0, 5), "0.5+")),
}
# Software known by its year alone was rarely tuned: an era of its own where that shows.
YEAR_ERAS = {"2024": {"vllm": "2024", "trtllm": "0.9-"}, "2025": {"vllm": "0.4+", "trtllm": "0.10+"}}


def engine_era(name: str, version: str | None) -> str:
    """The era of `version`, the engine's newest when it cannot be told, "" for an engine without eras.

    >>> engine_era("vllm", "0.15.1"), engine_era("vllm", "2024, unstated"), engine_era("trtllm", "1.2.0rc6")
    ('0.12+', '2024', '1.1+')
    >>> engine_era("vllm", "0.2-0.3 era, modified"), engine_era("vllm", None), engine_era("sglang", "main")
    ('0.3-', '0.12+', '0.5+')
    """
    text = (version or "").strip()
    year = re.match(r"20\d\d", text)
    if year:
        return YEAR_ERAS.get(year.group(), {}).get(name, "")
    number = re.match(r"v?(\d+)\.(\d+)", text)
    eras = ERAS.get(name, ())
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
