"""A bundle with the extras serves its model where there is no network: `make test-bundle`."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live.test_engine_kit import MAKE, TINY
from twofold.app.bundling import bundle
from twofold.core.display import format_bytes
from twofold.live.processes import free_port
from twofold.live.registry.registry import Registry

pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

LOOPBACK = Path(__file__).parents[1] / "loopback_only.py"
SERVED = TINY | {
    "max_position_embeddings": 512,
    "eos_token_id": 256,
    "pad_token_id": 257,
    "bos_token_id": None,
}
SPEC = """
name: bundled
serving:
  model: chat@serving
  quantisation: fp32
  kv_quantisation: fp32
  engine: transformers
  classes:
    chat:
      traffic: {rate: 1 /s, input: {mean: 32 tok, p95: 64 tok}, output: {mean: 8 tok, p95: 16 tok}}
      slo: {ttft_p95: 5 s}
  on: 1xthis-machine
"""
THERE = """
set -eu
if python3 -c "import socket; socket.create_connection(('192.0.2.1', 80), 2)" 2>/dev/null; then exit 9; fi
python3 -I "$BUNDLE/install.py" "$SITE/venv"
echo installed >> "$SITE/stages"
PATH="$SITE/venv/bin:$PATH"
cd "$SITE"
twofold registry push "$BUNDLE/model" chat --by ann
twofold registry evaluate chat --on held-out.jsonl --by ann
twofold registry approve chat --by bob --why "read the report"
twofold registry promote chat --by ann
echo promoted >> "$SITE/stages"
twofold up twofold.yaml --port "$PORT" || { tail -n 40 .twofold/logs/*; twofold down twofold.yaml; exit 7; }
echo up >> "$SITE/stages"
python3 - <<'ASK' > answer.json || { twofold down twofold.yaml; exit 8; }
import json, os, urllib.request
base = f"http://127.0.0.1:{os.environ['PORT']}/v1"
[model] = json.load(urllib.request.urlopen(f"{base}/models", timeout=60))["data"]
asked = {"model": model["id"], "prompt": "the quick brown fox", "max_tokens": 8, "temperature": 0}
kind = {"content-type": "application/json"}
request = urllib.request.Request(f"{base}/completions", json.dumps(asked).encode(), kind)
print(urllib.request.urlopen(request, timeout=120).read().decode())
ASK
twofold down twofold.yaml
echo down >> "$SITE/stages"
"""


def test_a_bundle_with_the_extras_serves_its_model_where_there_is_no_network(tmp_path: Path) -> None:
    if os.environ.get("TWOFOLD_BUNDLE_SERVES") != "1":
        pytest.skip("downloads the wheels of two extras: `make test-bundle`")
    if subprocess.run([sys.executable, str(LOOPBACK), "true"], capture_output=True, check=False).returncode:
        pytest.skip("a namespace without a network is not allowed here: run it as root")
    made = [sys.executable, "-c", MAKE, str(tmp_path / "source"), json.dumps(SERVED)]
    subprocess.run(made, check=True, capture_output=True)
    registry = Registry(tmp_path / "registry", make=True)
    registry.push(tmp_path / "source", "chat", "ann")
    began_s = time.monotonic()
    shown = bundle("chat", tmp_path / "made", registry.folder, None, None, lambda _: None, ("live", "train"))
    print(f"bundled {format_bytes(shown.size_bytes)} in {time.monotonic() - began_s:.0f} s")
    moved = shutil.move(tmp_path / "made", tmp_path / "elsewhere")
    site = tmp_path / "site"
    site.mkdir()
    (site / "twofold.yaml").write_text(SPEC)
    text = " ".join(f"word {number} comes before {number + 1}." for number in range(400))
    (site / "held-out.jsonl").write_text(json.dumps({"text": text}))
    clean = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "BUNDLE": str(moved),
        "SITE": str(site),
        "PORT": str(free_port()),
    }
    began_s = time.monotonic()
    command = [sys.executable, str(LOOPBACK), "sh", "-c", THERE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=clean)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    print(f"installed, served and taken down in {time.monotonic() - began_s:.0f} s")
    assert (site / "stages").read_text().split() == ["installed", "promoted", "up", "down"]
    answer = json.loads((site / "answer.json").read_text())
    assert registry.find("chat").digest.replace(":", "-") in answer["model"]
    assert answer["choices"][0]["finish_reason"] in ("length", "stop")
    assert not (site / ".twofold").exists()
