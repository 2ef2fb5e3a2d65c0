"""What `up` does between training and serving, without an engine; specs that name a model of a registry."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from tests.live.test_gguf_file import checkpoint
from tests.live.test_registry import FOUND, model
from twofold.app import releasing
from twofold.app.loop_settings import LoopRequest, name_of, serve_settings
from twofold.app.planning import plan
from twofold.app.registering import pull_version, verify_versions
from twofold.app.releasing import engine_with, named, released, taken, variant_of
from twofold.app.sources import load
from twofold.core.errors import (
    AlteredError,
    FileError,
    InputErrors,
    UnknownNameError,
    UsageError,
    ValueRefusedError,
)
from twofold.live.control.engines import EngineSettings
from twofold.live.control.gguf_file import FILE
from twofold.live.registry import blobs
from twofold.live.registry.registry import Registry, ReleaseRefusedError
from twofold.live.seals import key_of
from twofold.live.training.artefact import check_model, sha256_of, write_manifest
from twofold.live.training.corpus import held_out_texts, source_texts
from twofold.live.training.sealing import UnsealedError, key_beside, key_of_run, write_sealed
from twofold.policy.gate.settings import GateSettings
from twofold.policy.release.rules import Limits

LAPTOP = Path(__file__).parents[2] / "examples" / "laptop"
SPEC = """
name: served
serving:
  model: chat@serving
  quantisation: fp32
  kv_quantisation: fp32
  engine: transformers
  classes:
    chat:
      traffic: {rate: 1 /s, input: {mean: 64 tok}, output: {mean: 16 tok}}
      slo: {ttft_p95: 2 s}
  on: 1xthis-machine
