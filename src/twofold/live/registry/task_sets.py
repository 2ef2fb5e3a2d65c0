"""Task sets that a model answers beside its loss: our own small one, and those of lm-evaluation-harness.

Our own is made of the held-out text itself, so nothing is downloaded and equal text gives equal questions:
`choice` asks which of four continuations follows a passage, three of which follow elsewhere in the text;
`cloze` asks for a passage's last word. Both tell whether a model uses its context as far as the passage goes;
neither tells of knowledge or reasoning.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.live.training.artefact import digest_of

OWN, OWN_TASKS = "own", ("choice", "cloze")
PROMPT_WORDS, OPTION_WORDS, OPTION_COUNT = 24, 6, 4
QUESTIONS_MOST, QUESTIONS_LEAST = 100, 20
HARNESS = "lm_eval"
METRICS = ("acc_norm", "acc", "exact_match")  # of the harness, the first that a task has
READERS = ("json", "csv", "parquet", "text")  # of data; any other name may be a program
FILES = ("data_files", "data_dir")
# Fields of a task by which other files, or programs of others, are read.
CODE = ("include", "use_prompt", "hf_evaluate", "trust_remote_code")


@dataclass(frozen=True, slots=True)
class Question:
    """A passage, what follows it, and what follows elsewhere."""

    prompt: str
    right: str
    others: tuple[str, ...]


def own_questions(texts: Sequence[str]) -> list[Question]:
    """Evenly from all texts, no more than `QUESTIONS_MOST`. Raises ValueError for texts that give too few."""
    passages = [each for text in texts for each in _passages(text)]
    options = sorted({right for _, right in passages})
    found = []
    for prompt, right in passages[:: max(1, -(-len(passages) // QUESTIONS_MOST))]:
        digests = {each: hashlib.sha256(f"{prompt}\0{each}".encode()).digest() for each in options}
        others = sorted((each for each in options if each != right), key=digests.__getitem__)
        if len(others) >= OPTION_COUNT - 1:
            found.append(Question(prompt, right, tuple(others[: OPTION_COUNT - 1])))
    if len(found) < QUESTIONS_LEAST:
        what = f"the texts give {len(found)} questions, and {QUESTIONS_LEAST} are needed"
        raise ValueError(f"{what}: a passage has {PROMPT_WORDS + OPTION_WORDS} words")
    return found


def _passages(text: str) -> Iterator[tuple[str, str]]:
    """Passage by passage, each with what follows; half of one is left out after it."""
    words = re.findall(r"\s*\S+", text)
    length = PROMPT_WORDS + OPTION_WORDS
    for at in range(0, len(words) - length + 1, length + length // 2):
        end = at + PROMPT_WORDS
        yield "".join(words[at:end]), "".join(words[end : at + length])


def scores(
    names: Sequence[str], texts: Sequence[str], set_sha256: str, model: Any, tokenizer: Any
) -> list[dict[str, Any]]:
    """Each set's scores, as `TaskScore` has them. Raises ValueError for one that cannot be asked."""
    found: list[dict[str, Any]] = []
    for name in names:
        if name == OWN:
            found += _own_scores(own_questions(texts), set_sha256, model, tokenizer)
        else:
            found += _harness_scores(Path(name), model, tokenizer)
    return found


def _own_scores(
    questions: Sequence[Question], set_sha256: str, model: Any, tokenizer: Any
) -> Iterator[dict[str, Any]]:
    chosen = named = 0
    for each in questions:
        told = [_likelihood(model, tokenizer, each.prompt, option) for option in (each.right, *each.others)]
        chosen += told[0][0] > max(nats for nats, _ in told[1:])  # a tie is no answer
        passage, word = _without_last_word(each.prompt + each.right)
        named += _likelihood(model, tokenizer, passage, word)[1]
    for name, count in zip(OWN_TASKS, (chosen, named), strict=True):
        yield {
            "name": name,
            "set_sha256": set_sha256,
            "right_fraction": count / len(questions),
            "question_count": len(questions),
        }


def _without_last_word(text: str) -> tuple[str, str]:
    """A passage, and its last word with the space before it, whatever kind of space that is."""
    at = re.search(r"\s+\S+\s*$", text)
    return (text[: at.start()], text[at.start() :]) if at else ("", text)


