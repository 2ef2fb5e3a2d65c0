"""What every engine's adapter must do, over the real engines: `make engines`, then `make test-engines`.

Opt-in: they take a compiler and minutes, and one of them gigabytes. TWOFOLD_ENGINES names the folder that
`make engines` fills; without it, or without an engine in it, the tests of that engine are skipped.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")

from tests.live.test_engine_kit import MAKE, TINY, asked
from tests.live.test_gateway import Gateway, gateway
from twofold.live.control.engine_checks import EngineClient, Health, until_it_answers
from twofold.live.control.engines import EngineSettings, engine_command, engine_environment, engine_of
from twofold.live.control.gguf_file import gguf_of
from twofold.live.control.service import ServiceSettings, address_of, gateway_config
from twofold.live.gateway.engine_fields import CHAT, COMPLETIONS, ENGINE_FIELDS
from twofold.live.processes import free_port, running, start, stop_all
from twofold.policy.gate import settings as gates

FOLDER = os.environ.get("TWOFOLD_ENGINES", "")
PROGRAMS = {"llama.cpp": "llama.cpp/llama-server", "vllm": "vllm/bin/vllm"}
WIDER = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "head_dim": 64}
LONGER = {"vocab_size": 258, "max_position_embeddings": 1024, "initializer_range": 0.3}
ENDS = {"eos_token_id": 256, "pad_token_id": 257, "bos_token_id": None}
MODEL = TINY | WIDER | LONGER | ENDS | {"tie_word_embeddings": False}
# With a template for chat, the same weights each time, and likeliest tokens that are letters, never an end.
MAKE_ENDLESS = MAKE.replace(
    "tokens.save_pretrained", "tokens.chat_template = '{{ messages[0].content }}'; tokens.save_pretrained"
).replace(
    "AutoModelForCausalLM.from_config(config).save_pretrained(sys.argv[1])",
    "import torch; torch.manual_seed(5); model = AutoModelForCausalLM.from_config(config)\n"
    "model.lm_head.weight.data[94:] = 0.0; model.save_pretrained(sys.argv[1])",
)
START_S = 540.0  # vLLM's imports and first compilation, beside others on two cores
PROMPT = "def parse(text):\n    return "
HOT = {"temperature": 2.0, "max_tokens": 12}
COLD = {"temperature": 0.0, "max_tokens": 12}


def program_in(kind: str) -> str:
    program = Path(FOLDER).resolve() / PROGRAMS[kind]
    if not FOLDER or not program.exists():
        pytest.skip(f"no {kind} in TWOFOLD_ENGINES: `make engines`")
    return str(program)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    command = [sys.executable, "-c", MAKE_ENDLESS, str(folder), json.dumps(MODEL)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder


@dataclass
class Running:
    """An engine that answers."""

    kind: str
    settings: EngineSettings
    base: str
    state: Path
    checkpoint: Path
    port: int


@pytest.fixture(scope="module", params=list(PROGRAMS))
def engine(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Started as the controller does, by the same command and environment, until it has answered."""
    kind = request.param
    program, folder = program_in(kind), tmp_path_factory.mktemp(kind)
    artefact = gguf_of(checkpoint, folder / "gguf") if kind == "llama.cpp" else checkpoint
    settings = EngineSettings(
        str(artefact), "float32", 1, 256, 2048, kind=kind, program=program, sequence_count=8
    )
    port, state = free_port(), folder / ".twofold"
    command = [*engine_command(settings), engine_of(kind).port_option, str(port)]
    start(command, "engine", state, port=port, environment=engine_environment(settings))
    there = Running(kind, settings, f"http://127.0.0.1:{port}", state, checkpoint, port)

    async def ready(client: EngineClient) -> None:
        began_s = time.monotonic()
        model = address_of("r", settings, "127.0.0.1", port, 8).model
        said = await until_it_answers(client, there.base, engine_of(kind), model, began_s + START_S)
        log = (state / "logs" / "engine.log").read_text("utf-8", "replace")[-3000:]
        assert said == "", f"{said}\n{log}"
        print(f"{kind}: its first answer after {time.monotonic() - began_s:.1f} s")

    try:
        asked(ready)
        yield there
    finally:
        stop_all(state, grace_s=engine_of(kind).stop_grace_s)
        assert running(state) == []


