"""Prefill and decode steps of dense models by a small loop of our own, replayed from a captured graph.

It is no engine: nothing schedules, samples or answers. Norms, rotations and gates are fused by the compiler,
products and attention are the library's.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional

from bench.gpu import cases
from bench.gpu.timing import captured_s, kernels_of, told

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Note = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Weights:
    """Of one model, random: tables, then those of each layer."""

    embedding: torch.Tensor
    head: torch.Tensor
    norm: torch.Tensor
    layers: tuple[tuple[torch.Tensor, ...], ...]  # qkv, out, gate and up, down


def steps(note: Note) -> None:
    """Every case in turn; `note` hears what each was, or why it could not be."""
    torch._dynamo.config.recompile_limit = 100
    for model in cases.SERVED_MODELS:
        weights = _weights(model)
        for each in cases.STEPS:
            if each.model != model:
                continue
            try:
                note(each.id, _step(each, weights))
            except RuntimeError as error:  # out of memory is one
                note(each.id, {"error": f"{type(error).__name__}: {error}"[:300]})
            gc.collect()
            if DEVICE == "cuda":
                torch.cuda.empty_cache()


def _weights(name: str) -> Weights:
    layers, hidden, heads, kv_heads, size, ffn, vocab, tied = cases.MODELS[name]

    def random(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device=DEVICE, dtype=torch.bfloat16) * 0.02

    embedding = random(vocab, hidden)
    own = tuple(
        (
            random((heads + 2 * kv_heads) * size, hidden),
            random(hidden, heads * size),
            random(2 * ffn, hidden),
            random(hidden, ffn),
        )
        for _ in range(layers)
    )
    return Weights(embedding, embedding if tied else random(vocab, hidden), random(hidden), own)


@torch.compile(dynamic=False)
def _before(
    x: torch.Tensor, norm: torch.Tensor, qkv: torch.Tensor, turn: torch.Tensor, heads: int, kv_heads: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries, and keys with values as one, of tokens: norm, product, rotation."""
    batch, tokens, _ = x.shape
    rows = functional.linear(functional.rms_norm(x, (x.shape[-1],), norm), qkv)
    parts = rows.view(batch, tokens, heads + 2 * kv_heads, -1).transpose(1, 2)
    turned, values = parts[:, : heads + kv_heads], parts[:, heads + kv_heads :]
    half = turned.shape[-1] // 2
    first, second = turned[..., :half].float(), turned[..., half:].float()
    cos, sin = turn.cos(), turn.sin()
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)
    return turned[:, :heads], torch.stack((turned[:, heads:], values))


@torch.compile(dynamic=False)
def _after(
    x: torch.Tensor, attended: torch.Tensor, norm: torch.Tensor, layer: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    """What follows attention in a layer."""
    _, out, gate_up, down = layer
    x = x + functional.linear(attended.transpose(1, 2).flatten(2), out)
    gate, up = functional.linear(functional.rms_norm(x, (x.shape[-1],), norm), gate_up).chunk(2, -1)
    return x + functional.linear(functional.silu(gate) * up, down)


def _step(case: cases.Step, weights: Weights) -> dict[str, Any]:
    layers, _, heads, kv_heads, size, _, vocab, _ = cases.MODELS[case.model]
    batch, fresh = (case.batch, 1) if case.batch else (1, case.tokens)
    ids = torch.randint(0, vocab, (batch, fresh), device=DEVICE)
    turn = torch.rand((fresh, size // 2), device=DEVICE)
    caches = [
        torch.randn((2, batch, kv_heads, case.tokens, size), device=DEVICE, dtype=torch.bfloat16)
        for _ in range(layers if case.batch else 1)
    ]

    def call() -> torch.Tensor:
        x = functional.embedding(ids, weights.embedding)
        for index, layer in enumerate(weights.layers):
            query, pair = _before(x, weights.norm, layer[0], turn, heads, kv_heads)
            if case.batch:
                cache = caches[index]
                cache[:, :, :, -1:] = pair  # the newest token's place, then all are attended
                attended = functional.scaled_dot_product_attention(query, *cache, enable_gqa=True)
            else:
                caches[0].copy_(pair)
                attended = functional.scaled_dot_product_attention(
                    query, *caches[0], is_causal=True, enable_gqa=True
                )
            x = _after(x, attended, weights.norm, layer)
        last = functional.rms_norm(x[:, -1], (x.shape[-1],), weights.norm)
        return functional.linear(last, weights.head).argmax(-1)

    with torch.no_grad():
        found: dict[str, Any] = told(captured_s(call))
        found["kernels"] = kernels_of(call)
        found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else 0.0
    return found