"""


def shaped(folder: Path, value: int = 1) -> Path:
    """A model whose config.json is the laptop's."""
    model(folder, value)
    shutil.copyfile(LAPTOP / "config.json", folder / "config.json")
    (folder / "lineage.json").write_text(json.dumps({"data": {"digest": "d"}, "value": value}))
    return folder


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder with a spec that names `chat@serving`, and a registry in which that is."""
    (tmp_path / "twofold.yaml").write_text(SPEC)
    opened = Registry(tmp_path / ".twofold-registry", make=True)
    opened.push(shaped(tmp_path / "model"), "chat", "ann")
    opened.evaluated("chat", FOUND, "ann")
    opened.approve("chat", "bob", "")
    opened.promote("chat", "ann", "", Limits())
    opened.close()
    return tmp_path


def requested(folder: Path, name: str = "chat") -> LoopRequest:
    serving = serve_settings(load(folder / "twofold.yaml").spec, 1.0)
    (folder / ".twofold").mkdir(exist_ok=True)
    return LoopRequest(folder / "twofold.yaml", folder / ".twofold", None, serving, 1, lambda _: None, name)


def test_a_spec_may_name_a_model_of_the_registry_beside_it_and_is_planned(beside: Path) -> None:
    planned = plan(beside / "twofold.yaml")
    assert planned.serving[0].model == "chat@serving"
    settings = requested(beside).serving
    assert settings.registered == "chat@serving" and settings.replica_count in (1, 2)
    digest = Registry(beside / ".twofold-registry").find("chat").digest
    (beside / "twofold.yaml").write_text(SPEC.replace("chat@serving", digest))
    assert plan(beside / "twofold.yaml").digests.spec != planned.digests.spec
    assert requested(beside).serving.registered == digest


def test_what_is_not_there_sealed_or_whole_is_refused(beside: Path) -> None:
    spec = beside / "twofold.yaml"
    spec.write_text(SPEC.replace("chat@serving", "chat@canary"))
    with pytest.raises(UnknownNameError, match="chat@canary"):
        plan(spec)
    spec.write_text(SPEC)
    with pytest.raises(ValueRefusedError, match="in no file"):
        plan(SPEC)
    opened = Registry(beside / ".twofold-registry")
    entry = next(each for each in opened.describe("chat").stored.files if each.path == "config.json")
    path = blobs.blob(opened.folder, entry.sha256)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"256", b"512"))
    with pytest.raises(AlteredError, match=r"config\.json"):
        plan(spec)
    shutil.rmtree(opened.folder)
    with pytest.raises(FileError, match="no registry"):
        plan(spec)


def test_a_spec_trains_or_serves_what_is_registered_and_not_both(beside: Path) -> None:
    text = (
        (LAPTOP / "twofold.yaml")
        .read_text("utf-8")
        .replace("serving:\n", "serving:\n  model: chat@serving\n")
    )
    shutil.copyfile(LAPTOP / "config.json", beside / "config.json")
    (beside / "twofold.yaml").write_text(text)
    with pytest.raises(ValueRefusedError, match="is beside it"):
        requested(beside)


def test_what_a_spec_names_serves_and_an_unapproved_digest_is_refused_by_its_rule(
    beside: Path, quick: list[str]
) -> None:
    request, gate = requested(beside), GateSettings()
    release = named(request, gate)
    assert (release.text, release.is_tried) == ("chat:1", False)
    check_model(release.folder, release.digest)
    opened = Registry(beside / ".twofold-registry")
    digest = opened.push(shaped(beside / "other", 2), "chat", "ann").version.digest
    (beside / "twofold.yaml").write_text(SPEC.replace("chat@serving", digest))
    with pytest.raises(ReleaseRefusedError) as refused:
        named(requested(beside), gate)
    assert {"approval", "evaluation"} <= dict(refused.value.lines).keys() and quick == []
    assert json.loads(opened.tables.log()[-1])["what"] == "refused promotion to serving"
    opened.approve("chat:2", "bob", "")
    with pytest.raises(ReleaseRefusedError) as refused:  # the one that serves was evaluated on another set
        named(requested(beside), gate)
    assert dict(refused.value.lines).keys() == {"loss"} and quick == ["chat:2"]
    releasing.measured(opened, "chat:1", (beside / ".twofold" / releasing.HELD_OUT), "ann", "serving")
    assert named(requested(beside), gate).text == "chat:2"


def test_what_a_spec_names_of_another_architecture_is_refused_before_it_is_measured(
    beside: Path, quick: list[str]
) -> None:
    other = shaped(beside / "other", 2)
    told = json.loads((other / "config.json").read_text("utf-8"))
    (other / "config.json").write_text(json.dumps({**told, "architectures": ["Other"]}))
    opened = Registry(beside / ".twofold-registry")
    digest = opened.push(other, "chat", "ann").version.digest
    opened.approve("chat:2", "bob", "")
    opened.close()
    (beside / "twofold.yaml").write_text(SPEC.replace("chat@serving", digest))
    with pytest.raises(ReleaseRefusedError) as refused:
        named(requested(beside), GateSettings())
    assert "passes: architecture LlamaForCausalLM" in dict(refused.value.lines)["architecture"]
    assert quick == []  # no measuring helps
    limits = releasing.limits_of(requested(beside), GateSettings())
    assert limits.context_tokens_least == told["max_position_embeddings"]  # what its gateway lets in


def test_a_tampered_model_of_the_registry_is_not_served(beside: Path) -> None:
    request = requested(beside)
    opened = Registry(beside / ".twofold-registry")
    entry = next(each for each in opened.describe("chat").stored.files if each.path.endswith("tensors"))
    path = blobs.blob(opened.folder, entry.sha256)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(AlteredError, match=r"model\.safetensors"):
        named(request, GateSettings())
    assert not list((beside / ".twofold").rglob("model.safetensors"))


def test_what_no_run_of_ours_sealed_is_not_registered(beside: Path) -> None:
    """A manifest that fits is anybody's: a model in a run's place enters by the seal of the run alone."""
    request, planted = requested(beside, "tiny"), shaped(beside / "run" / "hf", 5)
    write_manifest(planted)
    with pytest.raises(UnsealedError, match="has no seal"):
        released(request, GateSettings(), planted)
    write_sealed(planted, planted.name, b"other key" * 4)
    with pytest.raises(UnsealedError, match="not sealed by our key"):
        key_of(key_beside(request.state), make=True)
        released(request, GateSettings(), planted)
    opened = Registry(request.registry)
    assert {each.name for each in opened.tables.versions()} == {"chat"}
    opened.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Evaluations that find everything well, without a model that can be loaded; what was measured."""
    done: list[str] = []

    def found(opened: Registry, reference: str, _texts: Path, by: str, alias: str, *_: Any) -> Any:
        done.append(reference)
        name = reference.partition(":")[0]
        beside = opened.find(f"{name}@{alias}").digest if alias in opened.tables.aliases(name) else ""
        sha256 = releasing.sha256_of(_texts)
        told = {"set_sha256": sha256, "beside": beside, "ttft_p95_s": 0.01, "tpot_p95_s": 0.01}
        return opened.evaluated(reference, replace(FOUND, **told, memory_bytes=1.0), by)

    monkeypatch.setattr(releasing, "measured", found)
    return done


