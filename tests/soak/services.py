"""Services that faults are done to: of stand-ins with a real tokenizer, or of the real default engine."""

import json
import subprocess
import sys
from pathlib import Path

from tests.live.test_controller import STUB, Served
from tests.live.test_engine_kit import MAKE, TINY
from twofold.live.control.engines import BLOCK_TOKENS, EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.processes import free_port
from twofold.policy.gate import settings as gates

BLOCKS, CONTEXT_TOKENS = 16, 400  # of a cache, and of a model: whichever is less bounds a prompt
PACE_S = 0.02  # of a stand-in's token
# A prompt that engines die of is known by two deaths; what is promised bounds how long silence is waited for.
GATE = gates.GateSettings(
    classes=(gates.ClassSettings("default", ttft_slo_s=2.0, tpot_slo_s=0.5),),
    queue=gates.QueueSettings(),
    retry_budget=gates.RetryBudgetSettings(),
    poison=gates.PoisonSettings(),
)
TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.save(sys.argv[1])
"""


def stub_service(folder: Path, context_tokens: int = CONTEXT_TOKENS) -> Served:
    """Two stand-ins that die of what is beyond their cache, counted by a tokenizer of a token a byte."""
    artefact, orders, program = folder / "model", folder / "orders", folder / "stub"
    artefact.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", TOKENIZER, str(artefact / "tokenizer.json")], check=True)
    told = f"STUB_ORDERS={orders} STUB_CACHE={BLOCKS * BLOCK_TOKENS} STUB_PACE_S={PACE_S}"
    program.write_text(f'#!/bin/sh\n{told} exec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    engine = EngineSettings(str(artefact), "float32", 1, BLOCKS, 64, program=str(program))
    return _served(folder, engine, context_tokens, orders)


def real_service(folder: Path) -> Served:
    """Two replicas of `transformers serve`, on a model of a few thousand numbers."""
    artefact = folder / "model"
    subprocess.run(
        [sys.executable, "-c", MAKE, str(artefact), json.dumps(TINY)], check=True, capture_output=True
    )
    engine = EngineSettings(str(artefact), "float32", 1, BLOCKS, 64)
    return _served(folder, engine, int(TINY["max_position_embeddings"]), folder / "orders")


def _served(folder: Path, engine: EngineSettings, context_tokens: int, orders: Path) -> Served:
    settings = ServiceSettings(
        engine, 2, 8, free_port(), 0.0001, PACE_S, GATE, name="stand-in", context_tokens=context_tokens
    )
    return Served(folder / ".twofold", settings, orders)
