"""Real training steps of small Llamas on all ranks: what the framework's Python adds to its kernels."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from twofold.device.cases import HEAD_DIM, STACKS, Number, Sample, Stack
from twofold.device.kernels import Bench

if TYPE_CHECKING:
    pass

WARM_STEPS, TIMED_STEPS = 1, 3


def training_samples(bench: Bench) -> Iterator[Sample]:
    """Steps of every stack, in two parts: forward with backward, and the optimiser."""
    for stack in STACKS:
        seconds = _steps(bench, stack)
        sizes: dict[str, Number] = {
            "layers": stack.layers,
            "hidden": stack.hidden,
            "vocab": stack.vocab,
            "sequences": stack.sequences,
            "tokens": stack.tokens,
        }
        for index, part in enumerate(("train", "update")):
            yield Sample(part, sizes, tuple(each[index] for each in seconds))


def _steps(bench: Bench, stack: Stack) -> list[tuple[float, float]]:
    import torch

    model = _sharded(small_llama(stack.layers, stack.hidden, stack.vocab), bench)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, stack.vocab, (stack.sequences, stack.tokens), device=bench.device)
    seconds = []
    for _ in range(WARM_STEPS + TIMED_STEPS):
        bench.together()
        began_s = time.perf_counter()
        model(input_ids=tokens, labels=tokens).loss.backward()
        bench.wait()
        differentiated_s = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        bench.wait()
        seconds.append((differentiated_s - began_s, time.perf_counter() - differentiated_s))
    return seconds[WARM_STEPS:]


def _sharded(model: Any, bench: Bench) -> Any:
    """The model as our trainer shards it: each block, then the rest."""
    from torch.distributed.fsdp import fully_shard

    model = model.to(bench.device)
    if bench.rank_count > 1:
        for block in model.model.layers:
            fully_shard(block)
        fully_shard(model)
    return model


def small_llama(layers: int, hidden: int, vocab: int) -> Any:
    """A random Llama in 32 bits with tied embeddings."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = Stack(layers, hidden, vocab, 1, 1)
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=hidden,
            intermediate_size=shape.intermediate,
            num_hidden_layers=layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=HEAD_DIM,
            vocab_size=vocab,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            use_cache=False,
        )
    )
