"""What every engine's adapter must do, over a stand-in of each, and over the real default engine."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from tests.fake_nvidia import nvidia_smi
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.control.engine_checks import EngineClient, Health, Report, read_report, until_it_answers
from twofold.live.control.engines import (
    ENGINES,
    HIDE_GPUS,
    EngineSettings,
    Series,
    engine_command,
    engine_environment,
    engine_model,
    engine_of,
)
from twofold.live.control.service import replica_digest, replica_environment
from twofold.live.gateway.engine_fields import COMPLETIONS, ENGINE_FIELDS
from twofold.live.processes import free_port, running, start, stop_all

STUB = Path(__file__).with_name("stub_server.py")
METRICS = {
    "vllm": 'vllm:num_requests_running{model_name="m"} 3;vllm:num_requests_waiting{model_name="m"} 2'
    ';vllm:kv_cache_usage_perc{model_name="m"} 0.25',
    "llama.cpp": "# TYPE llamacpp:requests_processing gauge;llamacpp:requests_processing 3"
    ";llamacpp:requests_deferred 2",
}
STARTED = [kind for kind, engine in ENGINES.items() if engine.command]
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": 300,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


def settings_of(kind: str, folder: Path, **more: Any) -> EngineSettings:
    """An engine of this kind whose program is our stand-in."""
    program = folder / "program"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    (folder / "model.gguf").touch()
    told = {"program": str(program), **more}
    return EngineSettings(str(folder), "float32", 1, 64, 256, kind=kind, **told)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[EngineSettings], tuple[str, Path]]]:
    """Start an engine as the controller does; its URL, and the file of its orders."""
    state, orders = tmp_path / ".twofold", tmp_path / "orders"

    def up(settings: EngineSettings) -> tuple[str, Path]:
        port = free_port()
        command = [*engine_command(settings), engine_of(settings.kind).port_option, str(port)]
        told = {"STUB_ORDERS": str(orders), "STUB_METRICS": METRICS.get(settings.kind, "")}
        start(command, "engine", state, port=port, environment=engine_environment(settings) | told)
        return f"http://127.0.0.1:{port}", orders

    try:
        yield up
    finally:
        stop_all(state, at_once=True)


def asked(scenario: Callable[[EngineClient], Any]) -> None:
    async def run() -> None:
        client = EngineClient()
        try:
            await scenario(client)
        finally:
            await client.close()

    asyncio.run(run())


@pytest.mark.parametrize("kind", STARTED)
def test_an_engine_starts_answers_says_when_it_is_dead_and_ends(
    kind: str, tmp_path: Path, started: Callable[[EngineSettings], tuple[str, Path]]
) -> None:
    settings = settings_of(kind, tmp_path)
    engine, (base, orders) = engine_of(kind), started(settings)

    async def scenario(client: EngineClient) -> None:
        said = await until_it_answers(client, base, engine, engine_model(settings), time.monotonic() + 20)
        assert said == ""
        assert await client.health(base, engine) is Health.WELL
        report = await client.report(base, engine)
        used = 0.25 if engine.series.kv_used else None
        assert report == (Report(3, 2, used) if kind in METRICS else None)
        orders.write_text("dead")
        assert await client.health(base, engine) is Health.DEAD
        assert "503" in await client.completes(base, "m")
        orders.write_text("mute")
        assert await client.health(base, engine) is Health.WELL
        assert "nothing within" in await client.completes(base, "m", timeout_s=0.2)
        orders.unlink()
        [child] = running(tmp_path / ".twofold", "engine")
        os.kill(child.process_id, 19)  # SIGSTOP
        assert await client.health(base, engine, timeout_s=0.2) is Health.SILENT
        stop_all(tmp_path / ".twofold", at_once=True)
        assert await client.health(base, engine) is Health.REFUSED

    asked(scenario)


@pytest.mark.parametrize("kind", STARTED)
def test_what_an_engine_is_told_is_on_its_command_line_and_in_its_digest(kind: str, tmp_path: Path) -> None:
    settings = settings_of(kind, tmp_path)
    command = engine_command(settings)
    assert command[0] == settings.program
    assert any(str(tmp_path) in word for word in command[1:])
    assert "127.0.0.1" in command
    assert settings.request_tokens == settings.kv_capacity_tokens // (16 if kind == "llama.cpp" else 1)
    other = settings_of(kind, tmp_path, device="cuda", sequence_count=4)
    assert replica_digest(other) != replica_digest(settings)
    # Nothing hides a GPU from an engine that is to run on it.
    assert engine_environment(settings)[HIDE_GPUS] == "" and HIDE_GPUS not in engine_environment(other)
    assert kind in ENGINE_FIELDS, "what its requests may have is known"


def test_of_several_accelerators_each_replica_sees_its_own_and_the_processor_sees_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a stand-in for the driver's tool: no machine with several has run this."""
    nvidia_smi(tmp_path, monkeypatch, count=2)
    engine = settings_of("transformers", tmp_path, device="cuda")
    seen = [replica_environment(engine, f"replica-{n}")[HIDE_GPUS] for n in range(3)]
    assert seen == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")  # the only one that we were given
    assert HIDE_GPUS not in replica_environment(engine, "replica-0")
    here = replace(engine, device="cpu")
    assert replica_environment(here, "replica-0")[HIDE_GPUS] == ""


