"""What rows of docs/coverage.csv stand on: a service of stand-ins to bring up, and a model that was taught.

Engines are stand-ins in processes of their own (`tests/live/stub_server.py`); registry, rules, controller,
gateway and gate are what `up` has. The taught model is real and very small: what it says can be judged.
"""

import json
import shutil
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
STUB = ROOT / "tests" / "live" / "stub_server.py"
SPEC = """\
name: assistant
serving:
  model: {model}
  quantisation: fp32
  kv_quantisation: fp32
  engine: transformers
  classes:
    chat:
      traffic: {{rate: 5 /s, input: {{mean: 16 tok, p95: 32 tok}}, output: {{mean: 2 tok, p95: 4 tok}}}}
      slo: {{ttft_p95: 2 s}}
  on: 1xthis-machine
"""
PACES_S = (0.002, 0.002, 0.05)  # of a token, by version: one that served, the next, and one that is slow


def service_in(folder: Path) -> Path:
    """Make a folder to bring up: `twofold.yaml` names chat:2, `slow.yaml` chat:3, and the registry beside
    them has both, judged, and lets chat:1 be `serving`. A device is measured; `engine` is the program of a
    replica. `run` holds a training run for a queue, and `tune.json`, one that goes on from its weights."""
    folder.mkdir()
    program = folder / "engine"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    shutil.copytree(ROOT / "tests" / "requirements" / "specs" / "queue", folder / "run")
    order = {"name": "tuned", "rank_count": 1, "steps": 6, "sequence_tokens": 32, "global_batch_sequences": 4}
    more = {"data": "new.jsonl", "weights": ".twofold/jobs/runs/tiny-1/run/hf", "warm_up_steps": 1}
    (folder / "run" / "tune.json").write_text(json.dumps({**order, **more}))
    lines = (
        json.dumps({"text": f"{number} fish swim far, {number} fish near. " * 8}) for number in range(60)
    )
    (folder / "run" / "new.jsonl").write_text("\n".join(lines))
    _push_versions(folder)
    _measure_device(folder)
    _judge_versions(folder)
    return folder


def _push_versions(folder: Path) -> None:
    from tests.app.test_scaling_out import artefact_in
    from tests.live.test_registry import model
    from twofold.live.registry.registry import Registry

    opened = Registry(folder / ".twofold-registry", make=True)
    tokenizer = artefact_in(folder / "tokenizer") / "tokenizer.json"
    for number, pace_s in enumerate(PACES_S, 1):
        source = model(folder / f"v{number}", number)
        shutil.copyfile(ROOT / "examples" / "laptop" / "config.json", source / "config.json")
        shutil.copyfile(tokenizer, source / "tokenizer.json")
        (source / "pace.txt").write_text(str(pace_s))
        made_from = {kind: f"sha256:{number}{kind}" for kind in ("data", "run", "checkpoint")}
        opened.approve(opened.push(source, "chat", "ann", made_from).version.text, "bob", "read it")
    for name, number in (("twofold", 2), ("slow", 3)):
        (folder / f"{name}.yaml").write_text(SPEC.format(model=opened.find(f"chat:{number}").digest))
    opened.close()


def _judge_versions(folder: Path) -> None:
    """As if each had been measured on our set, beside the one before it."""
    from tests.live.test_registry import FOUND
    from twofold.app.loop_settings import LoopRequest, serve_settings
    from twofold.app.releasing import held_out
    from twofold.app.sources import load
    from twofold.live.registry.registry import Registry
    from twofold.live.training.artefact import sha256_of
    from twofold.policy.release.rules import Limits

    spec = folder / "twofold.yaml"
    request = LoopRequest(
        spec, folder / ".twofold", None, serve_settings(load(spec).spec, 1.0), 1, lambda _: None, "chat"
    )
    digest = sha256_of(held_out(request))
    found = replace(FOUND, set_sha256=digest, ttft_p95_s=0.01, tpot_p95_s=0.01, memory_bytes=1.0)
    opened, beside = Registry(folder / ".twofold-registry"), ""
    for number in range(1, len(PACES_S) + 1):
        opened.evaluated(f"chat:{number}", replace(found, beside=beside), "ann")
        beside = opened.find(f"chat:{number}").digest
    opened.promote("chat:1", "ann", "the first", Limits())
    opened.close()


def _measure_device(folder: Path) -> None:
    """As `measure device` writes it, of a machine whose every figure is known."""
    from tests.device.conftest import RANKS, measured
    from twofold.app.sources import DEVICE_FOLDER
    from twofold.device.figures import figures
    from twofold.device.files import DeviceRecord, digest_of, this_identity, write_device
    from twofold.device.rows import fit_device

    found, identity, today = measured(), this_identity(), date.today()
    fitted = fit_device(found, identity, today.year)
    record = DeviceRecord(
        name=fitted.accelerator.name,
        measured_on=today,
        identity=identity,
        software=found.software,
        rank_count=RANKS,
        duration_s=found.duration_s,
        fit=fitted.fit,
        digest=digest_of(fitted.tables),
        figures=tuple(figures(found.samples, fitted.rows, RANKS)),
    )
    write_device(folder / DEVICE_FOLDER, fitted.tables, record)


def taught_in(folder: Path) -> Path:
    """Make a folder of a model that knows one sentence: `model`, a `registry` of it, `texts.jsonl` to
    evaluate on, and what a gateway kept of its requests: `asked.jsonl`, two of them; `served.jsonl`, many, of
    which the last ones were answered by another build."""
    from tests.app.test_feedback import WORDS, answered, kept, stream
    from tests.live.test_evaluate_worker import SENTENCE, taught, write
    from tests.live.test_sampled import line
    from twofold.live.registry.registry import Registry

    folder.mkdir()
    model, tokenizer = taught()
    opened = Registry(folder / "registry", make=True)
    opened.push(write(folder / "model", model, tokenizer), "chat", "ann")
    texts = [{"slice": name, "text": SENTENCE * 40} for name in ("foxes", "dogs")]
    (folder / "texts.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in texts))
    good, bad = answered(model, tokenizer)
    served = stream(good)
    kept(folder / "served.jsonl", [*served, *stream(bad, len(served))], opened)
    asked = [
        line(n, prompt=" ".join(WORDS[n : n + 6]), answer=f" {' '.join(WORDS[n + 6 : n + 9])}")
        for n in range(2)
    ]
    kept(folder / "asked.jsonl", asked, opened)
    opened.close()
    return folder