def _likelihood(model: Any, tokenizer: Any, prompt: str, option: str) -> tuple[float, bool]:
    """Log probability of an option after a prompt, per character; and whether each token is the likeliest."""
    import torch

    begin = len(tokenizer(prompt, verbose=False)["input_ids"])
    tokens = tokenizer(prompt + option, return_tensors="pt", verbose=False)["input_ids"][0]
    count = max(1, len(tokens) - begin)  # tokens that join the two are the prompt's
    tokens = tokens[-int(model.config.max_position_embeddings or len(tokens)) :]
    with torch.inference_mode():
        told = torch.log_softmax(model(tokens[None, :-1]).logits[0, -count:].double(), dim=-1)
    wanted = tokens[-count:]
    nats = float(told.gather(1, wanted[:, None]).sum())
    return nats / len(option), bool((told.argmax(dim=-1) == wanted).all())


def _harness_scores(folder: Path, model: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """Scores of the tasks whose definitions and data lie in a folder; nothing is downloaded."""
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    definitions = [path for path in files if path.suffix == ".yaml"]
    if not definitions:
        raise ValueError(f"`{folder}` holds no task: write `{OWN}`, or a folder of definitions (.yaml)")
    for path in definitions:
        _check_definition(path, folder)
    if tokenizer.eos_token is None:
        raise ValueError(f"{HARNESS} asks no model whose tokenizer has no end of a text")
    from lm_eval import simple_evaluate, utils
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    utils.env = _sandboxed(utils.env)
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    adapter = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1)
    told = simple_evaluate(
        model=adapter, tasks=sorted(manager.all_tasks), task_manager=manager, bootstrap_iters=0
    )
    said = [f"{metric},none" for metric in METRICS]
    return [
        {
            "name": f"{HARNESS} {name}",
            "set_sha256": digest_of(files),
            "right_fraction": float(next(each[name] for name in said if name in each)),
            "question_count": int(told["n-samples"][name]["effective"]),
        }
        for name, each in sorted(told["results"].items())
        if any(name in each for name in said)
    ]


def _sandboxed(templates: Any) -> Any:
    """The harness's templates, which see nothing but the data that they are given."""
    from jinja2.sandbox import SandboxedEnvironment

    sandbox = SandboxedEnvironment(undefined=templates.undefined, keep_trailing_newline=True)
    sandbox.filters |= templates.filters
    return sandbox


def _check_definition(path: Path, folder: Path) -> None:
    """Raise ValueError for a definition that is more than data: the harness would run whatever it names."""
    import yaml  # as the harness reads it

    try:
        told = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"`{path.name}` is no plain YAML; write the task as data: {why}") from error
    for name, value in _fields(told):
        if name in FILES and not all(_is_below(each, folder) for each in _leaves(value)):
            raise ValueError(f"`{path.name}` reads data of elsewhere: put it into `{folder}`")
        if name in CODE:
            raise ValueError(f"`{path.name}` says `{name}`: write all of the task into it, as data")
        if name == "dataset_path" and value not in READERS:
            raise ValueError(f"`{path.name}` reads data by `{value}`: write {_one_of(READERS)}")
        if name == "metric" and value not in METRICS:
            raise ValueError(f"`{path.name}` scores by `{value}`: write {_one_of(METRICS)}")


def _fields(data: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a definition and item of a list (named ""), of what is nested in it too, once: an alias
    may name what it stands in."""
    left, seen = [data], set[int]()
    while left:
        node = left.pop()
        if isinstance(node, dict | list) and id(node) not in seen:
            seen.add(id(node))
            held = node.items() if isinstance(node, dict) else (("", each) for each in node)
            for name, value in held:
                yield str(name), value
                left.append(value)


def _leaves(data: Any) -> Iterator[Any]:
    """A value, or those that it holds."""
    held = [data, *(value for _, value in _fields(data))]
    return (each for each in held if not isinstance(each, dict | list))


def _is_below(value: Any, folder: Path) -> bool:
    """Whether a file lies in the folder, whose digest is the set's."""
    return isinstance(value, str) and Path(value).resolve().is_relative_to(folder.resolve())


def _one_of(names: Sequence[str]) -> str:
    return "one of " + ", ".join(f"`{each}`" for each in names)
