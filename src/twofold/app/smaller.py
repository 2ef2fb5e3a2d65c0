"""What answers in need beside a service of this machine: a smaller model out of the registry."""

import json
from typing import Any

from twofold.app.loop_settings import LoopRequest, longest_of
from twofold.app.registering import quantise_version
from twofold.app.releasing import BY, engine_of_release, taken
from twofold.core.errors import ValueRefusedError
from twofold.live.control.service import SmallerModel
from twofold.live.registry.registry import SERVING, Registry


def smaller_model(request: LoopRequest) -> SmallerModel | None:
    """The version that the spec names, or a copy of what serves with narrower weights, made once.

    What is under trial is not made smaller. Raises ValueRefusedError for a model that holds shorter requests,
    AlteredError, UnknownNameError, and what `registry quantise` raises.
    """
    told = request.serving.smaller
    if told is None:
        return None
    opened = Registry(request.registry)
    try:
        reference = told.model.registry if told.model is not None else None
        if reference is None:
            reference = _narrower(opened, f"{request.model_name}@{SERVING}", str(told.quantisation), request)
        release = taken(request.state, opened, reference, request.progress)
    finally:
        opened.close()
    holds, needed = longest_of(release.folder / "config.json"), longest_of(request.serving.model_config)
    if holds < needed:
        what = f"`{told.label}` holds {holds:,} tokens, and the service's own model {needed:,}"
        raise ValueRefusedError(what, hint="name a model for `smaller` whose context is as long")
    return SmallerModel(told.label, engine_of_release(request, release), told.replicas)


def _narrower(opened: Registry, reference: str, quantisation: str, request: LoopRequest) -> str:
    """The name of a version's copy with such weights: of the one that was made before, else of a new one."""
    source, bits = opened.trusted(reference).version, quantisation.removeprefix("int")
    for each in opened.tables.versions(source.name):
        if opened.describe(each.text).quantised_from == source.digest and _bits(opened, each.text) == bits:
            return each.text
    request.progress(f"make an {quantisation} copy of {source.text}")
    return quantise_version(source.text, request.registry, BY, bits).version.version.text


def _bits(opened: Registry, reference: str) -> str:
    """How wide the weights of a copy that was made here are; "" where it does not say."""
    told: Any = json.loads(opened.config_of(reference).read_text("utf-8"))
    groups = told.get("quantization_config", {}).get("config_groups", {}).values()
    return next((str(each.get("weights", {}).get("num_bits", "")) for each in groups), "")
