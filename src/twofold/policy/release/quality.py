"""What an answer is worth beside the one that was wanted: how a release is judged while it is tried.

A copy of what serves, in other numbers or of another build, is to say what that says: its answers are held
against those of what serves. What was trained anew may say other things: both are held against the text that
goes on from the prompt.
"""

from collections.abc import Sequence
from enum import StrEnum

from twofold.policy.release.rules import Release, is_copy


class Wanted(StrEnum):
    """Whose answer an answer is held against."""

    SERVING = "serving"
    TEXT = "text"


ANSWER_TOKENS = 16  # of an answer on the side: the longer, the likelier it is that a difference shows
QUESTIONS = {Wanted.SERVING: 1, Wanted.TEXT: 8}  # that one score is the mean of: texts scatter more


def wanted_of(new: Release, serving: Release | None) -> Wanted:
    """What a release's answers are held against while it is tried."""
    return Wanted.SERVING if serving is not None and is_copy(new, serving) else Wanted.TEXT


def agreement_fraction(answer: str, wanted: str) -> float:
    """How far an answer goes along with the wanted one.

    Formula  characters before the first difference / characters of the wanted answer; at most 1
    Why      of greedy answers all is other after the first token that is: what comes later says nothing.

    >>> agreement_fraction("return a + b", "return a - b")
    0.75
    >>> agreement_fraction("", "x"), agreement_fraction("x y", "x"), agreement_fraction("", "")
    (0.0, 1.0, 1.0)
    """
    if not wanted:
        return 0.0 if answer else 1.0
    pairs = zip(answer, wanted, strict=False)
    differs = next((at for at, (one, other) in enumerate(pairs) if one != other), len(answer))
    return min(differs, len(wanted)) / len(wanted)


def mean_score(scores: Sequence[float]) -> float:
    """Of the answers to several questions. At least one."""
    return sum(scores) / len(scores)
