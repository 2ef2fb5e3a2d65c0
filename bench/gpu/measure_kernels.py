"""Products, attention and passes of the cases, each alone, out of a captured graph. Needs torch."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.gpu import cases
from bench.gpu.timing import captured_s, told

COLD_BYTES = 2**29  # of inputs that calls take turns among: ten times the cache
MOST_TURNS = 64
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Case = tuple[str, Callable[[], list[float]]]


def kernels() -> dict[str, dict[str, Any]]:
    """Seconds of every case by its name; what cannot be run says why."""
    found: dict[str, dict[str, Any]] = {}
    with torch.no_grad():
        for name, run in (*_products(), *_prefills(), *_decodes(), *_passes()):
            try:
                found[name] = told(run())
            except RuntimeError as error:
                found[name] = {"error": str(error)[:200]}
    return found


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, device=DEVICE, dtype=torch.bfloat16)


def _turns(size_bytes: float) -> int:
    return max(1, min(MOST_TURNS, round(COLD_BYTES / size_bytes)))


def _products() -> Iterator[Case]:
    for m, n, k in (*cases.SQUARES, *cases.TRAINING_PRODUCTS, *cases.DECODE_PRODUCTS):
        yield f"gemm-bf16-{m}x{n}x{k}", partial(_product_s, m, n, k)
    for m, n, k in cases.NARROW_PRODUCTS:
        yield f"gemm-fp8-{m}x{n}x{k}", partial(_narrow_s, m, n, k)


def _product_s(m: int, n: int, k: int) -> list[float]:
    rows, count = _random(m, k), _turns(2.0 * n * k)
    weights = cycle([_random(n, k) for _ in range(count)])
    return captured_s(lambda: functional.linear(rows, next(weights)), count)


def _narrow_s(m: int, n: int, k: int) -> list[float]:
    rows, count = _random(m, k).to(torch.float8_e4m3fn), _turns(1.0 * n * k)
    weights = cycle([_random(n, k).to(torch.float8_e4m3fn) for _ in range(count)])
    one = torch.ones((), device=DEVICE)

    def call() -> torch.Tensor:
        how = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return torch._scaled_mm(rows, next(weights).t(), **how)

    return captured_s(call, count)


def _attention_s(shape: tuple[int, ...], queries: int, backend: SDPBackend | None) -> list[float]:
    """`shape` is sequences, keys, heads, kv heads, head size; inputs take turns."""
    sequences, keys, heads, kv_heads, size = shape
    count = _turns(4.0 * sequences * keys * kv_heads * size)
    count = min(count, 8) if queries > 1 else count
    inputs = cycle(
        [
            (
                _random(sequences, heads, queries, size),
                _random(sequences, kv_heads, keys, size),
                _random(sequences, kv_heads, keys, size),
            )
            for _ in range(count)
        ]
    )

    def call() -> torch.Tensor:
        return functional.scaled_dot_product_attention(*next(inputs), is_causal=queries > 1, enable_gqa=True)

    if backend is None:
        return captured_s(call, count)
    with sdpa_kernel(backend):
        return captured_s(call, count)


BACKENDS = (("", None), ("@flash", SDPBackend.FLASH_ATTENTION))


def _prefills() -> Iterator[Case]:
    for shape in cases.PREFILLS:
        sequences, tokens, heads, kv_heads, size = shape
        for end, backend in BACKENDS:
            name = f"prefill-{sequences}x{tokens}-{heads}-{kv_heads}-{size}{end}"
            yield name, partial(_attention_s, shape, tokens, backend)


def _decodes() -> Iterator[Case]:
    for shape in cases.DECODES:
        batch, context, heads, kv_heads, size = shape
        for end, backend in BACKENDS:
            name = f"decode-{batch}x{context}-{heads}-{kv_heads}-{size}{end}"
            yield name, partial(_attention_s, shape, 1, backend)


def _passes() -> Iterator[Case]:
    for name, rows, columns, values in cases.PASSES:
        yield f"pass-{name}-{rows}x{columns}", partial(_pass_s, name, rows, columns, values)


def _pass_s(name: str, rows: int, columns: int, values: int) -> list[float]:
    count = _turns(2.0 * rows * columns * values)
    inputs = cycle([tuple(_random(rows, columns) for _ in range(values)) for _ in range(count)])
    weight = _random(columns)

    def call() -> torch.Tensor:
        first, *rest = next(inputs)
        if name == "copy":
            return rest[0].copy_(first)
        if name == "add":
            return torch.add(first, rest[0], out=rest[1])
        if name == "multiply":
            return torch.mul(first, rest[0], out=rest[1])
        if name == "silu":
            return functional.silu(first)
        return functional.rms_norm(first, (columns,), weight)

    return captured_s(call, count)
