"""Serving: what fits, how long a step takes, what a load costs in latency, and how many replicas meet an SLO."""

from twofold.inference.disaggregated import disaggregated
from twofold.inference.engine import default_activation_format, engine, engine_era
from twofold.inference.iteration import exchange_bytes_per_token, iteration_s, tokens_per_step
from twofold.inference.load import (
    Latency,
    Lengths,
    Served,
    at_batch,
    batch_limit,
    closed_loop,
    max_throughput,
    open_loop,
    static_batch,
)
from twofold.inference.memory import (
    WeightsBytes,
    capacity,
    kv_bytes,
    kv_bytes_per_token,
    max_sequences,
    weights_bytes,
)
from twofold.inference.shape import ModelShape, model_shape, stack_shapes
from twofold.inference.types import CacheOptions, Capacity, Engine, Iteration, Replica

__all__ = [
    "CacheOptions",
    "Capacity",
    "Engine",
    "Iteration",
    "Latency",
    "Lengths",
    "ModelShape",
    "Replica",
    "Served",
    "WeightsBytes",
    "at_batch",
    "batch_limit",
    "capacity",
    "closed_loop",
    "default_activation_format",
    "disaggregated",
    "engine",
    "engine_era",
    "exchange_bytes_per_token",
    "iteration_s",
    "kv_bytes",
    "kv_bytes_per_token",
    "max_sequences",
    "max_throughput",
    "model_shape",
    "open_loop",
    "stack_shapes",
    "static_batch",
    "tokens_per_step",
    "weights_bytes",
]
