"""From sampled requests back to training, evaluation and release: with real, very small models."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

from tests.live.test_evaluate_worker import SENTENCE, trained, write  # noqa: F401  (a fixture)
from tests.live.test_sampled import line
from twofold.app.feedback import (
    CANDIDATES,
    REGRESSION,
    ShownAttribution,
    attribute_answers,
    curate_samples,
    learned_rows,
    watch_release,
)
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.registry.evaluate_worker import Asked, evaluate
from twofold.live.registry.registry import Registry
from twofold.live.registry.sample_worker import Reader, Text, attributed, scores
from twofold.live.training.data_sources import documents
from twofold.policy.release.rules import Limits
from twofold.policy.release.watch import WatchSettings

WORDS = SENTENCE.split()
SINCE = datetime(2099, 1, 1, tzinfo=UTC)
SETTINGS = WatchSettings()
REFERENCE = SETTINGS.block_count * SETTINGS.reference_blocks_count
WINDOW = SETTINGS.block_count * SETTINGS.window_blocks_count
FREE = Limits(approvals_least=0, token_count_least=0, drift_most_nats=None)


def kept(path: Path, lines: list[dict[str, Any]], registry: Registry | None = None) -> Path:
    """As answered by the version of a registry."""
    if registry is not None:
        model = registry.trusted("chat").version.digest.replace(":", "-")
        lines = [{**each, "model": model} for each in lines]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return path


def drawn(model: Any, tokenizer: Any, count: int, seed: int) -> list[tuple[str, str]]:
    """Prompts, and what a model answers when it is drawn from."""
    import torch

    torch.manual_seed(seed)
    found = []
    for begin in range(4):
        prompt = " ".join(WORDS[begin : begin + 4])
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        told = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            max_new_tokens=12,
            min_new_tokens=12,
            num_return_sequences=count // 4,
            pad_token_id=0,
        )
        found += [(prompt, tokenizer.decode(each[ids.shape[1] :])) for each in told]
    return found


def answered(model: Any, tokenizer: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What a model answers, a reference and two windows, and with a permuted layer, a window."""
    import torch

    good = drawn(model, tokenizer, REFERENCE + 2 * WINDOW, 1)
    layer = model.model.layers[0].mlp.down_proj.weight
    with torch.no_grad():
        layer.copy_(layer.flip(0))
        bad = drawn(model, tokenizer, WINDOW, 2)
        layer.copy_(layer.flip(0))
    return good, bad


@pytest.fixture(scope="module")
def answers(trained, tmp_path_factory):  # noqa: F811
    """A registry whose version serves; what it answers, and what a build with a permuted layer answers."""
    folder = tmp_path_factory.mktemp("served")
    model, tokenizer = trained
    registry = Registry(folder / "registry", make=True)
    registry.push(write(folder / "model", model, tokenizer), "chat", "ann")
    return registry, *answered(model, tokenizer)


