"""Samples of requests as a gateway keeps them, read back, and what is learned from them.

A prompt goes to one side for good, by its digest: what a model may be trained on it is never tested on.
"""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.core.errors import FileError, Place
from twofold.live.line_file import note_of, written_files

TESTED_SHARE = 0.2  # of prompts
LENGTHS_TOKENS = (64, 512)  # where prompts are told apart
Z = 1.96  # of the bounds of a share
FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Sample:
    """One line. `messages` are those of a chat; else there is one `prompt`."""

    request_id: str
    at: str
    class_name: str
    model: str  # the digest that served it, as the gateway names it
    replica: str
    attempts: int
    outcome: str
    reason: str
    input_tokens: int
    output_tokens: int
    prompt: str
    messages: tuple[tuple[str, str], ...]  # role, content
    answer: str
    end: str  # why the answer ended, as the engine says
    endpoint: str = ""  # of the hosted API that answered, for what went there

    @property
    def asked(self) -> str:
        """The prompt as one text; of a chat in the plain form that the trainer's tokenizer has."""
        if not self.messages:
            return self.prompt
        return "".join(f"{role}: {content}\n" for role, content in self.messages) + "assistant: "

    def is_of(self, digest: str) -> bool:
        """Whether a version of this digest answered it: what others did says nothing of that version."""
        return self.model == digest.replace(":", "-") and not self.endpoint

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer to learn from."""
        return self.outcome == FINISHED and bool(self.answer.strip())


def read_samples(path: Path) -> list[Sample]:
    """All that is kept, the oldest first. Raises FileError, with the line, for what is no sample."""
    files = written_files(path)
    if not files:
        hint = "opt in by `samples: 5 %` of the service, and let `up` serve"
        raise FileError(f"there are no samples in `{path}`", hint=hint)
    found = []
    for file in files:
        for number, line in enumerate(file.read_bytes().splitlines(), start=1):
            if note_of(line) is not None:
                continue
            try:
                found.append(_sample(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                place, hint = (
                    Place(str(file), number, 1),
                    "leave the line out, or copy the gateway's log anew",
                )
                why = f": it has no `{error.args[0]}`" if isinstance(error, KeyError) else ""
                raise FileError(f"no sample of a gateway{why}", place=place, hint=hint) from error
    return found


def _sample(said: dict[str, Any]) -> Sample:
    messages = tuple((str(each["role"]), str(each["content"])) for each in said.get("messages", ()))
    return Sample(
        str(said["request_id"]),
        str(said["at"]),
        str(said["class"]),
        str(said["model"]),
        str(said["replica"]),
        int(said["attempts"]),
        str(said["outcome"]),
        str(said["reason"]),
        int(said["input_tokens"] or 0),
        int(said["output_tokens"] or 0),
        str(said["prompt"]) if not messages else "",
        messages,
        str(said["answer"]),
        str(said["end"]),
        str(said.get("endpoint") or ""),
    )


@dataclass(frozen=True, slots=True)
class FailureSlice:
    """Requests that have something in common, and how many of them failed."""

    what: str  # class, prompts, model, replica
    value: str
    count: int
    failed_count: int
    low_fraction: float  # of the failed share, at 95 %
    stands_out: bool  # that bound is above the share of all


@dataclass(frozen=True, slots=True)
class Curated:
    """What samples come to."""

    candidates: tuple[dict[str, str], ...]  # to train on: `text`, as the trainer reads it
    regression: tuple[
        dict[str, str], ...
    ]  # to test on: `text` and `slice`, as `registry evaluate` reads them
    failures: tuple[dict[str, str], ...]  # for people: prompts without an answer, and why
    slices: tuple[FailureSlice, ...]
    repeated_count: int  # texts that were there before
    hosted_count: int  # answers of a hosted API: not ours to learn from


def curated(samples: Iterable[Sample]) -> Curated:
    """Sort samples: each text once, each prompt to one side; what a hosted API answered to neither."""
    told = list(samples)
    sides: tuple[list[dict[str, str]], list[dict[str, str]]] = ([], [])
    seen: set[str] = set()
    repeated_count = 0
    for each in (sample for sample in told if sample.is_answered and not sample.endpoint):
        text = each.asked + each.answer
        if text in seen:
            repeated_count += 1
            continue
        seen.add(text)
        row = {"text": text, "slice": slice_of(each), "request_id": each.request_id, "model": each.model}
        sides[is_tested(each.asked)].append(row)
    failures = tuple(
        {"prompt": each.asked, "outcome": each.outcome, "reason": each.reason, "request_id": each.request_id}
        for each in told
        if not each.is_answered
    )
    return Curated(
        tuple(sides[0]),
        tuple(sides[1]),
        failures,
        tuple(failure_slices(told)),
        repeated_count,
        sum(bool(each.endpoint) and each.is_answered for each in told),
    )


def is_tested(prompt: str) -> bool:
    """Whether a prompt is to test on; the same for ever."""
    digest = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) < TESTED_SHARE * 2**64


def slice_of(sample: Sample) -> str:
    """Its part of the regression set: class and length of the prompt."""
    return f"{sample.class_name}, {_length(sample)}"


def _length(sample: Sample) -> str:
    for most in LENGTHS_TOKENS:
        if sample.input_tokens <= most:
            return f"prompts to {most} tok"
    return f"prompts beyond {LENGTHS_TOKENS[-1]} tok"


def failure_slices(samples: list[Sample]) -> list[FailureSlice]:
    """Every slice with a failure, those that stand out first."""
    groups: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for each in samples:
        failed = not each.is_answered
        named = {
            "class": each.class_name,
            "prompts": _length(each),
            "model": each.model,
            "replica": each.replica,
        }
        for what, value in named.items():
            groups[what, value or "none"].append(failed)
    share = sum(not each.is_answered for each in samples) / len(samples) if samples else 0.0
    found = []
    for (what, value), hits in groups.items():
        if not any(hits):
            continue
        low = wilson_low(sum(hits), len(hits))
        found.append(FailureSlice(what, value, len(hits), sum(hits), low, low > share))
    return sorted(found, key=lambda each: (not each.stands_out, -each.low_fraction, each.what, each.value))


def wilson_low(hits: int, count: int) -> float:
    """The lower bound of a share at 95 %.

    Formula  (p + z²/2n - z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)
    Source   Wilson 1927.
    """
    share = hits / count
    spread = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return max(0.0, (share + Z * Z / (2 * count) - spread) / (1 + Z * Z / count))
