"""Evaluation of real, very small models: each broken one is stopped by the rule that its fault belongs to."""

import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

from twofold.app.registering import _evaluated, evaluate_version, quantise_version
from twofold.core.data import from_data
from twofold.core.errors import ValueRefusedError
from twofold.live.registry import quantise_worker
from twofold.live.registry.evaluate_worker import Asked, evaluate, read_texts, set_digest
from twofold.live.registry.registry import Registry
from twofold.policy.release.rules import Evaluation, Limits

pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

SENTENCE = "the quick brown fox jumps over the lazy dog and comes back again. "


def write(folder: Path, model, tokenizer) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def taught():
    """A model that knows one sentence by heart, and its tokenizer: a second of training."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.BPE())
    words.pre_tokenizer, words.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words.train_from_iterator([SENTENCE], trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet))
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=280, num_key_value_heads=1, max_position_embeddings=64, **sizes)
    )
    tokens = torch.tensor([words.encode(SENTENCE * 8).ids[:64]])
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        optimiser.step()
    return model, PreTrainedTokenizerFast(tokenizer_object=words)


@pytest.fixture(scope="module")
def trained():
    """The same, once."""
    return taught()


@pytest.fixture
def registry(trained, tmp_path: Path) -> Registry:
    """A registry whose first version serves, and a set of two slices."""
    made = Registry(tmp_path / "registry", make=True)
    made.push(write(tmp_path / "first", *trained), "chat", "ann")
    lines = [json.dumps({"slice": name, "text": SENTENCE * 40}) for name in ("foxes", "dogs")]
    (tmp_path / "set.jsonl").write_text("\n".join(lines))
    made.evaluated("chat:1", evaluated(tmp_path, "first", ""), "ann")
    made.approve("chat:1", "bob", "")
    made.promote("chat:1", "ann", "", Limits())
    return made


def evaluated(folder: Path, name: str, before: str = "first") -> Evaluation:
    """As the worker does it, without a process of its own: that takes seconds to start."""
    asked = Asked(str(folder / name), str(folder / "set.jsonl"), str(folder / before) if before else "")
    return from_data(Evaluation, evaluate(asked), finite=False)


def broken_rules(registry: Registry, folder: Path, name: str) -> set[str]:
    """Of a folder that is pushed and evaluated."""
    version = registry.push(folder / name, "chat", "ann", {"run": f"sha256:{name}"}).version.text
    beside = registry.find("chat@serving").digest
    registry.evaluated(version, replace(evaluated(folder, name), beside=beside), "ann")
    registry.approve(version, "bob", "")
    return {each.rule for each in registry.judge(version, "serving", Limits())}


def test_good_and_broken_releases_on_one_set(registry: Registry, trained, tmp_path: Path) -> None:
    """The same weights again drift by nothing; a permuted layer is stopped and 3 % of noise is measured."""
    import torch

    model, tokenizer = trained
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    write(tmp_path / "same", model, tokenizer)
    with torch.no_grad():
        layer = model.model.layers[0].mlp.down_proj.weight
        layer.copy_(layer.flip(0))
        write(tmp_path / "permuted", model, tokenizer)
        model.load_state_dict(weights)
        torch.manual_seed(1)
        for each in model.parameters():
            each.add_(torch.randn_like(each) * each.std() * 0.03)
        write(tmp_path / "noisy", model, tokenizer)
        model.load_state_dict(weights)
    assert broken_rules(registry, tmp_path, "same") == set()
    assert {"loss", "drift", "regression"} <= broken_rules(registry, tmp_path, "permuted")
    assert evaluated(tmp_path, "permuted").failed_slices == ("dogs", "foxes")
    drifts = [evaluated(tmp_path, name).drift_nats for name in ("same", "noisy", "permuted")]
    assert drifts[0] == pytest.approx(0.0, abs=1e-9)
    assert 1e-6 < drifts[1] < drifts[2]


def test_the_verb_evaluates_in_a_process_of_its_own(registry: Registry, tmp_path: Path) -> None:
    told: list[str] = []
    words = tmp_path / "set.jsonl", registry.folder, "ann", "serving", (), told.append
    shown = evaluate_version("chat:1", *words)
    assert shown.version.evaluation == registry.describe("chat:1").evaluation
    assert (shown.refused, told) == ((), ["evaluate chat:1"])
    assert json.loads(registry.tables.log()[-1])["what"] == "evaluate"


def test_what_is_evaluated_says_beside_what(
    registry: Registry, trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "twofold.app.registering._evaluated",
        lambda model, _texts, before, _tasks: replace(
            evaluated(tmp_path, model, before or ""), drift_nats=0.0 if before else None
        ),
    )
    registry.push(write(tmp_path / "second", *trained), "chat", "ann", {"run": "2"})
    registry.approve("chat:2", "bob", "")
    shown = evaluate_version(
        "chat:2", tmp_path / "set.jsonl", registry.folder, "ann", "serving", (), lambda _: None
    )
    assert shown.version.evaluation.beside == registry.find("chat:1").digest and shown.refused == ()


@pytest.mark.usefixtures("registry")
def test_a_slice_that_is_beyond_what_is_read_is_refused(tmp_path: Path) -> None:
    asked = Asked(str(tmp_path / "first"), str(tmp_path / "set.jsonl"), token_count_most=100)
    with pytest.raises(ValueError, match="nothing of `dogs`"):
        evaluate(asked)


def test_an_evaluation_that_does_not_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.app.model_workers.LIMIT_S", 0.001)
    with pytest.raises(ValueRefusedError, match="not evaluated within"):
        _evaluated(tmp_path, tmp_path / "set.jsonl", None)


def test_a_set_without_text_is_refused_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_text('{"text": "a"}\n{"words": "b"}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_texts(Path(Asked("", str(tmp_path / "set.jsonl")).texts))


def test_a_text_may_hold_what_other_programs_take_for_the_end_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text('{"text": "a\u2028b"}\r\n\n{"text": "c\u0085"}', "utf-8", newline="")
    assert [each.text for each in read_texts(path)] == ["a\u2028b", "c\u0085"]
    for line in ('{"text": null}', "[" * 200_000):
        path.write_text(f'{{"text": "a"}}\n{line}\n')
        with pytest.raises(ValueError, match="line 2 of set"):
            read_texts(path)


@pytest.mark.usefixtures("registry")
def test_the_same_bytes_read_as_one_text_are_another_set(tmp_path: Path) -> None:
    """Else slices would be lost, and figures pass for those of the set that counts."""
    lines, text = tmp_path / "set.jsonl", tmp_path / "set.txt"
    text.write_bytes(lines.read_bytes())
    found = [evaluate(Asked(str(tmp_path / "first"), str(path)))["set_sha256"] for path in (lines, text)]
    assert found == [set_digest(lines), set_digest(text)] and found[0] != found[1]


def quantised(folder: Path, name: str, bits: int = 8) -> dict[str, object]:
    """As the worker does it, without a process of its own, into `NAME-8`."""
    asked = quantise_worker.Asked(str(folder / name), str(folder / f"{name}-{bits}"), bits)
    return quantise_worker.quantise(asked)


def in_this_process(module: str, request: str, *_: str) -> dict[str, object]:
    """What a worker answers to a request, without the seconds that it takes to start."""
    with redirect_stdout(StringIO()) as said, patch.object(sys, "stdin", StringIO(request)):
        import_module(module).main()
    return dict(json.loads(said.getvalue()))


def packed_in(folder: Path, smaller: str):
    """Each of 14 quantised weights: as it was, packed, its scale, and as transformers' library unpacks it."""
    import torch
    from safetensors.torch import load_file

    unpack = pytest.importorskip(
        "compressed_tensors.compressors.pack_quantized.helpers",
        reason="needs the extra [train]: `make extras`",
    ).unpack_from_int32
    before, after = (load_file(folder / name / "model.safetensors") for name in ("first", smaller))
    names = [each.removesuffix("_packed") for each in after if each.endswith("weight_packed")]
    assert len(names) == 14
    for name in names:
        packed, scale, shape = (after[f"{name}_{part}"] for part in ("packed", "scale", "shape"))
        whole = unpack(packed, int(smaller.rpartition("-")[2]), torch.Size(shape.tolist()))
        yield before[name], packed, scale, whole


