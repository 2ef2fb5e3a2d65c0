"""How much memory a process of transformers takes for each token that its cache holds, beside the formula.

Run as `python -m bench.memory_growth`. Contexts grow by small pieces in one process, and a line is fitted
through what it holds after each: what one pass over a long prompt takes is kept by the libraries beneath and
grows with its length, so that a process that reads each length in one pass holds some 12 % more a token.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from twofold.catalog.model_config import read_model_config
from twofold.contracts.results.served import ServedLoad
from twofold.core.errors import MissingExtraError
from twofold.core.extras import require_extra
from twofold.live.loads.serving_figures import growth_of
from twofold.perf.shape import ModelShape

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
CASES = {"one context": (1, 1536), "eight contexts": (8, 192), "half the heads": (1, 1536)}
PIECE_TOKENS = 64
# What is freed goes back to the system: what stays is held.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
PROGRAM = """
import json, sys
import psutil, torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig
torch.set_num_threads(1)
said, clients, tokens, piece = json.loads(sys.argv[1])
config = LlamaConfig(**said)
model, own = AutoModelForCausalLM.from_config(config).eval(), psutil.Process()
caches, held = [DynamicCache() for _ in range(clients)], []
with torch.no_grad():
    for _ in range(tokens // piece):
        for cache in caches:
            asked = torch.randint(0, config.vocab_size, (1, piece))
            out = model(asked, past_key_values=cache, use_cache=True, logits_to_keep=1)
            del out
            held.append((sum(each.get_seq_length() for each in caches), own.memory_info().rss))
print(json.dumps(held))
"""


@dataclass(frozen=True, slots=True)
class Grew:
    """What was fitted, beside the formula, in bytes per token."""

    case: str
    fitted: float
    formula: float

    @property
    def line(self) -> str:
        """One row."""
        off = self.fitted / self.formula - 1.0
        return f"{self.case}: {self.fitted:,.0f} bytes/token, formula {self.formula:,.0f}, off {off:+.1%}"


def grew(case: str) -> Grew:
    """Grow the contexts of a case in a process of its own. Raises RuntimeError where that ends early."""
    clients, tokens = CASES[case]
    config = {**CONFIG, "num_key_value_heads": 4 if case == "half the heads" else 8}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([config, clients, tokens, PIECE_TOKENS])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **ENVIRONMENT},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    held = json.loads(done.stdout.splitlines()[-1])
    held = held[len(held) // 8 :]  # the first ones load code, and fill what is kept for a piece
    loads = [
        ServedLoad(f"closed-{tokens}", "closed", peak_held_tokens=tokens, memory_peak_bytes=rss)
        for tokens, rss in held
    ]
    growth = growth_of(loads)
    assert growth is not None
    return Grew(case, growth.bytes_per_token, _formula(config))


def _formula(config: dict[str, object]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        return float(ModelShape.of(read_model_config(path)).kv_bytes_per_token("fp32"))


if __name__ == "__main__":
    try:
        require_extra("train", "live")
    except MissingExtraError as error:
        sys.exit(str(error))
    for name in CASES:
        print(grew(name).line)
