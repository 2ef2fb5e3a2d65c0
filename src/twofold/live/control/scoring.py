"""Asks a release and what runs beside it the same on the side, and says what their answers are worth.

Replicas are asked themselves, past the gateway, one question after another: greedy and short, so that it
costs clients little. What an answer is worth is policy's to say (`policy.release.quality`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold.live.control.engine_checks import EngineClient
from twofold.live.control.engines import engine_model
from twofold.live.control.observed import Watched
from twofold.live.control.questions import Question, read_questions
from twofold.live.processes import say
from twofold.policy.release import quality

ANSWER_TIMEOUT_S = 10.0
ROUND_PAUSE_S = 0.25  # between scores, so that the side is the lesser part of what replicas do


@dataclass(slots=True)
class Scorer:
    """One trial's questions, asked in turn. Mutable."""

    client: EngineClient
    wanted: quality.Wanted
    questions: tuple[Question, ...]
    asked_count: int = 0
    said: dict[str, str] = field(default_factory=dict)  # by what serves, first time, to each prompt

    async def score(self, new: Watched, serving: Watched) -> tuple[float, float] | None:
        """What answers of the release, and of what serves, are worth; None: one of them answered nothing."""
        worth: tuple[list[float], list[float]] = ([], [])
        for _ in range(quality.QUESTIONS[self.wanted]):
            question = self.questions[self.asked_count % len(self.questions)]
            self.asked_count += 1
            wanted = question.text
            if self.wanted is quality.Wanted.SERVING:
                first = self.said.get(question.prompt) or await self._answer(serving, question.prompt)
                if first is None:
                    return None
                wanted = self.said[question.prompt] = first
            # By turns, so that neither is always the first to be asked.
            for at in (0, 1) if self.asked_count % 2 else (1, 0):
                answer = await self._answer((new, serving)[at], question.prompt)
                if answer is None:
                    return None
                worth[at].append(quality.agreement_fraction(answer, wanted))
        return quality.mean_score(worth[0]), quality.mean_score(worth[1])

    async def _answer(self, replica: Watched, prompt: str) -> str | None:
        model = engine_model(replica.engine)
        return await self.client.answer(replica.base, model, prompt, quality.ANSWER_TOKENS, ANSWER_TIMEOUT_S)


async def score_releases(
    client: EngineClient,
    tried: Callable[[], tuple[Watched | None, Watched | None, str]],
    tell: Callable[[list[dict[str, Any]]], Awaitable[bool]],
) -> None:
    """For ever: while a release is tried, what its answers on the side are worth, told to the gate.

    `tried` has a replica of it, one of what runs beside it, and the file of questions.
    """
    asked_of = ("", "")
    scorer: Scorer | None = None
    while True:
        await asyncio.sleep(ROUND_PAUSE_S)
        new, serving, path = tried()
        if new is None or serving is None:
            continue
        if (new.version, path) != asked_of:
            asked_of, scorer = (new.version, path), None
            try:
                scorer = Scorer(client, *read_questions(Path(path)))
            except (OSError, ValueError, KeyError, TypeError) as error:
                say(f"the questions of `{path}` cannot be read: {error}")
        found = await scorer.score(new, serving) if scorer is not None else None
        if found is not None:
            score, beside = found
            told = {"type": "AnswerScored", "version": new.version, "score": score}
            await tell([{**told, "beside_score": beside}])
