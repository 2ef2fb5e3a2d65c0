"""What the real default engine's model takes: time to load its weights, memory of its cache."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

from twofold.catalog.model_config import read_model_config
from twofold.contracts.results import served
from twofold.live.loads.serving_figures import growth_of
from twofold.perf.shape import ModelShape

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 4096,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
# Returns what it frees: what stays is what the cache holds.
PLAIN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
LOAD = """
import json, sys, time
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from twofold.live.control.trials import forget_files
folder = Path(sys.argv[1])
if sys.argv[2] == "make":
    config = LlamaConfig(**json.loads((folder / "config.json").read_text()))
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    sys.exit()
files = sorted(folder.glob("*.safetensors"))
def loaded():
    began = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for weight in model.parameters():
        weight.sum()  # files that are mapped are read when they are used
    return time.perf_counter() - began
def read():
    forget_files(files)
    began = time.perf_counter()
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while opened.read(1 << 20):
                pass
    return time.perf_counter() - began
loaded()
reads, colds, warms = [], [], []
for _ in range(5):
    reads.append(read())
    warms.append(loaded())
    forget_files(files)
    colds.append(loaded())
print(json.dumps([sum(file.stat().st_size for file in files), reads, colds, warms]))
"""
CACHE = """
import json, sys
import psutil, torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig
torch.set_num_threads(1)
config = LlamaConfig(**json.loads(sys.argv[1]))
model, held, own = AutoModelForCausalLM.from_config(config).eval(), [], psutil.Process()
with torch.no_grad():
    for clients, tokens in json.loads(sys.argv[2]):
        cache = DynamicCache()
        before = own.memory_info().rss
        asked = torch.randint(0, config.vocab_size, (clients, tokens))
        out = model(asked, past_key_values=cache, use_cache=True, logits_to_keep=1)
        del out
        held.append((clients * tokens, before, own.memory_info().rss))
        del cache
print(json.dumps(held))
"""


def said_by(program: str, *words: str) -> str:
    import os

    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **PLAIN_MEMORY},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1] if done.stdout else ""


def shape(folder: Path) -> ModelShape:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return ModelShape.of(read_model_config(folder / "config.json"))


def test_r_061_a_small_models_load_takes_its_bytes_over_bandwidth_and_its_warm_up(tmp_path: Path) -> None:
    """Cold: its file put out of the file cache. The least of five each: others only ever add time."""
    weights = shape(tmp_path).weights_bytes("fp32").total_bytes
    said_by(LOAD, str(tmp_path), "make")
    size_bytes, reads_s, colds_s, warms_s = json.loads(said_by(LOAD, str(tmp_path), "load"))
    assert float(weights) == pytest.approx(size_bytes, rel=0.01)
    predicted_s = float(weights) / (size_bytes / min(reads_s)) + min(warms_s)
    assert min(colds_s) == pytest.approx(predicted_s, rel=0.35), (reads_s, colds_s, warms_s)


def test_r_125_memory_grows_by_the_formula_with_lengths_and_with_clients(tmp_path: Path) -> None:
    """Resident memory of a process with transformers' own cache, by the fit that `measure serve` makes."""
    pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
    formula = float(shape(tmp_path).kv_bytes_per_token("fp32"))
    for cases in ([(1, 256), (1, 512), (1, 1024), (1, 2000)], [(1, 256), (2, 256), (4, 256), (8, 256)]):
        held = json.loads(said_by(CACHE, json.dumps(CONFIG), json.dumps(cases)))
        loads = [
            served.ServedLoad(
                f"closed-{tokens}", "closed", peak_held_tokens=tokens, memory_peak_bytes=after - before
            )
            for tokens, before, after in held
        ]
        growth = growth_of(loads)
        assert growth is not None
        assert growth.bytes_per_token == pytest.approx(formula, rel=0.05), (formula, held)
