"""Fit what serving engines add to the kernels: host times by engine and era, eager floors, a few factors.

Kernel efficiencies stay pinned. Everything is in logarithms: a robust loss on log(predicted / measured) with
equal weight per source, and a ridge that pulls each constant to its parent.
"""

from twofold.core import Source
from twofold.perf import ConstantRow

FITTED_BY = "inference"

# (name, scope): value, and the factor that its 80 % range spans either way. What no row can tell stays here.
PRIORS: dict[tuple[str, str], tuple[float, float]] = {
    ("serving_host_step_s", ""): (1e-3, 4.0),
    ("serving_host_step_s", "engine=vllm"): (1e-3, 3.0),
    ("serving_host_step_s", "engine=trtllm"): (1e-3, 3.0),
    ("serving_host_step_s", "engine=sglang"): (1e-3, 3.0),
    ("serving_host_layer_s", ""): (15e-6, 4.0),
    ("serving_host_layer_s", "engine=vllm"): (15e-6, 3.0),
    ("serving_host_layer_s", "engine=vllm;era=0.3-"): (400e-6, 2.0),
    ("serving_host_layer_s", "engine=vllm;era=0.4+"): (40e-6, 3.0),
    ("serving_host_layer_s", "engine=vllm;era=0.8+"): (15e-6, 3.0),
    ("serving_host_layer_s", "engine=vllm;era=0.12+"): (5e-6, 3.0),
    ("serving_host_layer_s", "engine=trtllm"): (15e-6, 3.0),
    ("serving_host_layer_s", "engine=trtllm;era=0.9-"): (15e-6, 3.0),
    ("serving_host_layer_s", "engine=sglang"): (15e-6, 3.0),
    ("serving_host_moe_layer_s", ""): (20e-6, 4.0),
    ("serving_host_moe_layer_s", "engine=vllm"): (40e-6, 3.0),
    ("serving_host_moe_layer_s", "engine=trtllm"): (20e-6, 3.0),
    ("serving_host_moe_layer_s", "engine=sglang"): (20e-6, 3.0),
    ("serving_host_sequence_s", ""): (10e-6, 4.0),
    ("serving_host_sequence_s", "engine=vllm"): (10e-6, 3.0),
    ("serving_host_sequence_s", "engine=vllm;era=0.4+"): (40e-6, 3.0),
    ("serving_host_sequence_s", "engine=vllm;era=0.12+"): (3e-6, 3.0),
    ("serving_host_sequence_s", "engine=trtllm"): (10e-6, 3.0),
    ("serving_host_sequence_s", "engine=sglang"): (5e-6, 3.0),
    ("serving_prefill_layer_s", ""): (300e-6, 3.0),
    ("serving_prefill_layer_s", "engine=vllm"): (400e-6, 3.0),
    ("serving_prefill_layer_s", "engine=trtllm"): (300e-6, 3.0),
    ("serving_prefill_layer_s", "engine=sglang"): (300e-6, 3.0),
    ("serving_gemm_factor", ""): (1.0, 1.3),
    ("serving_attention_factor", ""): (1.0, 1.5),
    ("serving_moe_factor", ""): (1.0, 1.5),
    ("serving_communication_factor", ""): (1.0, 1.5),
    ("serving_first_token_s", ""): (10e-3, 4.0),
    ("serving_first_token_s", "engine=vllm"): (10e-3, 4.0),
    ("serving_first_token_s", "engine=trtllm"): (10e-3, 4.0),
    ("serving_first_token_s", "engine=sglang"): (20e-3, 4.0),
    ("serving_first_token_steps", ""): (0.5, 4.0),
    ("interval_serving_low", ""): (0.5, 1.5),
    ("interval_serving_high", ""): (2.0, 1.5),
}
UNITS = {
    "_s": "s",
    "_factor": "ratio",
    "_steps": "count",
    "_ratio": "ratio",
    "_low": "ratio",
    "_high": "ratio",
}


def prior_rows() -> list[ConstantRow]:
    """The constants before any fit: physics and published leads, marked assumed."""
    return [
        ConstantRow(
            name=name,
            scope=scope,
            value=value,
            low=value / spread,
            high=value * spread,
            unit=next(unit for ending, unit in UNITS.items() if name.endswith(ending)),
            source=Source.ASSUMED,
            rows=0,
            fitted_by=FITTED_BY,
            note="prior",
        )
        for (name, scope), (value, spread) in PRIORS.items()
    ]
