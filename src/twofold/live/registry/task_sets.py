"""Task sets that a model answers beside its loss: our own small one, and those of lm-evaluation-harness.

Our own is made of the held-out text itself, so nothing is downloaded and equal text gives equal questions:
`choice` asks which of four continuations follows a passage, three of which follow elsewhere in the text;
`cloze` asks for a passage's last word. Both tell whether a model uses its context as far as the passage goes;
neither tells of knowledge or reasoning.
"""

import hashlib
import os
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
METRICS = ("acc_norm,none", "acc,none", "exact_match,none")  # of the harness, the first that a task has


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
        passage, space, word = (each.prompt + each.right).rpartition(" ")
        named += bool(space) and _likelihood(model, tokenizer, passage, space + word)[1]
    for name, count in zip(OWN_TASKS, (chosen, named), strict=True):
        yield {
            "name": name,
            "set_sha256": set_sha256,
            "right_fraction": count / len(questions),
            "question_count": len(questions),
        }


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
    if code := [path.name for path in definitions if "!function" in path.read_text("utf-8")]:
        raise ValueError(f"`{code[0]}` names code of its own (`!function`): write the task as data")
    if tokenizer.eos_token is None:
        raise ValueError(f"{HARNESS} asks no model whose tokenizer has no end of a text")
    os.environ |= {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    adapter = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1)
    told = simple_evaluate(
        model=adapter, tasks=sorted(manager.all_tasks), task_manager=manager, bootstrap_iters=0
    )
    return [
        {
            "name": f"{HARNESS} {name}",
            "set_sha256": digest_of(files),
            "right_fraction": float(next(each[metric] for metric in METRICS if metric in each)),
            "question_count": int(told["n-samples"][name]["effective"]),
        }
        for name, each in sorted(told["results"].items())
        if any(metric in each for metric in METRICS)
    ]
