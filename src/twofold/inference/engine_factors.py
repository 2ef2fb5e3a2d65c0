"""What a named factor does to serving software: the same name means the same in draws and in calibration."""

from collections.abc import Mapping
from dataclasses import fields, replace

from twofold.inference.types import Engine
from twofold.perf import Floats


def scale_engine(engine: Engine, factors: Mapping[str, Floats]) -> Engine:
    """Software with its own times divided by `host`, the slowness of prefill by `prefill`, and what it adds
    to communication by `communication`; the rest stays.
    """
    host = factors.get("host", 1.0)
    timed = [f.name for f in fields(Engine) if f.name.endswith("_s")]
    changed = {name: getattr(engine, name) / host for name in timed}
    if "prefill" in factors:
        changed["prefill_factor"] = engine.prefill_factor / factors["prefill"]
        changed["prefill_layer_s"] = changed["prefill_layer_s"] / factors["prefill"]
    if "communication" in factors:
        changed["communication_factor"] = engine.communication_factor / factors["communication"]
    return replace(engine, **changed)
