"""`python -m bench.gpu.predict OUT.json`: what the shipped constants say of every case, before any is run."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from bench.gpu import cases
from twofold.answer import loads
from twofold.answer.stacks import cluster_on, engine_on
from twofold.answer.uncertainty import HIGH_PERCENTILE, LOW_PERCENTILE, draw_factors
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.device.fit_software import PLAIN_ENGINE
from twofold.inference.replica import Engine, replica_of
from twofold.measure.predict_inference import predict_inference
from twofold.measure.predict_training import predict_training
from twofold.perf.attention import attention_decode_s, attention_prefill_s
from twofold.perf.constants import Constants, load_constants
from twofold.perf.operators import elementwise_s, gemm_s
from twofold.perf.shape import ModelShape
from twofold.perf.types import Cluster, Device

ACCELERATORS = ("H100-SXM5-80GB", "H200-SXM5-141GB")
HOSTLESS = {f"serving_host_{name}_s": 0.0 for name in ("step", "layer", "sequence")}


def main() -> None:
    """Write the predictions of all cases on every part that the machine may turn out to be."""
    catalog, constants = load_catalog(), load_constants()
    found = {name: _on(name, catalog, constants) for name in ACCELERATORS}
    told = {"constants": constants.digest, "accelerators": found}
    Path(sys.argv[1]).write_text(json.dumps(told, indent=1) + "\n", "utf-8")


def _on(name: str, catalog: Catalog, constants: Constants) -> dict[str, Any]:
    cluster = cluster_on(catalog.accelerator(name), 8, 50e9, "infiniband", constants, 1)
    return {
        "kernels": dict(_kernels(_drawn(cluster, constants).device)),
        "training": _training(name, catalog, constants),
        "steps": dict(_steps(cluster, catalog, constants)),
        "static": _static(name, catalog, constants),
        "served": _served(name, catalog, constants),
    }


def _drawn(cluster: Cluster, constants: Constants) -> Cluster:
    """The part under the draws of what is not known of its kernels: the first is as shipped."""
    draws = draw_factors(constants)
    compute, memory = (
        np.concatenate([np.ones((1, 1)), draws[each]]) for each in ("compute", "memory_bandwidth")
    )
    device = cluster.device
    peaks = {fmt: peak * compute for fmt, peak in device.peak_flops_per_s.items()}
    drawn = replace(
        device,
        peak_flops_per_s=MappingProxyType(peaks),
        memory_bytes_per_s=device.memory_bytes_per_s * memory,
    )
    return replace(cluster, device=drawn)


def _range(seconds: Any) -> dict[str, float]:
    """The value as shipped and the 80 % range of the draws."""
    rows = np.ravel(np.asarray(seconds, float))
    low, high = np.percentile(rows[1:], (LOW_PERCENTILE, HIGH_PERCENTILE))
    return {"value": float(rows[0]), "low": float(low), "high": float(high)}


def _kernels(part: Device) -> Iterator[tuple[str, dict[str, float]]]:
    products = (*cases.SQUARES, *cases.TRAINING_PRODUCTS, *cases.DECODE_PRODUCTS)
    formats = [("bf16", each) for each in products] + [("fp8", each) for each in cases.NARROW_PRODUCTS]
    for fmt, (m, n, k) in formats:
        yield f"gemm-{fmt}-{m}x{n}x{k}", _range(gemm_s(part, m, n, k, fmt))
    for sequences, tokens, heads, kv_heads, size in cases.PREFILLS:
        seconds = attention_prefill_s(part, sequences, tokens, 0, heads, kv_heads, size, "bf16")
        yield f"prefill-{sequences}x{tokens}-{heads}-{kv_heads}-{size}", _range(seconds)
    for batch, context, heads, kv_heads, size in cases.DECODES:
        seconds = attention_decode_s(part, batch, context, heads, kv_heads, size, "bf16")
        yield f"decode-{batch}x{context}-{heads}-{kv_heads}-{size}", _range(seconds)
    for name, rows, columns, values in cases.PASSES:
        seconds = elementwise_s(part, 2.0 * rows * columns * values)
        yield f"pass-{name}-{rows}x{columns}", _range(seconds)


def _training(name: str, catalog: Catalog, constants: Constants) -> dict[str, dict[str, str]]:
    """Rows as `predict training` reads and answers them."""
    rows = [
        {
            "id": each.id,
            "model": each.model,
            "gpu": name,
            "gpus": "1",
            "gpus_per_node": "8",
            "framework": "torchtitan",  # FSDP2, as its loop is
            "precision": "bf16",
            **dict.fromkeys(("dp", "tp", "pp", "cp"), "1"),
            "zero_stage": "3",
            "micro_batch": str(each.sequences),
            "global_batch_seqs": str(each.sequences),
            "seq_len": str(each.tokens),
            "recompute": each.recompute,
        }
        for each in cases.TRAINING
    ]
    return _answers(rows, predict_training(rows, catalog, constants))


def _answers(asked: list[dict[str, str]], answered: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    return {
        row["id"]: {
            key: value
            for key, value in answer.items()
            if key.startswith("pred_") and not key.endswith("_95") and value
        }
        for row, answer in zip(asked, answered, strict=True)
    }


def _steps(
    cluster: Cluster, catalog: Catalog, constants: Constants
) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """The operators' sum, with nothing of an engine's; and a step of vLLM, its host included."""
    drawn = _drawn(cluster, constants)
    _, vllm = engine_on(cluster, "vllm", constants)
    plain = {name.removeprefix("serving_"): value for name, value in (PLAIN_ENGINE | HOSTLESS).items()}
    bare: dict[str, Any] = {name: value for name, value in plain.items() if hasattr(vllm, name)}
    engines: dict[str, Engine] = {"operators": replace(vllm, **bare), "vllm": vllm}
    for each in cases.STEPS:
        shape = ModelShape.of(catalog.model(each.model))
        found = {}
        for name, engine in engines.items():
            replica = replica_of(shape, drawn, engine, "bf16", "bf16")
            step = (
                loads.decode_step(replica, float(each.batch), float(each.tokens))
                if each.batch
                else loads.prefill_step(replica, float(each.tokens))
            )
            found[name] = _range(step.total_s)
        yield each.id, found


def _static(name: str, catalog: Catalog, constants: Constants) -> dict[str, dict[str, str]]:
    """The same decode steps as rows of vLLM with a static batch: what a user would be told, 80 % range."""
    rows = [
        _row(each.id, each.model, name, "vllm", max(each.batch, 1), each.tokens, 2) | {"mode": "offline"}
        for each in cases.STEPS
    ]
    return _answers(rows, predict_inference(rows, catalog, constants))


def _served(name: str, catalog: Catalog, constants: Constants) -> dict[str, dict[str, str]]:
    model, prompt, answer, clients = cases.SERVED
    rows = [_row(f"served-{each}", model, name, "transformers", each, prompt, answer) for each in clients]
    rows = [row | {"max_batch": "", "mode": "online"} for row in rows]
    return _answers(rows, predict_inference(rows, catalog, constants))


def _row(
    row_id: str, model: str, gpu: str, engine: str, batch: int, prompt: int, answer: int
) -> dict[str, str]:
    return {
        "id": row_id,
        "model": model,
        "gpu": gpu,
        "gpus_total": "1",
        "framework": engine,
        "framework_version": "0.15.0" if engine == "vllm" else "5.23.0",
        "precision_weights": "bf16",
        "precision_kv": "bf16",
        "tp": "1",
        "isl_mean": str(prompt),
        "osl_mean": str(answer),
        "isl_dist": "fixed",
        "concurrency": str(batch),
        "max_batch": str(batch),
    }


if __name__ == "__main__":
    main()
