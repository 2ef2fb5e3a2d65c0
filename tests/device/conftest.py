"""Samples of a machine that does not exist: its seconds are those of `perf` with known constants."""

import sys
from dataclasses import replace
from types import MappingProxyType, ModuleType

import numpy as np
import pytest

from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Accelerator
from twofold.device.cases import (
    ATTENTION_HEADS,
    ATTENTION_KV_HEADS,
    DECODE_ROWS,
    DECODES,
    HALF_SHAPES,
    HEAD_DIM,
    LONG_ANSWER_TOKENS,
    PAYLOAD_BYTES,
    PREFILLS,
    SERVED_VOCAB,
    SERVICES,
    SQUARES,
    STACKS,
    STORED_BYTES,
    WIDE_ROWS,
    Sample,
)
from twofold.device.fit import PASSES
from twofold.device.fit_software import _llama
from twofold.device.measuring import Measured
from twofold.inference.iteration import iteration_s
from twofold.inference.replica import Replica, engine
from twofold.perf import collectives
from twofold.perf.attention import attention_decode_s, attention_prefill_s
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.operators import gemm_s
from twofold.perf.shape import ModelShape
from twofold.perf.types import Cluster, Device
from twofold.training.job import TrainingJob
from twofold.training.layouts import layouts_of
from twofold.training.stack import load_stack
from twofold.training.step import step_time

MEMORY_BYTES_PER_S, FLOPS_PER_S, HALF_FLOPS_PER_S = 10e9, 50e9, 20e9
FLOOR_S, LINK_BYTES_PER_S = 8e-6, 1e9
HOST_LAYER_S, HOST_STEP_S = 4e-3, 9e-3
SERVE_STEP_S, SERVE_LAYER_S, SERVE_SEQUENCE_S = 3e-3, 1e-3, 2e-4
RANKS = 2
COPIED_BYTES = 2**27


@pytest.fixture(scope="session")
def known() -> ModuleType:
    """This module: tests take its constants and samples from here."""
    return sys.modules[__name__]


def accelerator() -> Accelerator:
    """A part with the rates above."""
    like = load_catalog().accelerator("CPU-4-core-AVX2")
    return replace(
        like,
        name="this-machine",
        memory_bytes=8e9,
        memory_bytes_per_s=MEMORY_BYTES_PER_S,
        fp32_flops_per_s=FLOPS_PER_S,
        sm_count=1,
        scaleup_bytes_per_s=LINK_BYTES_PER_S,
        scaleup_domain_count=RANKS,
    )


def true_device() -> Device:
    """It reaches its peaks in everything that is large."""
    part = device(accelerator(), load_constants())
    whole = {"fp32": 1.0, "bf16": HALF_FLOPS_PER_S / FLOPS_PER_S}
    return replace(
        part,
        kernel_floor_s=FLOOR_S,
        memory_efficiency_fraction=1.0,
        gemm_efficiency_fraction=MappingProxyType({**part.gemm_efficiency_fraction, **whole}),
        gemm_memory_efficiency_fraction=MappingProxyType(dict.fromkeys(part.gemm_efficiency_fraction, 0.9)),
        gemm_floor_ratio=MappingProxyType(dict.fromkeys(part.gemm_efficiency_fraction, 1.5)),
        gemm_half_k=20.0,
        gemm_ramp_ratio=0.01,
        attention_efficiency_fraction=0.4,
        attention_memory_efficiency_fraction=1.0,
        attention_tile_s=1e-5,
        attention_floor_s=3e-5,
        decode_efficiency_fraction=0.7,
        decode_tile_s=2e-6,
        decode_floor_s=2e-5,
    )


def true_cluster() -> Cluster:
    links = network(accelerator(), RANKS, 6e7, "ethernet", load_constants())
    links = replace(
        links,
        link_bytes_per_s=LINK_BYTES_PER_S,
        link_latency_s=1e-5,
        link_half_bytes=1e4,
        launch_s=2e-4,
        pair_loss_fraction=0.0,
    )
    return Cluster(true_device(), links, RANKS)


def _same(group: str, sizes: dict[str, float | int | str], seconds: object) -> Sample:
    return Sample(group, sizes, (float(np.max(np.asarray(seconds))),) * 3)