def stream(pairs: list[tuple[str, str]], start: int = 0) -> list[dict[str, Any]]:
    """As the gateway keeps them, one a second, prompts in turn."""
    order = sorted(range(len(pairs)), key=lambda n: (n % (len(pairs) // 4), n))
    return [
        line(
            start + at,
            at=(SINCE + timedelta(seconds=start + at)).isoformat(),
            prompt=pairs[n][0],
            answer=pairs[n][1],
        )
        for at, n in enumerate(order)
    ]


def test_r_144_an_injected_drop_of_quality_raises_an_alert_in_the_next_window(
    answers, tmp_path: Path
) -> None:
    registry, good, bad = answers
    served = stream(good)
    samples = kept(tmp_path / "samples.jsonl", [*served, *stream(bad, len(served))], registry)
    shown = watch_release("chat", samples, registry.folder, "serving", 0.2, lambda _: None)
    assert [each.alert for each in shown.windows] == [False, False, True]  # two good ones, then the bad one
    assert shown.exit_code == 3 and any("ALERT" in each for each in shown.lines)
    assert all(len(each) <= 100 for each in shown.lines)
    quiet = watch_release(
        "chat",
        kept(tmp_path / "good.jsonl", served, registry),
        registry.folder,
        "serving",
        0.2,
        lambda _: None,
    )
    assert (quiet.exit_code, len(quiet.windows)) == (0, 2)


def test_r_160_sampled_requests_become_a_set_that_the_next_evaluation_uses(answers, tmp_path: Path) -> None:
    registry, good, _ = answers
    pairs = [(f"{prompt} {number}", answer) for number, (prompt, answer) in enumerate(good[:200])]
    lines = [line(n, prompt=prompt, answer=answer) for n, (prompt, answer) in enumerate(pairs)]
    lines[3] |= {"outcome": "failed", "reason": "timeout", "answer": ""}
    shown = curate_samples(kept(tmp_path / "samples.jsonl", lines), tmp_path / "learned")
    assert len(shown.found.candidates) + len(shown.found.regression) == 199
    read = list(documents(tmp_path / "learned" / CANDIDATES, CANDIDATES, "text"))  # by the trainer's reader
    tested = {row["text"] for row in shown.found.regression}
    assert len(read) == len(shown.found.candidates) and not tested & set(read)
    registry.pull("chat", tmp_path / "model")
    found = evaluate(Asked(str(tmp_path / "model"), str(tmp_path / "learned" / REGRESSION)))
    assert found["token_count"] > 500 and found["loss_nats"] > 0
    with pytest.raises(FileError, match="exists"):
        curate_samples(tmp_path / "samples.jsonl", tmp_path / "learned")


def test_an_answer_that_a_model_would_give_surprises_it_less(trained, tmp_path: Path) -> None:  # noqa: F811
    write(tmp_path / "model", *trained)
    reader = Reader(str(tmp_path / "model"))
    known = Text("a", " ".join(WORDS[:5]), (), f" {' '.join(WORDS[5:9])}")
    other = replace(known, answer=" lazy brown lazy quick")
    nothing = replace(known, answer="")
    low, high = scores(reader, (known, other, nothing))
    assert 0 <= low["score_nats"] < 0.5 < high["score_nats"] and (low["number"], high["number"]) == (0, 1)


captum = pytest.mark.skipif(
    find_spec("captum") is None,
    reason="needs the extra [attribution]: `make extras`",
)


@pytest.fixture(scope="module")
def shown(answers, tmp_path_factory) -> ShownAttribution:
    """Two answers attributed by the verb: in series, and in a process beside."""
    registry, _, _ = answers
    folder = tmp_path_factory.mktemp("samples")
    lines = [
        line(n, prompt=" ".join(WORDS[n : n + 6]), answer=f" {' '.join(WORDS[n + 6 : n + 9])}")
        for n in range(2)
    ]
    return attribute_answers(
        "chat", kept(folder / "s.jsonl", lines, registry), registry.folder, 2, lambda _: None
    )


@captum
def test_r_114_shares_of_the_prompts_tokens_sum_to_what_the_prompt_explains(
    shown: ShownAttribution, answers, tmp_path: Path
) -> None:
    """The two ends of the sum are computed here, without Captum; a large share is of a token that matters."""
    import torch

    registry, _, _ = answers
    registry.pull("chat", tmp_path / "model")
    reader = Reader(str(tmp_path / "model"))
    assert len(shown.told.found) == 2 and shown.exit_code == 0
    for sample, each in zip(shown.samples, shown.told.found, strict=True):
        assert (sample.request_id, sample.replica, sample.outcome) == (
            each.request_id,
            "replica-0",
            "finished",
        )
        ids = reader.prompt_ids(Text("", sample.prompt, (), ""))
        target = reader.answer_ids(Text("", "", (), sample.answer))[0]
        blank = reader.tokenizer.pad_token_id or reader.tokenizer.eos_token_id or 0

        def surprise(tokens: list[int], target: int = target) -> float:
            with torch.no_grad():
                return float(
                    torch.log_softmax(reader.model(torch.tensor([tokens])).logits[0, -1].double(), -1)[target]
                )

        explained = surprise(ids) - surprise([blank] * len(ids))
        assert sum(each.shares_nats) == pytest.approx(explained, rel=0.01)
        assert abs(each.delta_nats) <= 0.01 * abs(explained) and each.complete
        ranked = sorted(range(len(ids)), key=lambda n: each.shares_nats[n])
        without = [surprise([*ids[:n], blank, *ids[n + 1 :]]) for n in (ranked[-1], ranked[len(ids) // 2])]
        assert without[0] < without[1]
    assert any("complete: 2 of 2" in each for each in shown.lines)
    assert all(len(each) <= 100 for each in shown.lines)


@captum
def test_r_115_the_cost_is_told_in_series_and_beside_in_ms_and_core_seconds(shown: ShownAttribution) -> None:
    cost = shown.told.cost
    assert min(cost.series_s, cost.alone_s, cost.beside_s) > 0  # each by itself: which is longest is chance
    assert cost.series_core_s > 0 and cost.beside_core_s > 0 and shown.told.same
    [series] = [each for each in shown.lines if each.startswith("  in series")]
    [beside] = [each for each in shown.lines if each.startswith("  beside")]
    assert f"{(cost.series_s - cost.alone_s) * 1e3:+.1f} ms" in series and "core-s" in beside
    assert shown.as_data["cost"]["beside_core_s"] == cost.beside_core_s


@captum
def test_shares_that_do_not_sum_up_end_with_3(shown: ShownAttribution) -> None:
    first, *others = shown.told.found
    wrong = replace(shown.told, found=(replace(first, complete=False), *others))
    assert replace(shown, told=wrong).exit_code == 3
    assert any("✗ complete: 1 of 2" in each for each in replace(shown, told=wrong).lines)


@captum
def test_too_few_steps_are_doubled_until_shares_sum_up(trained, tmp_path: Path, monkeypatch) -> None:  # noqa: F811
    write(tmp_path / "model", *trained)
    monkeypatch.setattr("twofold.live.registry.sample_worker.STEPS_FIRST", 2)
    text = Text("a", " ".join(WORDS[:6]), (), f" {WORDS[6]}")
    found = attributed(Reader(str(tmp_path / "model")), text)
    assert found["complete"] and found["step_count"] > 2


@captum
def test_nothing_is_attributed_where_nothing_was_answered(answers, tmp_path: Path) -> None:
    registry, _, _ = answers
    path = kept(tmp_path / "s.jsonl", [line(1, outcome="failed", answer="")], registry)
    with pytest.raises(ValueRefusedError, match="was answered"):
        attribute_answers("chat", path, registry.folder, 2, lambda _: None)


def test_answers_of_another_model_say_nothing_of_this_one(answers, tmp_path: Path) -> None:
    registry, good, bad = answers
    path = kept(tmp_path / "ours.jsonl", stream(good), registry)
    with path.open("a") as file:  # a canary of a worse build, and a hosted model called like ours
        for number, each in enumerate(stream(bad, len(good))):
            model = "sha256-other" if number % 2 else json.loads(path.read_text().splitlines()[0])["model"]
            hosted = {} if number % 2 else {"endpoint": "https://api.example.org"}
            file.write(f"{json.dumps({**each, **hosted, 'model': model})}\n")
    shown = watch_release("chat", path, registry.folder, "serving", 0.2, lambda _: None)
    assert shown.exit_code == 0 and (shown.answer_count, shown.other_count) == (len(good), len(bad))
    assert f"{len(bad)} of other models left out" in shown.lines[0]


def test_a_watch_over_too_few_answers_says_so(answers, tmp_path: Path) -> None:
    registry, _, _ = answers
    path = kept(tmp_path / "s.jsonl", [line(1, outcome="failed", answer="")], registry)
    shown = watch_release("chat", path, registry.folder, "serving", 0.2, lambda _: None)
    assert shown.windows == () and "too few" in shown.lines[1]


def test_a_text_that_is_too_long_takes_no_room_from_the_others(tmp_path: Path) -> None:
    rows = [
        {"slice": "a", "text": "x" * 50},
        {"slice": "b", "text": "y" * 20},
        {"slice": "b", "text": "z" * 10},
    ]
    (tmp_path / REGRESSION).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert learned_rows(tmp_path, 30) == rows[1:]
    assert learned_rows(tmp_path, 80) == rows