def test_weights_of_8_bits_are_within_half_a_step_and_the_engine_reads_the_same(
    trained, tmp_path: Path
) -> None:
    """Unpacked here by the formula, and by the library that transformers unpacks them with."""
    import torch
    from safetensors.torch import load_file

    write(tmp_path / "first", *trained)
    said = quantised(tmp_path, "first")
    assert said["weights_count"] == 14  # seven of each of two layers; not what predicts the next token
    for before, packed, scale, whole in packed_in(tmp_path, "first-8"):
        bits = packed.contiguous().view(torch.uint8)[:, : before.shape[1]].to(torch.int16) - 128
        assert torch.equal(bits.to(torch.int8), whole)
        assert ((bits * scale - before).abs() <= scale * 0.5001).all()
    after = load_file(tmp_path / "first-8" / "model.safetensors")
    assert {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"} <= after.keys()
    with pytest.raises(ValueError, match="quantised already"):
        quantised(tmp_path, "first-8")


def test_weights_of_4_bits_are_within_half_a_step_of_their_group_and_the_engine_answers_by_them(
    registry: Registry, trained, tmp_path: Path
) -> None:
    """What it costs is measured; packed files are no safetensors to an engine that only knows those."""
    write(tmp_path / "first", *trained)
    said = quantised(tmp_path, "first", 4)
    assert said["after_bytes"] < said["before_bytes"]
    for before, _, scale, whole in packed_in(tmp_path, "first-4"):
        step = scale.repeat_interleave(32, dim=1)
        assert ((whole.float() * step - before).abs() <= step * 0.5001).all()
    loss, smaller = (evaluated(tmp_path, name, "").loss_nats for name in ("first", "first-4"))
    assert loss < smaller < loss + 0.2
    described = registry.push(tmp_path / "first-4", "chat", "ann", {"quantised": "sha256:1"})
    facts = described.stored.facts
    assert facts["formats"] == ["compressed-tensors"]
    assert facts["parameter_count"] == registry.describe("chat:1").stored.facts["parameter_count"]
    for formats, is_refused in ((("safetensors",), True), (Limits().formats, False)):
        refused = registry.judge(described.version.text, "serving", Limits(formats=formats))
        assert ("format" in {each.rule for each in refused}) is is_refused
    odd = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2}
    from transformers import LlamaConfig, LlamaForCausalLM

    write(tmp_path / "odd", LlamaForCausalLM(LlamaConfig(vocab_size=280, **odd)), trained[1])
    with pytest.raises(ValueError, match="no whole groups of 32"):
        quantised(tmp_path, "odd", 4)


