"""Evaluates a model on held-out text in a process of its own: loss, calibration, drift from what serves now.

Reads one JSON request on standard input, writes one JSON answer on standard output. The weights are read from
safetensors alone and no code that a model brings is run.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from twofold.core.data import from_data
from twofold.live.registry.task_sets import scores
from twofold.live.training.artefact import sha256_of

BIN_COUNT = 10
LINES = ".jsonl"  # how the name of a set of lines ends
WINDOW_TOKENS_MAX = 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """What to evaluate. `texts` is a text file, or JSONL with `text` and perhaps `slice` on each line."""

    model: str
    texts: str
    before: str = ""  # the folder of what serves now; "": nothing does
    token_count_most: int = 20_000
    tasks: tuple[str, ...] = ()  # sets that are asked as well, as `task_sets` names them
    slice_rise_fraction: float = 0.05  # of a slice's loss, beside what serves now


@dataclass(frozen=True, slots=True)
class Text:
    """One piece of the set."""

    slice: str
    text: str


def read_texts(path: Path) -> list[Text]:
    """The set. Raises ValueError, with the line, for JSONL that has no text."""
    raw = path.read_text("utf-8")
    return texts_of(path.name, raw) if path.suffix == LINES else [Text("", raw)]


def set_digest(path: Path) -> str:
    """What tells sets apart: the digest of the file; of a file that is read as one text, another one."""
    return sha256_of(path) if path.suffix == LINES else sha256(b"text\0" + path.read_bytes()).hexdigest()


def texts_of(name: str, raw: str) -> list[Text]:
    """The lines of a set in JSON. Raises ValueError, with the line, where one has no text."""
    found = []
    for number, line in enumerate(raw.split("\n"), start=1):  # texts may hold other breaks, which JSON allows
        if not line.strip():
            continue
        try:
            said = json.loads(line)
            name_of, text = said.get("slice", ""), said["text"]
        except (ValueError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"line {number} of {name} has no `text`") from error
        if not isinstance(text, str):
            raise ValueError(f"line {number} of {name} has a `text` that is none")
        found.append(Text(str(name_of), text))
    return found


class Sums:
    """What is added up over tokens."""

    def __init__(self) -> None:
        self.loss = self.drift = 0.0
        self.count = 0
        self.slice_loss: dict[str, float] = defaultdict(float)
        self.slice_before: dict[str, float] = defaultdict(float)
        self.bins = [[0.0, 0.0, 0] for _ in range(BIN_COUNT)]  # confidence, hits, tokens

    def calibration_error_fraction(self) -> float:
        """Formula  sum over bins of |mean confidence - share of hits| · tokens of the bin / tokens."""
        return sum(abs(sure - hits) for sure, hits, count in self.bins if count) / self.count


def evaluate(asked: Asked) -> dict[str, Any]:
    """All figures, as `Evaluation` takes them. Raises ValueError for a set that is too short or long."""
    import torch

    torch.manual_seed(0)
    model, tokenizer = load_model(asked.model)
    before = load_model(asked.before)[0] if asked.before else None
    if before is not None and before.config.vocab_size != model.config.vocab_size:
        before = None  # other tokens: there is nothing to compare, and the tokenizer's rule says so
    sums = Sums()
    with torch.inference_mode():
        for name, tokens in _windows(asked, tokenizer, int(model.config.max_position_embeddings)):
            _add(sums, name, tokens, model, before)
            if sums.count >= asked.token_count_most:
                break
    if not sums.count:
        raise ValueError(f"{asked.texts} holds less than two tokens")
    if unread := {each.slice for each in read_texts(Path(asked.texts))} - sums.slice_loss.keys() - {""}:
        what = f"{asked.token_count_most:,} tokens of {asked.texts} hold nothing of `{min(unread)}`"
        raise ValueError(f"{what}: a slice that is not read passes no rule")
    worse = [
        name
        for name, loss in sorted(sums.slice_loss.items())
        if name and before is not None and loss > sums.slice_before[name] * (1.0 + asked.slice_rise_fraction)
    ]
    set_sha256, texts = set_digest(Path(asked.texts)), [each.text for each in read_texts(Path(asked.texts))]
    return {
        "set_sha256": set_sha256,
        "token_count": sums.count,
        "loss_nats": sums.loss / sums.count,
        "calibration_error_fraction": sums.calibration_error_fraction(),
        "drift_nats": sums.drift / sums.count if before is not None else None,
        "failed_slices": worse,
        "memory_bytes": float(sum(each.numel() * each.element_size() for each in model.parameters())),
        "tasks": scores(asked.tasks, texts, set_sha256, model, tokenizer),
        "engine": f"transformers {_version()}",
    }


def load_model(folder: str) -> tuple[Any, Any]:
    """Model and tokenizer of a folder: safetensors alone, and no code that it brings."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    kept = {"trust_remote_code": False, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True, **kept)
    return model.eval(), AutoTokenizer.from_pretrained(folder, **kept)


def _windows(asked: Asked, tokenizer: Any, context: int) -> Iterator[tuple[str, Any]]:
    """Pieces of text as tokens, no longer than the context."""
    length = min(context or WINDOW_TOKENS_MAX, WINDOW_TOKENS_MAX)
    for text in read_texts(Path(asked.texts)):
        tokens = tokenizer(text.text, return_tensors="pt", verbose=False)["input_ids"][0]
        for begin in range(0, len(tokens) - 1, length - 1):
            yield text.slice, tokens[begin : begin + length]


def _add(sums: Sums, name: str, tokens: Any, model: Any, before: Any) -> None:
    """One window: -ln p of each token but the first, KL(now | new) per token, confidence by bins."""
    import torch

    told, wanted = tokens[None, :-1], tokens[1:]
    new = torch.log_softmax(model(told).logits[0].double(), dim=-1)
    losses = -new.gather(1, wanted[:, None])[:, 0]
    loss = float(losses.sum())
    sums.loss += loss
    sums.count += len(wanted)
    sums.slice_loss[name] += loss
    sure, guess = new.exp().max(dim=-1)
    places = (sure * BIN_COUNT).long().clamp(max=BIN_COUNT - 1)
    for place in places.unique().tolist():
        here, part = places == place, sums.bins[place]
        part[0] += float(sure[here].sum())
        part[1] += float((guess[here] == wanted[here]).sum())
        part[2] += int(here.sum())
    if before is not None:
        old = torch.log_softmax(before(told).logits[0].double(), dim=-1)
        sums.drift += float((old.exp() * (old - new)).sum())
        sums.slice_before[name] += float(-old.gather(1, wanted[:, None]).sum())


def _version() -> str:
    from importlib.metadata import version

    return version("transformers")


def main() -> None:
    """Answer the one request; what is wrong with it goes out as `error`."""
    try:
        answer = evaluate(from_data(Asked, json.loads(sys.stdin.read())))
    except (ValueError, OSError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


def request_of(asked: Asked) -> str:
    """The request as this program reads it."""
    return json.dumps(asdict(asked))


if __name__ == "__main__":
    main()