@asynccontextmanager
async def before(engine: Running, folder: Path) -> AsyncIterator[Gateway]:
    """The gateway as `up` configures it, before this engine as its one replica."""
    service = ServiceSettings(
        engine.settings,
        1,
        8,
        free_port(),
        0.0001,
        0.01,
        gates.GateSettings(queue=gates.QueueSettings()),
        "public",
    )
    service = replace(service, context_tokens=1024)
    address = address_of("replica-0", engine.settings, "127.0.0.1", engine.port, 8)
    config = replace(gateway_config(service, folder, [address]), keys_file="")
    (folder / "gateway").mkdir(parents=True, exist_ok=True)
    async with gateway(config) as through:
        yield through


async def text_of(through: Gateway, path: str = COMPLETIONS, **fields: Any) -> tuple[str, dict[str, Any]]:
    """An answer in one piece: its text and its usage."""
    said = {"prompt": PROMPT} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "hi"}]}
    status, body = await through.ask({**said, **fields}, path)
    assert status == 200, body
    data = json.loads(body)
    assert data["model"] == "public", "the engine's own name is no client's business"
    [choice] = data["choices"]
    return choice["text"] if path == COMPLETIONS else choice["message"]["content"], data["usage"]


def test_it_is_well_and_counts_what_it_has(engine: Running) -> None:
    kind = engine_of(engine.kind)

    async def scenario(client: EngineClient) -> None:
        assert await client.health(engine.base, kind) is Health.WELL
        idle = await client.report(engine.base, kind, timeout_s=10.0)
        assert idle is not None and (idle.running_count, idle.waiting_count) == (0, 0)
        if kind.series.kv_used:
            assert idle.kv_used_fraction is not None
        long = {
            "model": address_of("r", engine.settings, "h", 1, 1).model,
            "prompt": PROMPT,
            "max_tokens": 700,
        }
        also = {"ignore_eos": True}
        url = engine.base + COMPLETIONS
        work = [asyncio.create_task(client._asked(url, {**long, **also})) for _ in range(3)]
        most = 0
        while not all(task.done() for task in work):
            told = await client.report(engine.base, kind, timeout_s=10.0)
            most = max(most, (told and told.running_count) or 0)
            await asyncio.sleep(0.02)
        assert {task.result()[0] for task in work} == {200}
        assert most >= 1, "what it does shows in its metrics"

    asked(scenario)


def test_forty_streams_at_eight_clients_all_come_whole_and_none_is_asked_twice(
    engine: Running, tmp_path: Path
) -> None:
    """llama.cpp closes the connection after a stream: that is no failure, and costs no second attempt."""

    async def scenario() -> None:
        async with before(engine, tmp_path) as through:
            waits = asyncio.Semaphore(8)

            async def one(number: int) -> tuple[int, bytes]:
                async with waits:
                    asked = {"prompt": PROMPT * 8 + str(number), "stream": True, "max_tokens": 16}
                    return await through.ask({**asked, "temperature": 0.0})

            began_s = time.monotonic()
            answers = await asyncio.gather(*(one(number) for number in range(40)))
            took_s = time.monotonic() - began_s
            assert {status for status, _ in answers} == {200}
            assert all(body.rstrip().endswith(b"data: [DONE]") for _, body in answers)
            state = await through.state()
            assert state["counts"]["finished"] == 40 and state["counts"]["gave_up"] == 0
        lines = [
            json.loads(line) for line in (tmp_path / "gateway" / "requests.jsonl").read_text().splitlines()
        ]
        ended = [line for line in lines if line.get("outcome") == "finished"]
        assert len(ended) == 40 and {line["attempts"] for line in ended} == {1}
        tokens = sum(line["output_tokens"] for line in ended)
        print(f"{engine.kind}: 40 streams at 8 clients in {took_s:.2f} s, {tokens / took_s:.0f} tokens/s")

    asyncio.run(scenario())


def test_a_cold_answer_is_the_checkpoints_own(engine: Running, tmp_path: Path) -> None:
    """So the right weights are served, in the right order: the same tokens as the library computes."""
    script = (
        "import sys, torch; from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "m, t = (c.from_pretrained(sys.argv[1]) for c in (AutoModelForCausalLM, AutoTokenizer))\n"
        "ids = t(sys.argv[2], return_tensors='pt').input_ids\n"
        "how = dict(max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)\n"
        "out = m.float().generate(ids, attention_mask=torch.ones_like(ids), **how)\n"
        "print(t.decode(out[0, ids.shape[1]:]), end='')"
    )
    command = [sys.executable, "-c", script, str(engine.checkpoint), PROMPT]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr

    async def scenario() -> None:
        async with before(engine, tmp_path) as through:
            text, usage = await text_of(through, temperature=0.0, max_tokens=6)
            assert text == found.stdout
            assert usage["prompt_tokens"] == len(PROMPT.encode()) and usage["completion_tokens"] == 6

    asyncio.run(scenario())


