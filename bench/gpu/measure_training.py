"""Training steps of the cases as our trainer runs them: FSDP2 over one rank, bf16 products, fp32 AdamW."""

import gc
import os
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import torch.distributed as distributed
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from bench.gpu import cases
from bench.gpu.timing import kernels_of

WARM_STEPS, TIMED_STEPS = 3, 8
PARTS = ("forward", "backward", "optimiser")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def training(note: Callable[[str, dict[str, Any]], None]) -> None:
    """Every case in turn; `note` hears what each was, or why it could not be."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}
    distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    for each in cases.TRAINING:
        try:
            note(each.id, _steps(each))
        except (RuntimeError, ValueError) as error:  # out of memory is one
            note(each.id, {"error": f"{type(error).__name__}: {error}"[:300]})
        gc.collect()
        torch.compiler.reset()
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
    distributed.destroy_process_group()


def random_model(name: str) -> Any:
    """A model of the Hugging Face library with random fp32 weights, made where it runs."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    layers, hidden, heads, kv_heads, size, ffn, vocab, tied = cases.MODELS[name]
    sizes: dict[str, Any] = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 131072,
        "attn_implementation": "sdpa",
        "use_cache": False,
    }
    with torch.device(DEVICE):
        if name.startswith("qwen"):
            return Qwen2ForCausalLM(Qwen2Config(**sizes))
        return LlamaForCausalLM(LlamaConfig(**sizes, head_dim=size))


def _built(case: cases.Training) -> tuple[Any, Any]:
    model = random_model(case.model)
    model.train()
    if case.recompute == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        if case.compiled:
            layer.compile()
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def _steps(case: cases.Training) -> dict[str, Any]:
    model, optimiser = _built(case)
    shape = (case.sequences, case.tokens + 1)
    tokens = torch.randint(0, cases.MODELS[case.model][6], shape, device=DEVICE)

    def forward() -> torch.Tensor:
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits.float()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    def step() -> None:
        forward().backward()
        update()

    for _ in range(WARM_STEPS):
        step()
    found: dict[str, Any] = {}
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
        parts = [_timed_parts(forward, update) for _ in range(TIMED_STEPS)]
        whole = [sum(each) for each in parts]
        found = {"step_s": median(whole), "step_low_s": min(whole), "step_high_s": max(whole)}
        found |= {
            f"{name}_s": median(each) for name, each in zip(PARTS, zip(*parts, strict=True), strict=True)
        }
        found["allocated_gib"] = torch.cuda.max_memory_allocated() / 2**30
        found["reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
        free_bytes, all_bytes = torch.cuda.mem_get_info()
        found["device_used_gib"] = (all_bytes - free_bytes) / 2**30
        found["kernels"] = kernels_of(step)
    found["parameters"] = sum(each.numel() for each in model.parameters())
    return found


def _timed_parts(forward: Callable[[], torch.Tensor], update: Callable[[], None]) -> list[float]:
    """Forward, backward, update of one step, by the GPU's events: what the host keeps it waiting counts."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    torch.cuda.synchronize()
    marks[0].record()
    loss = forward()
    marks[1].record()
    loss.backward()
    marks[2].record()
    update()
    marks[3].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) / 1e3 for a, b in pairwise(marks)]
