"""A hosted API beside replicas, over HTTP: it takes what they have no room for, and its bill is counted."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")

from tests.app.test_looping import EXAMPLE
from tests.live.test_gateway import QUICK, STREAM, configured, gateway, until
from tests.openai_service import Certificate, Service, served, server_tls
from twofold.app.loop_settings import serve_settings
from twofold.app.sources import load
from twofold.core.errors import InputErrors, TwofoldError
from twofold.gating.build import overflow_settings
from twofold.live.gateway.gateway_config import (
    GatewayConfig,
    GatewayReplica,
    read_gateway_config,
    write_gateway_config,
)
from twofold.live.server_urls import server_url
from twofold.policy.gate.settings import OverflowSettings

SECRET = "sk-7f3a91c2d0"
HOSTED = OverflowSettings(in_flight_limit=8, usd_per_input_mtok=1000.0, usd_per_output_mtok=5000.0)
OVERFLOW = """  overflow:
    url: https://api.example.com/team/v1
    model: theirs
    key_env: TWOFOLD_TEST_KEY
    input_price: 0.5 $
    output_price: 2 $
    tpot: 15 ms
    classes: [chat]
  engine:"""


def beside(config: GatewayConfig, service: Service, authority: Path) -> GatewayConfig:
    at = server_url(service.url)
    hosted = GatewayReplica("overflow", at.host, at.port, "first", 8, tls=at.tls)
    hosted = replace(hosted, key_variable="OURS", authorities=str(authority))
    gate = replace(config.gate, overflow=HOSTED)
    folder = Path(config.log).parent
    return replace(
        config,
        gate=gate,
        overflow=hosted,
        requests_log=str(folder / "r.jsonl"),
        samples_log=str(folder / "s.jsonl"),
        samples_fraction=1.0,
    )


def test_r_171_it_takes_what_finds_no_place_and_goes_on_when_no_replica_does(
    tmp_path: Path, certificate: Certificate, stub_engines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", SECRET)

    async def scenario(service: Service) -> None:
        async with stub_engines(1) as [engine]:
            engine.gap_s = 0.05
            config = beside(configured(tmp_path, [engine], limit=1), service, certificate.authority)
            async with gateway(config) as through:
                answers = await asyncio.gather(*(through.ask(STREAM) for _ in range(4)))
                assert [status for status, _ in answers] == [200] * 4
                assert len(service.asked) == 3 and len(engine.requests) == 1
                assert {each["model"] for each in service.asked} == {"first"}
                await engine.kill()
                status, _ = await through.ask(STREAM)
                assert status == 200
                await until(lambda: not through.driver.state()["replicas"]["replica-0"]["healthy"])
                async with through.client.get(f"{through.url}/health") as answer:
                    assert answer.status == 200
                state = await through.state()
                assert state["overflow"]["sent"] == len(service.asked) >= 4
                async with through.client.get(f"{through.url}/metrics") as answer:
                    page = await answer.text()
                assert f"twofold_overflow_attempts_total {state['overflow']['sent']}" in page
                assert SECRET not in page + json.dumps(state)
                told.update(state["overflow"])

    told: dict[str, Any] = {}
    service_base: list[str] = []
    with served(Service(key=SECRET), server_tls(certificate)) as service:
        service_base.append(server_url(service.url).base)
        asyncio.run(scenario(service))
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    there = [line for line in lines if line.get("replica") == "overflow"]
    assert len(there) == told["sent"] and sum("usd" in line for line in lines) >= 5
    for line in there:
        assert line["usd"] == pytest.approx(
            (line["input_tokens"] * 1000 + line["output_tokens"] * 5000) / 1e6
        )
        assert line["output_tokens"] == 4
        assert line["endpoint"] == service_base[0] and line["model"] == "first"
    assert told["usd"] == pytest.approx(sum(line["usd"] for line in there))
    sampled = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    from_there = [(line["endpoint"], line["model"]) for line in sampled if line["replica"] == "overflow"]
    assert from_there and set(from_there) == {(service_base[0], "first")}  # as in the log of requests
    here = [line for line in lines if line.get("replica") == "replica-0"]
    assert [(line["usd"], line["endpoint"]) for line in here] == [(None, "")]
    assert SECRET not in "".join(path.read_text() for path in tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize("leaves", [False, True])
def test_what_it_wrote_of_an_answer_that_is_cut_off_or_left_is_on_the_bill(
    tmp_path: Path, stub_engines: Any, leaves: bool
) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [there]:
            there.break_after = None if leaves else 2
            there.gap_s = 0.02 if leaves else 0.0
            hosted = GatewayReplica("overflow", "127.0.0.1", there.port, "theirs", 8)
            config = configured(tmp_path, [], gate=replace(QUICK, overflow=HOSTED), overflow=hosted)
            config = replace(config, requests_log=str(tmp_path / "r.jsonl"))
            async with gateway(config) as through:
                asked = {**STREAM, "max_tokens": 4000 if leaves else 4}
                there.tokens = asked["max_tokens"]
                async with through.client.post(f"{through.url}/v1/completions", json=asked) as answer:
                    _ = await answer.content.readany() if leaves else await answer.read()
                await until(lambda: not through.driver.gate.view.requests)
                told.update((await through.state())["overflow"])

    told: dict[str, Any] = {}
    asyncio.run(scenario())
    prompt_usd, token_usd = 3 * 1000 / 1e6, 5000 / 1e6
    if leaves:
        assert prompt_usd + token_usd <= told["usd"] < prompt_usd + 4000 * token_usd
    else:
        assert told["usd"] == pytest.approx(prompt_usd + 2 * token_usd)


def test_a_hosted_api_and_the_gate_that_knows_it_are_configured_together(tmp_path: Path) -> None:
    plain = configured(tmp_path, [])
    hosted = GatewayReplica("overflow", "h", 443, "m", 8)
    for config in (
        replace(plain, overflow=hosted),
        replace(plain, gate=replace(QUICK, overflow=HOSTED)),
        replace(plain, gate=replace(QUICK, overflow=HOSTED), overflow=replace(hosted, replica_id="other")),
    ):
        (tmp_path / "c.json").write_text(write_gateway_config(config))
        with pytest.raises(TwofoldError, match="are given together"):
            read_gateway_config(tmp_path / "c.json")
    whole = replace(plain, gate=replace(QUICK, overflow=HOSTED), overflow=hosted)
    (tmp_path / "c.json").write_text(write_gateway_config(whole))
    assert read_gateway_config(tmp_path / "c.json") == whole


@pytest.mark.parametrize(
    ("here", "there", "field", "goes"),
    [
        ("vllm", "openai", {"top_k": 3}, False),
        ("vllm", "openai", {"guided_regex": "a+"}, False),
        ("vllm", "vllm", {"top_k": 3}, True),
        ("openai", "transformers", {"n": 2}, False),
        ("openai", "openai", {"n": 2}, True),
    ],
)
def test_a_request_goes_only_where_all_that_it_asks_is_heeded(
    here: str, there: str, field: dict[str, Any], goes: bool, tmp_path: Path, stub_engines: Any
) -> None:
    """It is refused as where no hosted API is, and may be asked again: nothing of it is left out."""

    async def scenario() -> None:
        async with stub_engines(2) as [engine, api]:
            engine.gap_s = 0.1
            hosted = GatewayReplica("overflow", "127.0.0.1", api.port, "theirs", 8, engine=there)
            gate = replace(QUICK, overflow=HOSTED)
            config = configured(tmp_path, [engine], 1, gate=gate, overflow=hosted, engine=here)
            async with gateway(config) as through:
                first = asyncio.create_task(through.ask(STREAM))
                await until(lambda: engine.requests)
                status, said = await through.ask({**STREAM, **field})
                assert status == (200 if goes else 429), said
                assert [{name: asked[name] for name in field} for _, _, asked in api.requests] == [
                    *([field] if goes else [])
                ]
                status, _ = await through.ask({**STREAM, "echo": False, "n": 1})
                assert status == 200 and (await first)[0] == 200
                [*_, (_, _, asked)] = api.requests  # what asks for nothing may be what that engine refuses
                assert ("n" in asked) == (there != "transformers")
                if not goes:  # here it is heeded, once there is room
                    assert (await through.ask({**STREAM, **field}))[0] == 200
                    assert engine.requests[-1][2] | field == engine.requests[-1][2]

    asyncio.run(scenario())


def test_a_gateway_without_the_key_serves_without_the_hosted_api_and_says_so(
    tmp_path: Path, stub_engines: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OURS", raising=False)

    async def scenario() -> None:
        async with stub_engines(1) as [engine]:
            hosted = GatewayReplica("overflow", "127.0.0.1", engine.port, "theirs", 8, key_variable="OURS")
            config = configured(tmp_path, [engine], 1, gate=replace(QUICK, overflow=HOSTED), overflow=hosted)
            (tmp_path / "c.json").write_text(write_gateway_config(config))
            async with gateway(read_gateway_config(tmp_path / "c.json")) as through:
                engine.gap_s = 0.05
                statuses = [
                    status for status, _ in await asyncio.gather(*(through.ask(STREAM) for _ in range(3)))
                ]
                assert sorted(statuses) == [200, 429, 429]
                told = (await through.state())["overflow"]
                assert told == {"healthy": False, "sent": 0, "usd": 0.0, "why": "`OURS` holds no key"}

    asyncio.run(scenario())
    assert "without the hosted API: `OURS` holds no key" in capsys.readouterr().err


def spec_of(folder: Path, overflow: str) -> Path:
    text = EXAMPLE.read_text("utf-8")
    (folder / "config.json").write_text((EXAMPLE.parent / "config.json").read_text("utf-8"), "utf-8")
    (folder / "twofold.yaml").write_text(text.replace("  engine:", overflow), "utf-8")
    return folder / "twofold.yaml"


def test_a_spec_names_it_and_both_halves_are_told_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = load(spec_of(tmp_path, OVERFLOW)).spec
    [service] = spec.services
    gate = overflow_settings(service)
    assert gate == OverflowSettings(
        first_token_s=1.0,
        output_token_s=0.015,
        usd_per_input_mtok=0.5,
        usd_per_output_mtok=2.0,
        class_names=("chat",),
    )
    hosted = serve_settings(spec, 1.0).overflow
    assert hosted is not None
    monkeypatch.delenv("TWOFOLD_TEST_KEY", raising=False)
    assert hosted.unasked == "`TWOFOLD_TEST_KEY` holds no key"
    monkeypatch.setenv("TWOFOLD_TEST_KEY", SECRET)
    assert hosted.unasked == "" and hosted.engine == "openai"
    assert gate is not None and hosted.replica_id == gate.replica_id
    assert (hosted.base, hosted.model) == ("https://api.example.com/team", "theirs")
    assert SECRET not in repr(hosted)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("https://api", f"https://{SECRET}@api", "`url` is no URL"),
        ("team/v1", f"v1?key={SECRET}", "`url` is no URL"),
        ("key_env: TWOFOLD_TEST_KEY", f"key_env: {SECRET}", "names no environment variable"),
        ("https://api", "http://api", "clear text"),
        ("classes: [chat]", "classes: [talk]", "class `talk`"),
        ("    input_price: 0.5 $\n", "", "input_price"),
    ],
)
def test_a_spec_that_holds_a_key_or_names_nothing_is_refused(
    old: str, new: str, says: str, tmp_path: Path
) -> None:
    assert old in OVERFLOW
    with pytest.raises(InputErrors) as caught:
        load(spec_of(tmp_path, OVERFLOW.replace(old, new)))
    said = " ".join(f"{each} {each.hint}" for each in caught.value.errors)
    assert caught.value.exit_code == 2 and says in said and SECRET not in said
