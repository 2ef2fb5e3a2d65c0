"""The file of questions that a release is judged by on the side while it is tried."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twofold.policy.release import quality


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the text that goes on from there."""

    prompt: str
    text: str


def read_questions(path: Path) -> tuple[quality.Wanted, tuple[Question, ...]]:
    """What answers are held against, and the questions. Raises OSError, ValueError, KeyError, TypeError."""
    data = json.loads(path.read_text("utf-8"))
    questions = tuple(Question(each["prompt"], each["text"]) for each in data["questions"])
    if not questions:
        raise ValueError("there are none")
    return quality.Wanted(data["wanted"]), questions


def write_questions(wanted: quality.Wanted, questions: Sequence[tuple[str, str]]) -> str:
    """The file as `read_questions` reads it, of prompts with the texts that go on from them."""
    asked = [{"prompt": prompt, "text": text} for prompt, text in questions]
    return json.dumps({"wanted": wanted.value, "questions": asked}, indent=1) + "\n"
