"""The serving software: the constants fitted for an engine, and what a named factor does to them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

from twofold.perf import Constants, Floats, engine_software


@dataclass(frozen=True, slots=True)
class Engine:
    """What the serving software adds to the kernels, from the fitted constants of its name and era."""

    name: str
    era: str
    host_step_s: Floats  # scheduling, sampling, output: per step
    host_layer_s: Floats  # launches and gaps that the graph does not hide: per layer and step
    host_moe_layer_s: Floats  # the same, further per expert layer
    host_sequence_s: Floats  # detokenising and bookkeeping: per decoding sequence and step
    host_factor: Floats  # of the host's time per layer and sequence over the newest era's
    prefill_layer_s: Floats  # a step with prefill runs eagerly: no layer is faster
    eager_fraction: Floats  # of steps without prefill that run so too: 1 before captured graphs
    prefill_factor: Floats  # time of long prefill steps over their kernels': gaps between eager launches
    launch_factor: Floats  # of a kernel's shortest time, where captured graphs launch the next one early
    weight_read_gain: Floats  # rate of streaming over the kernel tables', whose narrow formats lack graphs
    expert_read_gain: Floats
    expert_pad_factor: (
        Floats  # of the rows that a touched expert is padded to, where tiles suit small batches
    )
    device_factor: Floats  # time of all kernels, where a family has no kernel tables
    arithmetic_factor: Floats  # further, of what dense products compute, where kernels were not tuned
    attention_factor: Floats  # further, by kind
    unshared_kv_fraction: Floats  # of a reading of a KV head's cache, that each further query head costs
    moe_factor: Floats
    communication_factor: Floats
    memory_fraction: Floats  # of the device's memory that weights, buffers and cache take together
    first_token_s: Floats  # tokenising, HTTP and streaming before a first token leaves
    first_token_steps: Floats  # further steps before a first token leaves
    reserved_output_fraction: Floats  # of its answer that a running sequence holds room for, on average

    def scaled(self, factors: Mapping[str, Floats]) -> Self:
        """Its own times divided by `host`, the slowness of prefill by `prefill`, and what it adds to
        communication by `communication`; the rest stays.
        """
        host = factors.get("host", 1.0)
        changed = {f.name: getattr(self, f.name) / host for f in fields(self) if f.name.endswith("_s")}
        if "prefill" in factors:
            changed["prefill_factor"] = self.prefill_factor / factors["prefill"]
            changed["prefill_layer_s"] = changed["prefill_layer_s"] / factors["prefill"]
        if "communication" in factors:
            changed["communication_factor"] = self.communication_factor / factors["communication"]
        return replace(self, **changed)


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
    era = engine_software(name).era_of(version)
    scope = {"engine": name, "era": era, "family": family, "model": model, "format": weights_format}
    held = [field.name for field in fields(Engine) if field.name not in ("name", "era")]
    return Engine(name, era, **{each: constants.get(f"serving_{each}", **scope) for each in held})
