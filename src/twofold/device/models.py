"""Small Llamas on all ranks, to train and to serve: what a framework and an engine add to their kernels."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from twofold.device.cases import HEAD_DIM, SERVED_VOCAB, Sample, Stack
from twofold.device.kernels import FORMATS, Bench

WARM_STEPS, TIMED_STEPS = 1, 3


def training_samples(bench: Bench) -> Iterator[Sample]:
    """Steps of every stack, in two parts: forward with backward, and the optimiser."""
    for stack in bench.suite.stacks:
        seconds = _steps(bench, stack)
        for index, part in enumerate(("train", "update")):
            yield Sample(part, asdict(stack), tuple(each[index] for each in seconds))


def _steps(bench: Bench, stack: Stack) -> list[tuple[float, float]]:
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = small_llama(stack.layers, stack.hidden, stack.vocab).to(bench.device)
    if bench.rank_count > 1 or bench.is_accelerator:  # as our trainer shards it: each block, then the rest
        half = torch.bfloat16 if bench.suite.format == "bf16" else None
        policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
        for block in (*model.model.layers, model):
            fully_shard(block, mp_policy=policy)
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
            max_position_embeddings=LONGEST_TOKENS,
            tie_word_embeddings=True,
            use_cache=False,
        )
    )


BLOCK_TOKENS, BATCH_TOKENS = 32, 512
LONGEST_TOKENS = 4096  # of a sequence
WORDS = 1000  # of the tokenizer, each one token


def serve_each(bench: Bench, folder: Path) -> Iterator[dict[str, Any]]:
    """Serve each model of the cases in turn; every event says where, and the next waits for an answer."""
    import torch
    import torch.distributed as distributed
    from transformers.utils import logging

    # One replica per rank from here on: the engine would take a group of ranks for its own.
    bench.together()
    distributed.destroy_process_group()
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        os.environ.pop(name, None)
    logging.set_verbosity_error()
    for (layers, hidden), _ in groupby(bench.suite.services, key=lambda each: (each.layers, each.hidden)):
        artefact = folder / f"served-{layers}-{hidden}-{bench.rank}"
        torch.manual_seed(0)
        _write_artefact(artefact, layers, hidden)
        server, port = _start(artefact, bench)
        yield {"event": "serving", "layers": layers, "hidden": hidden, "port": port, "model": str(artefact)}
        server.should_exit = True


def _write_artefact(folder: Path, layers: int, hidden: int) -> None:
    """A checkpoint as the hub has them, with a tokenizer of whole words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    model = small_llama(layers, hidden, SERVED_VOCAB)
    model.config.use_cache = True
    model.generation_config.eos_token_id = None  # every answer is as long as asked
    model.save_pretrained(folder)
    vocabulary = {"<unk>": 0, **{f"w{index}": index for index in range(1, WORDS)}}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(folder)


def _start(artefact: Path, bench: Bench) -> tuple[Any, int]:
    """The engine's server on a free port, in a thread; returns when it listens."""
    import uvicorn

    application = _application(artefact, bench)
    server = uvicorn.Server(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning"))
    listening = threading.Event()
    started: list[int] = []

    async def run() -> None:
        serving = asyncio.ensure_future(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.02)
        started.extend(each.getsockname()[1] for one in server.servers for each in one.sockets)
        listening.set()
        await serving

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
    listening.wait(60.0)
    return server, started[0]


def _application(artefact: Path, bench: Bench) -> Any:
    """What `transformers serve ARTEFACT --continuous-batching` builds, without its command line."""
    from transformers import ContinuousBatchingConfig
    from transformers.cli.serving.chat_completion import ChatCompletionHandler
    from transformers.cli.serving.completion import CompletionHandler
    from transformers.cli.serving.model_manager import ModelManager
    from transformers.cli.serving.response import ResponseHandler
    from transformers.cli.serving.server import build_server
    from transformers.cli.serving.systemone import SystemOneHandler
    from transformers.cli.serving.transcription import TranscriptionHandler
    from transformers.cli.serving.utils import GenerationState

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    manager = ModelManager(
        device=str(bench.device),
        dtype=FORMATS[bench.suite.format],
        continuous_batching=True,
        force_model=str(artefact),
    )
    settings = ContinuousBatchingConfig(
        block_size=BLOCK_TOKENS, num_blocks=bench.suite.kv_block_count, max_batch_tokens=BATCH_TOKENS
    )
    state = GenerationState(continuous_batching=True, compile=False, cb_config=settings)
    parts = {"model_manager": manager, "generation_state": state}
    return build_server(
        manager,
        ChatCompletionHandler(**parts, chat_template_kwargs={}),
        completion_handler=CompletionHandler(**parts),
        response_handler=ResponseHandler(**parts, chat_template_kwargs={}),
        transcription_handler=TranscriptionHandler(manager, state),
        systemone_handler=SystemOneHandler(**parts, chat_template_kwargs={}, decision_config=None),
        generation_state=state,
    )
