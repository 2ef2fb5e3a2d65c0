"""What answers on the side are worth, asked over HTTP of stand-ins that say what they are told."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from tests.live.conftest import StubEngine
from twofold.live.control.engine_checks import EngineClient
from twofold.live.control.engines import EngineSettings
from twofold.live.control.observed import Watched
from twofold.live.control.questions import Question, write_questions
from twofold.live.control.scoring import Scorer, score_releases
from twofold.policy.release.quality import QUESTIONS, Wanted

QUESTION = Question("the quick", " brown fox")
SETTINGS = EngineSettings("", "float32", 1, 1, 1)


def replica(engine: StubEngine, version: str) -> Watched:
    return Watched(version, SETTINGS, version, "127.0.0.1", engine.port, 0.0, 1)


def says(engine: StubEngine, text: str) -> None:
    engine.said = json.dumps({"choices": [{"text": text}]}).encode()


def scored(stub_engines: Any, wanted: Wanted, new_says: str, serving_says: str) -> Any:
    """The score of a release, that of what serves, and how often each was asked."""

    async def scenario() -> Any:
        client = EngineClient()
        try:
            async with stub_engines(2) as [new, serving]:
                says(new, new_says)
                says(serving, serving_says)
                scorer = Scorer(client, wanted, (QUESTION,))
                found = await scorer.score(replica(new, "v2"), replica(serving, "v1"))
                return found, len(new.requests), len(serving.requests)
        finally:
            await client.close()

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("new", "serving", "worth"),
    [
        (" brown fox jumps", " brown fox jumps", (1.0, 1.0)),
        (" brown dog", " brown fox", (0.7, 1.0)),  # 7 of the 10 wanted characters
        ("", " brown fox", (0.0, 1.0)),
        (" brown fox", " red fox", (1.0, 0.1)),
    ],
)
def test_what_was_trained_anew_is_held_against_the_text_as_what_serves_is(
    new: str, serving: str, worth: tuple[float, float], stub_engines: Any
) -> None:
    found, *asked = scored(stub_engines, Wanted.TEXT, new, serving)
    assert found == pytest.approx(worth)
    assert asked == [QUESTIONS[Wanted.TEXT]] * 2


def test_a_copy_is_held_against_what_serves_whatever_the_text_says(stub_engines: Any) -> None:
    found, *asked = scored(stub_engines, Wanted.SERVING, " brown fox", " red fox!!")
    assert found == (0.1, 1.0)
    assert asked == [1, 2]  # what serves told first what is wanted
    assert scored(stub_engines, Wanted.SERVING, " red fox", " red fox")[0] == (1.0, 1.0)


def test_who_does_not_answer_gives_no_score(stub_engines: Any) -> None:
    async def scenario() -> Any:
        client = EngineClient()
        try:
            async with stub_engines(2) as [new, serving]:
                new.status = 500
                return await Scorer(client, Wanted.TEXT, (QUESTION,)).score(
                    replica(new, "v2"), replica(serving, "v1")
                )
        finally:
            await client.close()

    assert asyncio.run(scenario()) is None


def test_the_gate_is_told_of_whatever_is_tried_by_its_own_questions(
    tmp_path: Path, stub_engines: Any
) -> None:
    """A file that cannot be read scores nothing, and what is tried after it is scored again."""
    for name, text in (("one", " brown fox"), ("two", " red fox")):
        (tmp_path / name).write_text(write_questions(Wanted.TEXT, [("the quick", text)]))
    (tmp_path / "broken").write_text("{}")
    turns = [("v2", "one"), ("v3", "two"), ("v4", "broken"), ("v5", "one")]
    told: list[dict[str, Any]] = []

    async def scenario() -> None:
        over, client = asyncio.Event(), EngineClient()
        async with stub_engines(2) as [new, serving]:
            says(new, " brown fox")
            says(serving, " red fox")

            async def tell(events: list[dict[str, Any]]) -> bool:
                told.extend(events)
                turns.pop(0)
                if not turns:
                    over.set()
                return True

            def tried() -> tuple[Watched | None, Watched | None, str]:
                if not turns:
                    return None, None, ""
                version, questions = turns[0]
                if version == "v4":
                    turns.pop(0)  # nothing will be told of it
                return replica(new, version), replica(serving, "v1"), str(tmp_path / questions)

            asking = asyncio.create_task(score_releases(client, tried, tell))
            try:
                async with asyncio.timeout(60):
                    await over.wait()
            finally:
                asking.cancel()
                await client.close()

    asyncio.run(scenario())
    assert {each["type"] for each in told} == {"AnswerScored"}
    assert [each["version"] for each in told] == ["v2", "v3", "v5"]
    assert [each["score"] for each in told] == pytest.approx([1.0, 1 / 8, 1.0])
    assert [each["beside_score"] for each in told] == pytest.approx([0.1, 1.0, 0.1])