def kernel_samples() -> list[Sample]:
    """Products, memory, attention and calls, to the digit."""
    part = true_device()
    shapes = [("fp32", shape) for shape in (*SQUARES, *WIDE_ROWS, *DECODE_ROWS)]
    shapes += [("bf16", shape) for shape in HALF_SHAPES]
    samples = [_same("launch", {"kind": "add"}, FLOOR_S)]
    samples += [
        _same(name, {"bytes": COPIED_BYTES}, COPIED_BYTES / MEMORY_BYTES_PER_S)
        for name in ("copy", "triad", "read")
    ]
    samples += [
        _same(
            "gemm",
            {"m": m, "n": n, "k": k, "format": fmt, "cold": 8 if (m, n, k) in DECODE_ROWS else 1},
            gemm_s(part, m, n, k, fmt, fmt),
        )
        for fmt, (m, n, k) in shapes
    ]
    for sequences, tokens, heads in PREFILLS:
        seconds = attention_prefill_s(part, sequences, tokens, 0.0, heads, heads, HEAD_DIM, "fp32")
        samples.append(_same("prefill", {"sequences": sequences, "tokens": tokens, "heads": heads}, seconds))
    for sequences, context in DECODES:
        seconds = attention_decode_s(
            part, sequences, context, ATTENTION_HEADS, ATTENTION_KV_HEADS, HEAD_DIM, "fp32"
        )
        samples.append(_same("decode", {"sequences": sequences, "context": context}, seconds))
    return samples


def link_samples() -> list[Sample]:
    links = true_cluster().network
    calls = {
        "all_reduce": collectives.all_reduce_s,
        "all_gather": collectives.all_gather_s,
        "reduce_scatter": collectives.reduce_scatter_s,
    }
    samples = [
        _same(name, {"bytes": size}, calls[name](links, size, RANKS))
        for size in PAYLOAD_BYTES
        for name in PASSES
    ]
    return samples + [_same("store", {"bytes": size}, 1e-3 + size / 1e9) for size in STORED_BYTES]


def training_samples() -> list[Sample]:
    stack = replace(
        load_stack(load_constants(), "torchtitan", "fp32", "cpu"),
        host_layer_s=HOST_LAYER_S,
        host_step_s=HOST_STEP_S,
        kernel_factor=1.1,
        elementwise_factor=2.0,
        optimizer_bytes_factor=3.0,
        dp_overlap_fraction=0.0,
        attention_factor=1.0,
        sharded_dp_factor=1.5,
    )
    samples = []
    for case in STACKS:
        model = _llama(case.layers, case.hidden, case.vocab)
        job = TrainingJob(model, "pretrain", case.tokens, case.sequences * RANKS, "fp32")
        layout = layouts_of([(1, 1, 1, 1, 1, RANKS, 3, case.sequences, 0, 0)])
        step = step_time(job.workload, "fp32", layout, true_cluster(), stack)
        update_s = float(np.max(step.optimizer_s)) + HOST_STEP_S
        sizes: dict[str, float | int | str] = {name: getattr(case, name) for name in case.__slots__}
        samples.append(_same("train", sizes, float(np.max(step.total_s)) - update_s))
        samples.append(_same("update", sizes, update_s))
    return samples


def serving_samples() -> list[Sample]:
    software = replace(
        engine(load_constants(), "transformers", None, family="cpu", weights_format="fp32"),
        host_step_s=SERVE_STEP_S,
        host_layer_s=SERVE_LAYER_S,
        host_sequence_s=SERVE_SEQUENCE_S,
        launch_factor=1.0,
        weight_read_gain=1.0,
        device_factor=1.0,
        attention_factor=1.0,
        prefill_factor=1.0,
        prefill_layer_s=0.0,
    )
    samples = []
    for case in SERVICES:
        shape = ModelShape.of(_llama(case.layers, case.hidden, SERVED_VOCAB))
        alone = replace(true_cluster(), accelerator_count=1)
        replica = Replica(shape, alone, software, "fp32", "fp32", "fp32")
        context = case.prompt + LONG_ANSWER_TOKENS / 2
        step = iteration_s(replica, 0.0, 0.0, float(case.requests), context)
        sizes: dict[str, float | int | str] = {
            "layers": case.layers,
            "hidden": case.hidden,
            "requests": case.requests,
            "prompt": case.prompt,
        }
        prefill = iteration_s(replica, float(case.prompt), case.prompt / 2, 0.0, 0.0)
        samples.append(_same("step", sizes, step.total_s))
        samples.append(_same("first", sizes, np.asarray(prefill.total_s) + 0.02))
    return samples


def measured(rank_count: int = RANKS) -> Measured:
    """All of it, as `measure` returns it."""
    samples = [*kernel_samples(), *link_samples(), *training_samples(), *serving_samples()]
    return Measured(tuple(samples), rank_count, 1, "torch 9", "", None, None, 1.0, 5 * 10**8, 0.1)
