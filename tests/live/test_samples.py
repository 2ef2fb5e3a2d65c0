"""Text that a service keeps to learn from: only where the spec opts in, and never against the client."""

import asyncio
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.app.test_looping import EXAMPLE, changed
from tests.live.test_gateway import STREAM, configured, gateway
from twofold.app.loop_settings import serve_settings
from twofold.app.sources import load
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings, gateway_config
from twofold.live.gateway.answers import NOT_SAID
from twofold.live.gateway.kept_answers import WholeAnswer
from twofold.live.gateway.samples import answer_of, asked_of
from twofold.live.registry.sampled import read_samples


def kept(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def asked(tmp_path: Path, engines: Any, fraction: float, requests: list[tuple[Any, Any]]) -> Any:
    """What is kept of these requests."""
    path = tmp_path / "samples.jsonl"

    async def scenario() -> None:
        async with engines(1) as [engine]:
            config = configured(tmp_path, [engine])
            config = replace(config, samples_log=str(path), samples_fraction=fraction)
            async with gateway(config) as served:
                for body, headers in requests:
                    async with served.client.post(
                        served.url + "/v1/completions", json=body, headers=dict(headers)
                    ) as answer:
                        await answer.read()
                engine.status = 500
                await served.ask({**STREAM, "prompt": "fails"})

    asyncio.run(scenario())
    return kept(path)


def test_a_sample_is_prompt_answer_and_decision_without_its_tenant(tmp_path: Path, stub_engines: Any) -> None:
    mine = {"x-request-id": "mine-1", "x-tenant": "them"}
    body = {**STREAM, "prompt": "mail ann@example.org"}
    sampled, failed = asked(tmp_path, stub_engines, 1.0, [(body, mine)])
    assert stat.S_IMODE((tmp_path / "samples.jsonl").stat().st_mode) == 0o600
    assert (sampled["request_id"], sampled["replica"], sampled["attempts"]) == ("mine-1", "replica-0", 1)
    assert sampled["prompt"] == "mail <email>" and sampled["answer"] and sampled["end"]
    assert "tenant" not in sampled and "them" not in json.dumps(sampled)
    assert (failed["prompt"], failed["answer"], failed["outcome"]) == ("fails", "", "failed")
    read, lost = read_samples(tmp_path / "samples.jsonl")  # as those who learn from them do
    assert (read.request_id, read.asked, read.answer) == ("mine-1", "mail <email>", sampled["answer"])
    assert read.is_answered and read.is_of(sampled["model"]) and read.output_tokens > 0
    assert (lost.asked, lost.outcome, lost.is_answered) == ("fails", "failed", False)


def test_nothing_is_kept_unless_it_is_asked_for_nor_against_the_client(
    tmp_path: Path, stub_engines: Any
) -> None:
    assert asked(tmp_path, stub_engines, 0.0, [(STREAM, {})]) == []
    assert not (tmp_path / "samples.jsonl").exists()
    left = asked(tmp_path, stub_engines, 1.0, [(STREAM, {"cache-control": "no-store"})])
    assert [each["outcome"] for each in left] == ["failed"]


def test_about_the_share_that_is_asked_for_is_drawn(tmp_path: Path) -> None:
    from twofold.live.gateway.samples import SampleLog
    from twofold.live.line_file import LineFile

    log = SampleLog(LineFile(tmp_path / "s.jsonl", 1 << 20, 1), {}, "m", 0.2)
    assert 1700 < sum(log.wants() for _ in range(10_000)) < 2300  # 7 standard deviations


def test_answers_of_both_protocols_are_read_and_what_is_no_text_is_not_kept() -> None:
    chat = b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
    chat += b'data: {"choices":[{"delta":{"content":"a b"}}]}\n\n'
    end = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    assert answer_of(WholeAnswer(True, chat + end, NOT_SAID)) == ("a b", "stop")
    whole = b'{"choices":[{"message":{"content":"c"},"finish_reason":"length"}]}'
    assert answer_of(WholeAnswer(False, whole, NOT_SAID)) == ("c", "length")
    assert answer_of(WholeAnswer(False, b"no json", NOT_SAID)) == ("", "")

    class Asked:
        def __init__(self, **fields: Any) -> None:
            self.fields = fields

    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert asked_of(Asked(messages=[{"role": "user", "content": parts}])) is None
    assert asked_of(Asked(messages=[{"role": "user", "content": parts[:1]}])) == {
        "messages": [{"role": "user", "content": "see"}]
    }
    assert asked_of(Asked(prompt=[1, 2])) is None and asked_of(Asked(prompt="p")) == {"prompt": "p"}


def test_a_spec_opts_in_and_says_nothing_of_it_otherwise(tmp_path: Path) -> None:
    assert serve_settings(load(EXAMPLE).spec, 5.0).samples_fraction == 0.0
    spec = load(changed(tmp_path, "engine: transformers", "engine: transformers\n  samples: 5 %")).spec
    fraction = serve_settings(spec, 5.0).samples_fraction
    assert fraction == 0.05
    engine = EngineSettings("artefact", "float32", 1, 8, 8)
    told = ServiceSettings(engine, 1, 4, 8700, 0.001, 0.01, samples_fraction=fraction)
    config = gateway_config(told, tmp_path / ".twofold")
    assert config.samples_fraction == 0.05
    assert config.samples_log == str(tmp_path / ".twofold" / "gateway" / "samples.jsonl")
    assert config.requests_key == str(tmp_path / ".twofold-log.key")
