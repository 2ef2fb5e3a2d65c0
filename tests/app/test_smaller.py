"""What answers in need on this machine: out of the registry, by name or as a copy with narrower weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from tests.app.test_releasing import SPEC, beside, requested, shaped
from twofold.app import smaller
from twofold.app.gates import served_gate
from twofold.app.registering import ShownVersion
from twofold.core.errors import ValueRefusedError
from twofold.live.registry.registry import Registry

__all__ = ["beside"]  # the fixture
PACKED = {"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": 8}}}}}


def with_smaller(folder: Path, said: str, **other: str) -> None:
    text = SPEC.replace("  classes:", f"  policies: {{degradation: {{smaller: {said}}}}}\n  classes:")
    for old, new in other.items():
        text = text.replace(old, new)
    (folder / "twofold.yaml").write_text(text)


def pushed(folder: Path, **changed: int) -> tuple[Path, str]:
    """Another model of the registry, with some keys of its config changed, and its digest."""
    shaped(folder, 9)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changed))
    opened = Registry(folder.parent / ".twofold-registry")
    try:
        return folder, opened.push(folder, "mini", "ann").version.digest
    finally:
        opened.close()


def test_a_named_one_comes_out_of_the_registry_and_is_rehearsed_as_it_is(beside: Path) -> None:
    narrow, digest = pushed(beside / "narrow", num_hidden_layers=1)
    with_smaller(beside, f'{{model: "{digest}", replicas: 1}}')
    found = smaller.smaller_model(requested(beside))
    assert found is not None and (found.version, found.replica_count) == (digest.replace(":", "-"), 1)
    assert (Path(found.engine.artefact) / "config.json").read_bytes() == (narrow / "config.json").read_bytes()
    gate = served_gate(beside / "twofold.yaml", 2, None)
    assert gate.built.settings.classes[0].smaller_model == found.name == digest
    own, mini = (gate.task.world.models["", name] for name in ("", found.name))
    assert mini.weight_bytes < own.weight_bytes


def test_a_copy_of_what_serves_is_made_once(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str]] = []

    def quantised(reference: str, registry: Path, by: str, bits: str) -> ShownVersion:
        made.append((reference, bits))
        opened = Registry(registry)
        source, folder = opened.describe(reference).version, beside / "copy"
        shutil.copytree(beside / "model", folder, ignore=shutil.ignore_patterns("manifest.json"))
        config: Any = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | PACKED))
        described = opened.push(folder, source.name, by, {"quantised": source.digest})
        opened.close()
        return ShownVersion(described)

    monkeypatch.setattr(smaller, "quantise_version", quantised)
    with_smaller(beside, "int8")
    first = smaller.smaller_model(requested(beside))
    again = smaller.smaller_model(requested(beside))
    assert first == again and first is not None and made == [("chat:1", "8")]
    opened = Registry(beside / ".twofold-registry")
    copy, source = (opened.describe(each).version.digest for each in ("chat:2", "chat:1"))
    opened.close()
    assert (first.name, first.version) == ("int8 copy", copy.replace(":", "-")) and copy != source


@pytest.mark.parametrize(
    ("said", "other", "why"),
    [
        ("{model: llama-3.2-1b}", {}, "comes out of the registry here"),
        ("int8", {"engine: transformers": "engine: llama.cpp"}, "reads no int8 copy"),
    ],
)
def test_what_cannot_be_had_here_is_refused_before_anything_starts(
    said: str, other: dict[str, str], why: str, beside: Path
) -> None:
    with_smaller(beside, said, **other)
    with pytest.raises(ValueRefusedError, match=why):
        requested(beside)


def test_one_that_holds_shorter_requests_is_refused_by_both(beside: Path) -> None:
    _, digest = pushed(beside / "short", max_position_embeddings=32, num_hidden_layers=1)
    with_smaller(beside, f'{{model: "{digest}"}}')
    with pytest.raises(ValueRefusedError, match="holds 32 tokens"):
        smaller.smaller_model(requested(beside))
    with pytest.raises(ValueRefusedError, match="holds requests of 32 tokens"):
        served_gate(beside / "twofold.yaml", 2, None)
