"""Reads sampled answers with a model in a process of its own: how likely they are, and what they came from.

Reads one JSON request on standard input, writes one JSON answer on standard output. What an answer came from
is told by layer integrated gradients over the input embeddings (Sundararajan et al. 2017, by Captum): each
token of the prompt has a share of ln p(first token of the answer), and the shares sum to what that is above
ln p after a prompt of paddings alone. Captum's convergence delta is what the sum misses.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from twofold.core.data import from_data
from twofold.live.processes import python_module
from twofold.live.registry.evaluate_worker import load_model

SCORE, ATTRIBUTE, BESIDE = "score", "attribute", "beside"
CONTEXT_TOKENS_MAX = 1024
BATCH = 8  # steps of the path at once
STEPS_FIRST, STEPS_MOST = 32, 512
DELTA_FRACTION = 0.01  # of what is explained, that the shares may miss
TIMED_TOKENS = 16  # of an answer that is timed


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt, with the messages of a chat, and what was answered."""

    request_id: str
    prompt: str
    messages: tuple[tuple[str, str], ...]  # for models with a template of their own
    answer: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What to do with which texts."""

    what: str
    model: str
    texts: tuple[Text, ...]


def request_of(asked: Asked) -> str:
    """The request as this program reads it."""
    return json.dumps(asdict(asked))


class Reader:
    """A model and its tokenizer. Mutable: it holds them."""

    def __init__(self, folder: str) -> None:
        import torch

        torch.manual_seed(0)
        self.torch = torch
        self.model, self.tokenizer = load_model(folder)
        context = int(self.model.config.max_position_embeddings or CONTEXT_TOKENS_MAX)
        self.context_tokens = min(context, CONTEXT_TOKENS_MAX)

    def prompt_ids(self, text: Text) -> list[int]:
        """The prompt's tokens, with the template of a chat where the model has one; the end of a long one."""
        said = text.prompt
        if text.messages and self.tokenizer.chat_template:
            chat = [{"role": role, "content": content} for role, content in text.messages]
            said = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer(said, verbose=False)["input_ids"])

    def answer_ids(self, text: Text) -> list[int]:
        """The answer's tokens, without what a tokenizer puts before a text."""
        return list(self.tokenizer(text.answer, add_special_tokens=False, verbose=False)["input_ids"])


def scores(reader: Reader, texts: tuple[Text, ...]) -> list[dict[str, Any]]:
    """Mean -ln p of each answer's tokens behind its prompt, and both lengths; empty ones are left out."""
    torch, found = reader.torch, []
    for number, text in enumerate(texts):
        answer = reader.answer_ids(text)[: reader.context_tokens // 2]
        prompt = reader.prompt_ids(text)[-(reader.context_tokens - len(answer)) :]
        if not answer or not prompt:
            continue
        tokens = torch.tensor([[*prompt, *answer]])
        with torch.inference_mode():
            logits = reader.model(tokens[:, :-1]).logits[0, len(prompt) - 1 :].double()
        losses = -torch.log_softmax(logits, dim=-1).gather(1, tokens[0, len(prompt) :, None])
        found.append(
            {
                "number": number,
                "score_nats": float(losses.mean()),
                "input_tokens": len(prompt),
                "output_tokens": len(answer),
            }
        )
    return found


def attributed(reader: Reader, text: Text) -> dict[str, Any]:
    """The shares of one answer's first token, with as many steps as completeness takes."""
    from captum.attr import LayerIntegratedGradients

    torch, model = reader.torch, reader.model
    prompt = reader.prompt_ids(text)[-reader.context_tokens :]
    ids = torch.tensor([prompt])
    padding = reader.tokenizer.pad_token_id
    blank = torch.full_like(ids, reader.tokenizer.eos_token_id or 0 if padding is None else padding)
    first = (reader.answer_ids(text) or [int(model(ids).logits[0, -1].argmax())])[0]

    def surprise(tokens: Any) -> Any:
        return torch.log_softmax(model(tokens).logits[:, -1].double(), dim=-1)[:, first]

    with torch.no_grad():
        value, before = float(surprise(ids)), float(surprise(blank))
    gradients = LayerIntegratedGradients(surprise, model.get_input_embeddings())
    steps = STEPS_FIRST
    while True:
        shares, delta = gradients.attribute(
            ids, blank, n_steps=steps, internal_batch_size=BATCH, return_convergence_delta=True
        )
        missed = abs(float(delta))
        if missed <= DELTA_FRACTION * abs(value - before) or steps >= STEPS_MOST:
            break
        steps *= 2
    parts = shares[0].sum(dim=-1).tolist()
    return {
        "request_id": text.request_id,
        "token": reader.tokenizer.decode([first]),
        "tokens": [reader.tokenizer.decode([each]) for each in prompt],
        "shares_nats": parts,
        "value_nats": value,
        "before_nats": before,
        "delta_nats": float(delta),
        "step_count": steps,
        "complete": missed <= DELTA_FRACTION * abs(value - before),
    }


def timed_answer_s(reader: Reader, text: Text) -> float:
    """Seconds that the model takes to answer the prompt with a few tokens."""
    torch = reader.torch
    prompt = torch.tensor([reader.prompt_ids(text)[-(reader.context_tokens - TIMED_TOKENS) :]])
    began_s = time.perf_counter()
    with torch.inference_mode():
        reader.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=TIMED_TOKENS,
            min_new_tokens=TIMED_TOKENS,
            do_sample=False,
            pad_token_id=reader.tokenizer.eos_token_id or 0,
        )
    return time.perf_counter() - began_s