def test_r_045_what_quantising_costs_is_told_and_a_model_that_it_harms_is_stopped(
    registry: Registry, trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One keeps its loss; another has a weight that nothing uses, so large that its row's others become 0."""
    import torch

    monkeypatch.setattr("twofold.app.registering.asked_worker", in_this_process)
    shown = quantise_version("chat:1", registry.folder, "ann")
    assert registry.trace("chat:2")[1] == ("quantised", registry.find("chat:1").digest)
    assert (
        shown.version.stored.facts["parameter_count"]
        == (registry.describe("chat:1").stored.facts["parameter_count"])
    )
    assert {each.rule for each in shown.refused} == {"approval", "evaluation"}
    asked = tmp_path / "set.jsonl", registry.folder, "ann", "serving", (), lambda _: None
    good = evaluate_version("chat:2", *asked)
    assert {each.rule for each in good.refused} == {"approval"}
    [line] = [line for line in good.lines if "perplexity" in line and "of the" in line]
    assert "%" in line
    model, tokenizer = trained
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.gate_proj.weight[0] = 0.0  # the first hidden unit is always 0 …
            layer.mlp.down_proj.weight[:, 0] = 1e4  # … so that what it is multiplied by changes nothing
    write(tmp_path / "odd", model, tokenizer)
    model.load_state_dict(weights)
    registry.push(tmp_path / "odd", "odd", "ann")
    quantise_version("odd:1", registry.folder, "ann")
    bad = evaluate_version("odd:2", *asked)
    [refused] = [each for each in bad.refused if each.rule == "quantised"]
    assert "%" in refused.figure and "of what it was quantised from" in refused.passes
