"""Bad releases on real, very small engines: the gate finds each, the rules name it; a good one passes.

Twenty trials of each, and how often the gate is wrong: `python -m tests.soak --releases 20`.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

from tests.soak.releases import BAD, GOOD, SEEN_BYTES, Engine, train, tried
from twofold.cli import main
from twofold.core.data import from_data
from twofold.live.registry.evaluate_worker import Asked, evaluate
from twofold.live.registry.registry import Registry
from twofold.live.training import variants
from twofold.live.training.corpus import held_out_texts
from twofold.policy.release.rules import Evaluation, Limits


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("releases") / "model")


@pytest.fixture(scope="module")
def serving(model: Path) -> Engine:
    return Engine(model)


# What finds it first, of what may.
REASONS = {
    "one permuted layer": {"quality worse"},
    "3 % noise": {"quality worse", "quality likely worse"},
    "a slower build": {"tpot worse", "ttft worse", "tpot likely worse"},
    "a wrong tokenizer": {"quality worse"},
}


@pytest.mark.parametrize("kind", BAD)
def test_r_101_a_bad_release_is_rolled_back_before_its_stage_is_over(
    kind: str, model: Path, serving: Engine, tmp_path: Path
) -> None:
    BAD[kind](model, tmp_path / "release", 3)
    ended = tried(serving, Engine(tmp_path / "release"), 3)
    assert not ended.promoted and ended.reason in REASONS[kind], ended
    assert ended.to_release <= ended.stage_fraction * ended.requests + 3.0 * ended.requests**0.5 / 2
    assert ended.to_release <= ended.stage_requests


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_release_is_promoted_within_two_minutes_of_its_traffic(
    kind: str, model: Path, serving: Engine, tmp_path: Path
) -> None:
    GOOD[kind](model, tmp_path / "release", 3)
    ended = tried(serving, Engine(tmp_path / "release"), 3)
    assert ended.promoted, ended
    assert ended.seconds < 120.0


@pytest.fixture
def registry(model: Path, tmp_path: Path) -> Registry:
    """A registry in which the model serves, with a set of text that it never saw."""
    made = Registry(tmp_path / "registry", make=True)
    made.push(model, "tiny", "ann", {"run": "sha256:" + "1" * 64})
    lines = [json.dumps({"slice": kind, "text": text}) for kind, text in held_out_texts(SEEN_BYTES, 4, 1200)]
    (tmp_path / "set.jsonl").write_text("\n".join(lines))
    made.evaluated("tiny:1", measured(tmp_path, model, None), "ann")
    made.approve("tiny:1", "bob", "")
    made.promote("tiny:1", "ann", "", Limits())
    return made


def measured(folder: Path, model: Path, before: Path | None) -> Evaluation:
    asked = Asked(str(model), str(folder / "set.jsonl"), str(before or ""), token_count_most=10_000)
    return from_data(Evaluation, evaluate(asked), finite=False)


def judged(registry: Registry, folder: Path, model: Path, release: Path, **made_from: str) -> dict[str, str]:
    """Which rules a release breaks, with what was found."""
    text = registry.push(release, "tiny", "ann", made_from).version.text
    found = measured(folder, release, model)
    registry.evaluated(text, replace(found, beside=registry.find("tiny@serving").digest), "ann")
    registry.approve(text, "bob", "")
    return {each.rule: each.figure for each in registry.judge(text, "serving", Limits())}


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        ("one permuted layer", {"loss", "drift", "regression"}),
        ("3 % noise", {"weights"}),
        ("a wrong tokenizer", {"tokenizer", "loss"}),
    ],
)
def test_r_178_each_gate_stops_a_model_that_was_made_to_fail_it(
    kind: str, rules: set[str], registry: Registry, model: Path, tmp_path: Path
) -> None:
    BAD[kind](model, tmp_path / "release", 5)
    run = {"run": "sha256:" + "1" * 64}  # it says that it is what the run made
    broken = judged(registry, tmp_path, model, tmp_path / "release", **run)
    assert rules <= broken.keys()
    assert all(broken.values())


def test_r_178_a_model_made_surer_than_it_is_right_is_stopped_by_its_calibration_error(
    registry: Registry, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same likeliest tokens, each with three times the log odds: `promote` says the figure, and ends
    with 3."""
    variants.write_variant(model, tmp_path / "sure", surer)
    run = {"run": "sha256:" + "2" * 64}
    assert "calibration" in judged(registry, tmp_path, model, tmp_path / "sure", **run)
    before, found = (registry.describe(f"tiny:{number}").evaluation for number in (1, 2))
    assert before is not None and found is not None
    old, new = before.calibration_error_fraction, found.calibration_error_fraction
    assert old is not None and new is not None and new > old + 0.02
    words = ["registry", "promote", "tiny:2", "--registry", str(registry.folder), "--by", "ann"]
    assert main(words) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert f"calibration {new:.4g}; passes: at most {old + 0.02:.4g}" in said
    assert registry.find("tiny@serving").text == "tiny:1"


def surer(tensors: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    """Logits are linear in the last norm's weights."""
    return {name: 3.0 * each if name == "model.norm.weight" else each for name, each in tensors.items()}