def attribution(reader: Reader, asked: Asked) -> dict[str, Any]:
    """All texts attributed, and what that costs a request: in series with its answer, and beside it."""
    timed_answer_s(reader, asked.texts[0])  # what is compiled or allocated once
    attributed(reader, asked.texts[0])
    alone_s = [timed_answer_s(reader, text) for text in asked.texts]
    found, series_s, core_s = [], [], []
    for text in asked.texts:
        began_s = time.perf_counter()
        timed_answer_s(reader, text)
        before_s = time.process_time()
        found.append(attributed(reader, text))
        core_s.append(time.process_time() - before_s)
        series_s.append(time.perf_counter() - began_s)
    with beside(asked) as other:
        beside_s = [timed_answer_s(reader, text) for text in asked.texts]
        told = json.loads(_line(other))
    same = all(
        max(abs(x - y) for x, y in zip(one["shares_nats"], two["shares_nats"], strict=True)) < 1e-3
        for one, two in zip(found, told["attributed"], strict=True)
    )
    return {
        "attributed": found,
        "alone_s": alone_s,
        "series_s": series_s,
        "beside_s": beside_s,
        "series_core_s": core_s,
        "beside_core_s": told["core_s"],
        "same": same,
        "core_count": os.cpu_count() or 1,
        "method": f"captum {_version()}: layer integrated gradients over the input embeddings",
    }


@contextmanager
def beside(asked: Asked) -> Iterator[subprocess.Popen[str]]:
    """Another process that attributes the same texts again and again until the end of the block."""
    process = subprocess.Popen(
        python_module("twofold.live.registry.sample_worker"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdin is not None
            process.stdin.write(request_of(replace(asked, what=BESIDE)))
            process.stdin.close()
            _line(process)  # it is ready
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise ValueError("the process beside ended without a word")
    return line


def passes(reader: Reader, asked: Asked) -> Iterator[str]:
    """Lines of the process beside: that it is ready, what its first pass found; then it works on."""
    attributed(reader, asked.texts[0])
    yield "{}"
    found, core_s = [], []
    for text in asked.texts:
        before_s = time.process_time()
        found.append(attributed(reader, text))
        core_s.append(time.process_time() - before_s)
    yield json.dumps({"attributed": found, "core_s": core_s})
    parent = os.getppid()
    while os.getppid() == parent:
        for text in asked.texts:
            attributed(reader, text)


def _version() -> str:
    from importlib.metadata import version

    return version("captum")


def main() -> None:
    """Answer the one request; what is wrong with it goes out as `error`."""
    try:
        asked = from_data(Asked, json.loads(sys.stdin.read()))
        if not Path(asked.model).is_dir() or not asked.texts:
            raise ValueError("there is no text to read, or no model to read it with")
        reader = Reader(asked.model)
        if asked.what == SCORE:
            answer: dict[str, Any] = {"scores": scores(reader, asked.texts)}
        elif asked.what == BESIDE:
            for line in passes(reader, asked):
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
            return
        else:
            answer = attribution(reader, asked)
    except (ValueError, OSError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