def test_r_093_what_is_trained_is_registered_measured_judged_and_taken_out_once(
    beside: Path, quick: list[str]
) -> None:
    request, trained = requested(beside, "tiny"), shaped(beside / "trained", 5)
    write_sealed(trained, trained.name, key_of_run(trained.parent, request.state))
    first = released(request, GateSettings(), trained)
    assert (first.text, first.is_tried, quick) == ("tiny:1", False, ["tiny:1"])
    opened = Registry(request.registry)
    described = opened.describe("tiny@serving")
    assert described.version.digest == first.digest
    assert described.version.pushed_by == "up" and len(described.approved_by) == 1
    assert described.stored.facts["made_from"].keys() == {"data", "run"}
    assert released(request, GateSettings(), trained) == first and quick == ["tiny:1"]
    # A smaller copy of it serves: what it was made of is not released over it again.
    copy = variant_of(request, opened, "quantised", lambda one, other: shutil.copytree(
        one, other, ignore=shutil.ignore_patterns("manifest.json")
    ))  # fmt: skip
    assert copy.version.text == "tiny:2"
    opened.evaluated(
        "tiny:2", replace(FOUND, set_sha256=described.evaluation.set_sha256, beside=first.digest), "up"
    )
    opened.approve("tiny:2", "bob", "")
    opened.promote("tiny:2", "up", "", Limits())
    assert released(request, GateSettings(), trained).text == "tiny:2"
    opened.verify()


def test_r_099_every_copy_is_checked_by_its_digest_and_an_altered_one_is_named(beside: Path) -> None:
    registry = beside / ".twofold-registry"
    copies = tuple(beside / name for name in ("east", "north", "west"))
    for copy in copies:
        pull_version("chat:1", copy, registry, None)
    found = verify_versions("chat:1", registry, None, copies)
    assert [f"copy  {copy}: every file as pushed" for copy in copies] == found.lines[1:]
    weights = copies[1] / "model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    shutil.rmtree(copies[2])
    with pytest.raises(InputErrors) as refused:
        verify_versions("chat:1", registry, None, copies)
    altered, gone = (each.message for each in refused.value.errors)
    assert "model.safetensors" in altered and str(copies[1]) in altered
    assert "missing" in gone and str(copies[2]) in gone
    # What is whole, and another version, is no copy of this one.
    Registry(registry).push(shaped(beside / "other", 2), "chat", "ann")
    with pytest.raises(InputErrors):
        verify_versions("chat:2", registry, None, copies[:1])
    with pytest.raises(UsageError, match="one version"):
        verify_versions("", registry, None, copies)


def test_what_was_changed_in_the_states_folder_is_taken_out_anew(beside: Path) -> None:
    opened, told = Registry(beside / ".twofold-registry"), list[str]()
    release = taken(beside / ".twofold", opened, "chat", told.append)
    (release.folder / "config.json").write_text("{}")
    assert taken(beside / ".twofold", opened, "chat", told.append) == release
    check_model(release.folder, release.digest)
    assert len(told) == 1 and "config.json" in told[0]


