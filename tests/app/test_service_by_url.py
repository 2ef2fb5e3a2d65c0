"""A spec whose service runs already: `up` puts its gateway before it, loads it, and starts no replica."""

from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("psutil", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("uvicorn", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("tokenizers", reason="needs the extras [train] and [live]: `make extras`")

from tests.app.test_looping import EXAMPLE
from tests.app.test_scaling_out import artefact_in
from tests.openai_service import Service, served
from twofold.app import scaling_out
from twofold.app.loop_settings import serve_settings, train_settings
from twofold.app.loop_stages import LoopRequest, gate_for_it, measured_service, service_settings
from twofold.app.looping import prove
from twofold.app.releasing import Release
from twofold.app.sources import load
from twofold.core.errors import InputErrors, ValueRefusedError
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.processes import free_port, running


def spec_in(folder: Path, server: str, engine: str = "sglang") -> Path:
    text = EXAMPLE.read_text("utf-8").replace("engine: transformers", f"engine: {engine}\n  server: {server}")
    (folder / "config.json").write_text((EXAMPLE.parent / "config.json").read_text("utf-8"), "utf-8")
    (folder / "twofold.yaml").write_text(text, "utf-8")
    return folder / "twofold.yaml"


def test_the_gateway_stands_before_the_server_and_its_loads_are_measured(tmp_path: Path) -> None:
    state = tmp_path / ".twofold"
    with served(Service(gap_s=0.002)) as there:
        spec = spec_in(tmp_path, f'{{url: "{there.url}/v1", model: second}}')
        read = load(spec).spec
        serving = serve_settings(read, 0.5)
        training = train_settings(read, state)
        request = LoopRequest(spec, state, training, serving, free_port(), lambda _: None, "tiny")
        request, gate = gate_for_it(request)
        assert request.serving.replica_count == 1
        artefact = artefact_in(tmp_path / "v1")
        try:
            settings = service_settings(request, gate, Release("tiny:1", "", artefact, is_tried=False))
            assert (settings.engine.kind, settings.engine.url) == ("openai", f"{there.url}/v1")
            service = bring_up(settings, state)
            assert service.cold_start_s is None and running(state, "replica-") == []
            measured, _ = measured_service(request, service, artefact, load_asked=True)
            kept, (why,) = scaling_out.scaled_out(request, service.url, artefact, gate, measured)
        finally:
            bring_down(state)
    assert measured.engine == "sglang" and measured.kv_capacity_tokens == 0
    assert all(each.finished and not each.failed for each in measured.loads)
    assert {each["model"] for each in there.asked} == {"second"}
    assert kept is measured and "runs elsewhere" in why


def test_what_cannot_be_asked_or_be_killed_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_KEY", raising=False)
    spec = spec_in(tmp_path, "{url: 'https://example.com/v1', model: m, key_env: NO_KEY}")
    with pytest.raises(ValueRefusedError, match="`NO_KEY` holds no key"):
        serve_settings(load(spec).spec, 1.0)
    with pytest.raises(ValueRefusedError, match="none of its replicas can be killed"):
        prove(spec)
    with pytest.raises(InputErrors) as refused:
        load(spec_in(tmp_path, "{url: 'http://example.com/v1', model: m, key_env: NO_KEY}"))
    assert "clear text" in str(refused.value.errors[0])