def test_an_engine_that_is_not_installed_or_unknown_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    settings = EngineSettings(str(tmp_path / "empty"), "float32", 1, 64, 256, kind="llama.cpp", program="x")
    with pytest.raises(FileError, match="holds 0 GGUF files"):
        engine_command(settings)
    with pytest.raises(ValueRefusedError, match="`ollama` cannot be run") as caught:
        engine_of("ollama")
    assert "transformers" in caught.value.hint


def test_an_engine_behind_a_url_is_found_and_never_started() -> None:
    settings = EngineSettings("", "", 1, 0, 0, kind="openai", url="http://elsewhere:9000/v1", model="m")
    assert engine_model(settings) == "m"
    with pytest.raises(ValueRefusedError, match="not started here"):
        engine_command(settings)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a 1\nb 2\nc 0.5\n", Report(1, 2, 0.5)),
        ('a{rank="0"} 1\na{rank="1"} 2 1700000000\nc{x="} y"} 3', Report(3, None, 1.0)),
        ("a NaNs\n# a 3\nb\na NaN\n", None),
        ("", None),
    ],
)
def test_metrics_are_read_whatever_stands_beside_them(text: str, found: Report | None) -> None:
    assert read_report(text, Series("a", "b", "c")) == found


def test_the_default_engine_is_what_its_adapter_says(
    tmp_path: Path, started: Callable[[EngineSettings], tuple[str, Path]]
) -> None:
    """The real one, on a model of a few thousand numbers."""
    for library in ("torch", "transformers", "tokenizers"):
        pytest.importorskip(library, reason="needs the extra [train]: `make extras`")
    folder = tmp_path / "model"
    made = subprocess.run(
        [sys.executable, "-c", MAKE, str(folder), json.dumps(TINY)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    drawn = {"do_sample": True, "temperature": 1.0}  # as many published models are
    (folder / "generation_config.json").write_text(json.dumps(drawn))
    settings = EngineSettings(str(folder), "float32", 1, 16, 64)
    engine, (base, _) = engine_of("transformers"), started(settings)

    async def scenario(client: EngineClient) -> None:
        said = await until_it_answers(client, base, engine, engine_model(settings), time.monotonic() + 120)
        assert said == ""
        assert await client.health(base, engine) is Health.WELL
        assert await client.report(base, engine) is None
        hot = {
            "model": engine_model(settings),
            "prompt": "a",
            "max_tokens": 8,
            "temperature": 2.0,
            "stop": "a",
        }
        texts = {await client.answer(base, engine_model(settings), "a", 8, 20.0) for _ in range(2)}
        for _ in range(2):
            status, body = await client._asked(base + COMPLETIONS, hot)
            assert status == 200
            texts.add(json.loads(body)["choices"][0]["text"])
        assert len(texts) == 1, "the likeliest tokens, whatever is asked"
        stop_all(tmp_path / ".twofold", grace_s=engine.stop_grace_s)
        assert running(tmp_path / ".twofold") == []

    asked(scenario)


MAKE = """
import json, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokens = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<pad>")
tokens.save_pretrained(sys.argv[1])
config = LlamaConfig(**json.loads(sys.argv[2]))
AutoModelForCausalLM.from_config(config).save_pretrained(sys.argv[1])
"""