def test_chat_is_answered_by_the_public_name(engine: Running, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with before(engine, tmp_path) as through:
            text, usage = await text_of(through, CHAT, max_tokens=5, temperature=0.0)
            assert isinstance(text, str) and 0 < usage["completion_tokens"] <= 5
            status, body = await through.ask({"model": "public", "messages": [], "max_tokens": 5}, CHAT)
            assert status == 400 and str(engine.checkpoint).encode() not in body

    asyncio.run(scenario())


# A value of each field that asks for something.
ASKING: dict[str, Any] = {
    "best_of": 2,
    "echo": True,
    "suffix": "end",
    "store": True,
    "reasoning_effort": "high",
}


def test_what_it_would_not_heed_is_refused_by_the_gateway(engine: Running, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with before(engine, tmp_path) as through:
            for name in sorted(ENGINE_FIELDS[engine.kind].unsupported & ASKING.keys()):
                path = CHAT if name in ("store", "reasoning_effort") else COMPLETIONS
                said = {"messages": [{"role": "user", "content": "x"}]} if path == CHAT else {"prompt": "x"}
                status, body = await through.ask({**said, name: ASKING[name]}, path)
                assert status == 400 and name.encode() in body, (name, body)
            status, body = await through.ask({"prompt": "x", "no_such_field": 1})
            assert status == 400 and b"no_such_field" in body

    asyncio.run(scenario())


def test_what_it_knows_beyond_the_protocol_is_heeded(engine: Running, tmp_path: Path) -> None:
    known = ENGINE_FIELDS[engine.kind].extensions

    async def scenario() -> None:
        async with before(engine, tmp_path) as through:
            cold, _ = await text_of(through, **COLD)
            if "top_k" in known:
                assert (await text_of(through, **HOT, top_k=1))[0] == cold, (
                    "of one candidate the best is taken"
                )
            if "min_p" in known:
                assert (await text_of(through, **HOT, min_p=1.0))[0] == cold
            if "ignore_eos" in known:
                _, usage = await text_of(through, **HOT | {"max_tokens": 300}, ignore_eos=True)
                assert usage["completion_tokens"] == 300
            if "min_tokens" in known:
                _, usage = await text_of(through, **HOT | {"max_tokens": 90}, min_tokens=80)
                assert usage["completion_tokens"] >= 80
            if "stop_token_ids" in known:
                _, usage = await text_of(through, **COLD, stop_token_ids=list(range(256)))
                assert usage["completion_tokens"] == 1
            if "grammar" in known:
                assert (await text_of(through, **HOT, grammar='root ::= "yes" | "no"'))[0] in ("yes", "no")
            if "json_schema" in known:
                schema = {"enum": ["red", "blue"]}
                text, _ = await text_of(through, **HOT, json_schema=schema)
                assert json.loads(text) in ("red", "blue")
            if "structured_outputs" in known:
                for told, allowed in [({"choice": ["yes", "no"]}, "yes no"), ({"regex": "(a|b)c"}, "ac bc")]:
                    text, _ = await text_of(through, **HOT, structured_outputs=told)
                    assert text in allowed.split()

    asyncio.run(scenario())


def test_its_own_series_are_passed_through_under_their_names(engine: Running, tmp_path: Path) -> None:
    async def scenario() -> None:
        from twofold.live.gateway.engine_series import engine_series

        async with before(engine, tmp_path) as through:
            page = await engine_series(through.driver.replicas)
        series = engine_of(engine.kind).series
        for name in filter(None, (series.running, series.waiting, series.kv_used)):
            assert f'{name}{{replica="replica-0"' in page
        if engine.kind == "vllm":
            assert "vllm:prefix_cache_hits" in page and "vllm:time_to_first_token_seconds_bucket" in page

    asyncio.run(scenario())


def test_it_is_silent_when_stopped_and_gone_when_killed(engine: Running) -> None:
    """Last: nothing is asked of it afterwards."""
    kind = engine_of(engine.kind)

    async def scenario(client: EngineClient) -> None:
        leader = running(engine.state, "engine")[0]
        os.kill(leader.process_id, 19)  # SIGSTOP
        try:
            assert await client.health(engine.base, kind, timeout_s=0.5) is Health.SILENT
        finally:
            os.kill(leader.process_id, 18)
        assert await client.health(engine.base, kind, timeout_s=30.0) is Health.WELL
        stop_all(engine.state, grace_s=kind.stop_grace_s)
        assert running(engine.state) == []
        assert await client.health(engine.base, kind) is Health.REFUSED

    asked(scenario)