def test_a_converted_copy_is_believed_by_the_registrys_seal_and_not_by_the_manifest_beside_it(
    beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who can write the state's folder changes the copy and its manifest, and moves a seal."""
    state, registry = beside / ".twofold", beside / ".twofold-registry"
    opened = Registry(registry)
    llama, made = EngineSettings("", "float32", 1, 256, 64, kind="llama.cpp"), []
    for name in ("one", "two"):
        source, _ = checkpoint(beside / name)
        (source / "more.json").write_text(json.dumps(name))
        opened.push(source, name, "ann")
        made.append(taken(state, opened, name))
    first, other = (engine_with(llama, each, state, registry) for each in made)
    copy, seal = Path(first.artefact), Path(f"{first.artefact}.seal")
    good = (copy / FILE).read_bytes()
    check_model(copy, first.digest)
    sealed = seal.read_text()
    for theirs in (sealed, Path(f"{other.artefact}.seal").read_text(), "é", None):
        (copy / FILE).write_bytes(good[:-1] + b"!")
        write_manifest(copy)
        if theirs is None:
            seal.unlink()
        else:
            seal.write_text(theirs)
        assert engine_with(llama, made[0], state, registry) == first
        assert (copy / FILE).read_bytes() == good and seal.read_text() == sealed
    (copy / FILE).write_bytes(good[:-1] + b"!")  # and no manifest of its own
    assert engine_with(llama, made[0], state, registry) == first and (copy / FILE).read_bytes() == good
    monkeypatch.setattr(releasing, "gguf_of", None)  # what is as it was made is not made again
    assert engine_with(llama, made[0], state, registry) == first
    opened.close()


def test_what_a_model_is_judged_by_no_run_of_a_loop_has_seen() -> None:
    seen = "\n".join(source_texts(releasing.SEEN_BYTES))
    pieces = held_out_texts(releasing.SEEN_BYTES, releasing.PIECES, releasing.PIECE_BYTES)
    assert {kind for kind, _ in pieces} == {"module", "package"}
    assert sum(text[:400] in seen for _, text in pieces if len(text) > 400) == 0
    assert sum(len(text) for _, text in pieces) > 20_000


def test_names_of_the_registry_are_made_of_what_a_run_is_called() -> None:
    for text in ("tiny", "My Model/7b", "7", "sha256", "…", "a" * 90):
        name = name_of(text)
        assert 0 < len(name) <= 64 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert not name.isdigit() and name != "sha256"


def test_what_was_learned_from_requests_is_part_of_what_a_release_is_evaluated_on(beside: Path) -> None:
    """Each slice in turn and so many bytes; without it the set is what it was."""
    request = requested(beside)
    plain = releasing.held_out(request).read_text("utf-8").splitlines()
    learned = request.state / releasing.LEARNED
    learned.mkdir()
    rows = [{"slice": name, "text": f"{name} " * 1000, "model": "m"} for name in 9 * ["long"] + ["short"]]
    (learned / "regression.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path = releasing.held_out(request)
    *first, last = [json.loads(line) for line in path.read_text("utf-8").splitlines()[: -len(plain)]]
    assert [each["slice"] for each in (*first, last)] == ["long", "short", "long"]
    assert path.read_text("utf-8").splitlines()[-len(plain) :] == plain
    assert path.stat().st_mode & 0o077 == 0
    (learned / "regression.jsonl").write_text('{"slice": "a", "text": "b"}\n{"words": 1}\n')
    with pytest.raises(FileError, match="no row of a regression set") as found:
        releasing.held_out(request)
    assert ":2:" in str(found.value)


def test_a_spec_may_name_the_set_that_counts_and_what_was_evaluated_on_another_is_refused(
    beside: Path,
) -> None:
    """Whoever evaluates cannot choose another one; the file's own bytes count, however its lines end."""
    own, spec = beside / "own.jsonl", beside / "twofold.yaml"
    own.write_bytes(b'{"slice": "a", "text": "%s"}\r\n\r\n' % (b"as people ask " * 40))
    spec.write_text(SPEC.replace("  on: 1x", "  evaluated_on: own.jsonl\n  on: 1x"))
    request = requested(beside)
    learned = request.state / releasing.LEARNED
    learned.mkdir()
    (learned / "regression.jsonl").write_text('{"slice": "new", "text": "more"}\n')
    assert releasing.held_out(request).read_bytes() == own.read_bytes()
    limits = releasing.limits_of(request, GateSettings())
    assert limits.set_sha256 == sha256_of(own)
    opened = Registry(beside / ".twofold-registry")
    asked = Path(releasing.questions_for(request.state, opened, "chat")).read_text("utf-8")
    assert "as people ask" in asked and "more" not in asked
    opened.push(shaped(beside / "second", 2), "chat", "ann")
    opened.approve("chat:2", "bob", "")
    serving = opened.find("chat@serving").digest
    opened.evaluated("chat:2", replace(FOUND, beside=serving, memory_bytes=1.0), "ann")
    with pytest.raises(ReleaseRefusedError) as refused:
        opened.promote("chat:2", "ann", "", limits)
    found = dict(refused.value.lines)
    assert found.keys() == {"set"} and limits.set_sha256[:12] in found["set"]
    for text in ("chat:1", "chat:2"):
        opened.evaluated(
            text, replace(FOUND, set_sha256=limits.set_sha256, beside=serving, memory_bytes=1.0), "ann"
        )
    assert opened.promote("chat:2", "ann", "", limits).version == 2
    other = beside / "own.txt"
    other.write_bytes(own.read_bytes())
    (beside / "empty.jsonl").touch()
    for path, told in ((other, "does not end in `.jsonl`"), (beside / "empty.jsonl", "no lines of JSON")):
        own_set = replace(request.serving, evaluated_on=path)
        with pytest.raises(FileError, match=told):
            releasing.held_out(replace(request, serving=own_set))
    own.write_text("no JSON\n")
    with pytest.raises(FileError, match=r"line 1 of own\.jsonl has no `text`"):
        releasing.held_out(request)
    opened.close()
