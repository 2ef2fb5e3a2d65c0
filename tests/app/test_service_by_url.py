"""A spec whose service runs already: `up` puts its gateway before it, loads it, and starts no replica."""

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("psutil", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("uvicorn", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("tokenizers", reason="needs the extras [train] and [live]: `make extras`")

from tests.app.test_looping import EXAMPLE
from tests.app.test_releasing import SPEC, shaped
from tests.app.test_scaling_out import artefact_in
from tests.device.test_files import record
from tests.live.test_registry import FOUND
from tests.openai_service import Service, served
from twofold.app import loop_stages, registering, scaling_out
from twofold.app.loop_page import LoopShown
from twofold.app.loop_settings import serve_settings, train_settings
from twofold.app.loop_stages import LoopRequest, gate_for_it, measured_service, service_settings
from twofold.app.looping import prove, up
from twofold.app.promoting import promote_version, roll_back_version
from twofold.app.releasing import Release
from twofold.app.sources import load
from twofold.core.errors import InputErrors, ValueRefusedError
from twofold.live.control.store import Store
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.processes import free_port, running
from twofold.live.registry.registry import Registry
from twofold.live.seals import key_of
from twofold.live.training.artefact import sha256_of
from twofold.live.training.sealing import KEY, write_sealed
from twofold.policy.release.rules import Limits


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
            measured, _ = measured_service(request, service, artefact, gate.built.digest, load_asked=True)
            kept, (why,) = scaling_out.scaled_out(request, artefact, gate, measured)
        finally:
            bring_down(state)
    assert measured.engine == "sglang" and measured.kv_capacity_tokens == 0
    assert all(each.finished and not each.failed for each in measured.loads)
    assert {each["model"] for each in there.asked} == {"second"}
    assert kept is measured and "runs elsewhere" in why


@dataclass
class Trained:
    """What a run would export, and how often what was asked of it."""

    folder: Path
    key: Path
    evaluated: list[str] = field(default_factory=list)

    def seal(self) -> None:
        write_sealed(self.folder, self.folder.name, key_of(self.key, make=True))


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    """`up` without minutes of measuring and training, and evaluations without a model that can be loaded."""
    made = Trained(shaped(tmp_path / "trained"), tmp_path / "training.key")
    shutil.copyfile(artefact_in(tmp_path / "tokens") / "tokenizer.json", made.folder / "tokenizer.json")

    monkeypatch.setenv(KEY, str(made.key))
    made.seal()

    def evaluated(model: Path, texts: Path, *_: object) -> Any:
        made.evaluated.append(model.name)
        return replace(FOUND, set_sha256=sha256_of(texts))

    monkeypatch.setattr(registering, "_evaluated", evaluated)
    monkeypatch.setattr(loop_stages, "measure_machine", lambda _: record())
    monkeypatch.setattr(loop_stages, "estimate_of", lambda *_: None)  # which needs what is measured
    monkeypatch.setattr(loop_stages, "train", lambda *_: (None, made.folder))
    return made


def test_up_registers_and_evaluates_what_is_trained_and_releases_nothing_to_a_server_of_others(
    tmp_path: Path, trained: Trained
) -> None:
    """Under a spec whose gate tries releases, twice: what is trained is another model the second time."""
    state, port = tmp_path / ".twofold", free_port()
    with served(Service(gap_s=0.002)) as there:
        spec = spec_in(tmp_path, f'{{url: "{there.url}/v1", model: second}}')
        try:
            page = up(spec, port=port, load_for="0.5 s", tell=lambda _: None)
            assert running(state, "replica-") == [] and running(state, "train-") == []
            trained.folder = shaped(tmp_path / "again", 2)
            shutil.copyfile(tmp_path / "tokens" / "tokenizer.json", trained.folder / "tokenizer.json")
            trained.seal()
            again = up(spec, port=port, load_for="0.5 s", tell=lambda _: None)
            up(spec, port=port, tell=lambda _: None)  # it is registered and evaluated once
            store = Store(state)
            assert (store.kept("version"), store.kept("offered")) == ("second", "")
            store.close()
            opened = Registry(tmp_path / ".twofold-registry")
            assert opened.tables.aliases("tiny") == {} and len(opened.tables.versions("tiny")) == 2
            assert all(opened.describe(f"tiny:{number}").evaluation for number in (1, 2))
            assert trained.evaluated == ["new", "new"]
            # People may move an alias; the service stays what it is.
            opened.approve("tiny:1", "bob", "")
            limits = Limits(token_count_least=0)
            opened.promote("tiny:1", "ann", "", limits)
            opened.approve("tiny:2", "bob", "")
            opened.close()
            asked = ("tiny:2", tmp_path / ".twofold-registry", "ann", "", "serving", "", 1)
            alone = "the server behind the URL is not ours to release to"
            moved = promote_version(*asked)
            assert moved.service == f"the alias alone moved, and nothing was measured on an engine: {alone}"
            back = roll_back_version("tiny", tmp_path / ".twofold-registry", "ann", "", "serving")
            assert back.service == f"the alias alone moved: {alone}"
        finally:
            bring_down(state)
    said = "the server behind the URL is not ours to release to; tiny:{} is registered and evaluated"
    for number, shown in ((1, page), (2, again)):
        assert any(note.startswith(said.format(number)) for note in shown.notes)
        assert said.format(number) in " ".join("\n".join(LoopShown(shown).lines).split())
    assert all(each.finished and not each.failed for each in page.serving[0].loads)


def test_a_model_of_the_registry_beside_a_server_of_others_is_evaluated_and_not_released(
    tmp_path: Path, trained: Trained
) -> None:
    opened = Registry(tmp_path / ".twofold-registry", make=True)
    digest = opened.push(trained.folder, "chat", "ann").version.digest
    state = tmp_path / ".twofold"
    with served(Service(gap_s=0.002)) as there:
        server = f'{{url: "{there.url}/v1", model: second}}'
        text = SPEC.replace("chat@serving", digest)
        text = text.replace("engine: transformers", f"engine: sglang\n  server: {server}")
        spec = tmp_path / "twofold.yaml"
        spec.write_text(text, "utf-8")
        try:
            page = up(spec, port=free_port(), load_for="0.5 s", tell=lambda _: None)
        finally:
            bring_down(state)
    assert any("not ours to release to; chat:1 is registered" in note for note in page.notes)
    assert opened.tables.aliases("chat") == {} and opened.describe("chat").evaluation is not None
    assert json.loads(opened.tables.log()[-1])["what"] == "evaluate"
    opened.close()


def test_what_cannot_be_asked_or_be_killed_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_KEY", raising=False)
    spec = spec_in(tmp_path, "{url: 'https://example.com/v1', model: m, key_env: NO_KEY}")
    with pytest.raises(ValueRefusedError, match="`NO_KEY` holds no key"):
        serve_settings(load(spec).spec, 1.0)
    with pytest.raises(ValueRefusedError, match="none of its replicas can be killed"):
        prove(spec)
    with pytest.raises(ValueRefusedError, match="not ours to release to") as caught:
        up(spec, try_releases=True, tell=lambda _: None)
    assert "--try-releases" in caught.value.hint and not (tmp_path / ".twofold").exists()
    with pytest.raises(InputErrors) as refused:
        load(spec_in(tmp_path, "{url: 'http://example.com/v1', model: m, key_env: NO_KEY}"))
    assert "clear text" in str(refused.value.errors[0])
