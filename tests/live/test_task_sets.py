"""Questions made of held-out text, and tasks of lm-evaluation-harness where it is installed."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

import torch

from tests.live.test_evaluate_worker import SENTENCE, in_this_process, taught, write
from twofold.app.registering import evaluate_version
from twofold.live.registry import task_sets
from twofold.live.registry.registry import Registry
from twofold.live.registry.task_sets import own_questions, scores
from twofold.policy.release.rules import Limits

STORY = "".join(f"{word} {SENTENCE}" for word in ["one", "two", "three", "four", "five", "six", "seven"])


@pytest.fixture(scope="module")
def trained():
    return taught()


def broken(model):
    """The same with a layer whose rows are in another order."""
    with torch.no_grad():
        layer = model.model.layers[0].mlp.down_proj.weight
        layer.copy_(layer.flip(0))
    return model


def test_equal_text_gives_equal_questions_whose_answer_stands_once() -> None:
    asked = own_questions([STORY * 20])
    assert asked == own_questions([STORY * 20]) and 20 <= len(asked) <= 100
    for each in asked:
        assert each.prompt + each.right in STORY * 20
        assert each.right not in each.others and len(set(each.others)) == 3
    with pytest.raises(ValueError, match="0 questions, and 20 are needed"):
        own_questions(["a few words"])
    with pytest.raises(ValueError, match="questions"):
        own_questions(["word " * 5000])  # whatever follows follows everywhere


def test_a_model_that_knows_the_text_answers_and_a_broken_one_does_not(trained) -> None:
    model, tokenizer = trained
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    good = scores(("own",), [SENTENCE * 200], "s", model, tokenizer)
    bad = scores(("own",), [SENTENCE * 200], "s", broken(model), tokenizer)
    model.load_state_dict(weights)
    assert [each["name"] for each in good] == ["choice", "cloze"]
    for one, other in zip(good, bad, strict=True):
        assert one["right_fraction"] > 0.7 > other["right_fraction"] + 0.3


def test_a_release_that_answers_fewer_questions_is_stopped_by_tasks(
    trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that nobody asked is asked, because what serves was."""
    monkeypatch.setattr("twofold.app.registering.asked_worker", in_this_process)
    model, tokenizer = trained
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    opened = Registry(tmp_path / "registry", make=True)
    texts = tmp_path / "set.jsonl"
    texts.write_text(json.dumps({"text": SENTENCE * 200}))
    opened.push(write(tmp_path / "first", model, tokenizer), "chat", "ann")
    words = texts, opened.folder, "ann", "serving"
    shown = evaluate_version("chat:1", *words, ("own",), lambda _: None)
    assert "perplexity" in " ".join(shown.lines) and "choice 100.0% of" in " ".join(shown.lines)
    opened.approve("chat:1", "bob", "")
    opened.promote("chat:1", "ann", "", Limits())
    opened.push(write(tmp_path / "second", broken(model), tokenizer), "chat", "ann")
    model.load_state_dict(weights)
    refused = evaluate_version("chat:2", *words, (), lambda _: None).refused
    [figure, *_] = [each.figure for each in refused if each.rule == "tasks"]
    assert "choice" in figure and "right" in figure


HARNESS_TASK = """\
task: foxes
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{passage}}}}"
doc_to_choice: "{{{{options}}}}"
doc_to_target: "{{{{right}}}}"
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""


def test_tasks_of_the_harness_are_asked_offline(
    trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lm_eval", reason="needs the extra [tasks]: `make extras`")
    from transformers import PreTrainedTokenizerFast

    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    rows = [
        {"passage": SENTENCE * 2 + "the quick", "options": [" lazy again", " brown fox"], "right": 1}
        for _ in range(5)
    ]
    (tmp_path / "tasks").mkdir()
    data = tmp_path / "tasks" / "foxes.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "tasks" / "foxes.yaml").write_text(HARNESS_TASK.format(data=data))
    model, tokenizer = trained
    with pytest.raises(ValueError, match="no end of a text"):
        scores((str(tmp_path / "tasks"),), [], "s", model, tokenizer)
    ended = PreTrainedTokenizerFast.from_pretrained(write(tmp_path / "model", *trained))
    ended.eos_token = ended.pad_token = ended.convert_ids_to_tokens(0)
    [found] = scores((str(tmp_path / "tasks"),), [], "s", model, ended)
    assert (found["name"], found["right_fraction"], found["question_count"]) == ("lm_eval foxes", 1.0, 5)


def test_a_folder_that_is_no_task_set_is_refused(trained, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no task"):
        scores((str(tmp_path),), [], "s", *trained)


CODE_OF_THEIRS = {
    "a function": "doc_to_text: !function utils.text",
    "a function by its whole tag": "doc_to_text: !<!function> utils.text",
    "a tag of another name": "%TAG !e! !func\n---\ntask: a\ndoc_to_text: !e!tion utils.text",
    "an object of Python": "doc_to_text: !!python/object/apply:os.system [echo]",
    "a definition beside it": "include: _template",
    "data of elsewhere": "dataset_kwargs: {data_files: {test: [/elsewhere/rows.jsonl]}}",
    "data by a URL": "dataset_kwargs: {data_files: https://example.com/rows.jsonl}",
    "a template of another file": "use_prompt: /elsewhere/x.yaml:p",
    "one that stands in itself": "metadata: &m {again: *m, trust_remote_code: true}",
    "a program that reads": "dataset_path: ./reader.py",
    "a program that scores": "metric_list: [{metric: ./score.py}]",
    "one that is trusted, deep inside": "task: [{task: b, dataset_kwargs: {trust_remote_code: true}}]",
    "a metric of a hub": "metric_list: [{metric: acc, hf_evaluate: true}]",
}


@pytest.mark.parametrize("way", CODE_OF_THEIRS)
def test_a_task_that_would_run_a_program_is_refused(trained, tmp_path: Path, way: str) -> None:
    told = CODE_OF_THEIRS[way]
    (tmp_path / "a.yaml").write_text(told if told.startswith("%") else f"task: a\n{told}\n")
    with pytest.raises(ValueError, match=r"`a\.yaml` (is no plain YAML|says|reads data|scores by)"):
        scores((str(tmp_path),), [], "s", *trained)


def test_templates_of_a_task_see_only_its_data() -> None:
    jinja2 = pytest.importorskip("jinja2", reason="needs the extra [train]: `make extras`")
    harness = jinja2.Environment(undefined=jinja2.StrictUndefined)
    harness.filters["shout"] = str.upper
    templates = task_sets._sandboxed(harness)
    assert templates.from_string("{{ a | shout }}\n").render(a="x") == "X\n"
    with pytest.raises(jinja2.exceptions.SecurityError):
        templates.from_string("{{ ''.__class__.__mro__[1].__subclasses__() }}").render()
    with pytest.raises(jinja2.exceptions.UndefinedError):
        templates.from_string("{{ b }}").render(a="x")


def test_a_last_word_is_told_from_a_passage_by_any_space() -> None:
    for text in ("one two\nthree", "one two\tthree", "one two  three\n", "three"):
        passage, word = task_sets._without_last_word(text)
        assert passage + word == text and word.split() == ["three"]
