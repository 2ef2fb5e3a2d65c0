"""Loads against stand-ins for engines whose pace is known."""

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from twofold.contracts.results.loop import LoadPoint
from twofold.core.errors import ValueRefusedError
from twofold.live.loads.loader import Prompt, _run, bare_endpoint, closed_loop, open_loop, prompts_of
from twofold.live.loads.loads import Load, poisson_arrivals_s, shuffled

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("uvloop", reason="needs the extra [live]: `make extras`")

Told = TypeVar("Told")
PROMPTS = [Prompt(f"prompt {number}", 10 + number) for number in range(3)]


def loaded(stub_engines: Any, load: Callable[[str], Told], **behaviour: Any) -> tuple[Told, Any]:
    """A load against one stand-in, and the stand-in."""

    async def scenario() -> tuple[Told, Any]:
        async with stub_engines(1) as [engine]:
            for name, value in behaviour.items():
                setattr(engine, name, value)
            return await asyncio.to_thread(load, f"http://127.0.0.1:{engine.port}"), engine

    return asyncio.run(scenario())


def test_a_tokenizer_that_knows_too_little_of_a_text_is_refused(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")
    model = tokenizers.models.WordLevel({"no-word-of-any-source": 0}, unk_token="no-word-of-any-source")
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueRefusedError, match=r"makes 1 tokens of .* too few for prompts of 32"):
        prompts_of(tmp_path, 32, seed=1)


def test_a_closed_loop_keeps_its_clients_busy_and_counts_every_request(stub_engines: Any) -> None:
    point, engine = loaded(
        stub_engines,
        lambda url: closed_loop(
            bare_endpoint(url, "m"), PROMPTS, 3, request_count=12, max_tokens=4, seed=1, warmup_count=2
        ),
        gap_s=0.05,
    )
    assert (point.name, point.concurrency, point.rate_per_s) == ("closed-3", 3, None)
    assert (point.sent, point.finished, point.refused, point.failed) == (12, 12, 0, 0)
    assert len(engine.requests) == 14  # the two of the warm-up were sent, and are counted nowhere
    bodies = [body for _, _, body in engine.requests]
    assert all((body["model"], body["max_tokens"], body["stream"]) == ("m", 4, True) for body in bodies)
    assert {body["prompt"] for body in bodies} == {prompt.text for prompt in PROMPTS}
    sent_tokens = [10 + int(body["prompt"].split()[1]) for body in bodies[2:]]
    assert point.input_tokens == pytest.approx(sum(sent_tokens) / 12) and point.output_tokens == 4.0
    assert point.ttft and point.tpot and point.e2e
    # The stand-in waits before each of four tokens: no answer can be faster, and Little's law binds the rate.
    assert point.ttft.p50_s >= 0.05 and point.tpot.p50_s >= 0.045 and point.e2e.p50_s >= 0.2
    assert 0 < point.requests_per_s <= 3 / 0.2
    assert point.output_tokens_per_s == pytest.approx(point.requests_per_s * 4, rel=0.4)
    assert 13 <= point.peak_held_tokens <= 3 * (12 + 4)


def test_a_closed_loop_for_a_time_ends_near_it(stub_engines: Any) -> None:
    point, engine = loaded(
        stub_engines,
        lambda url: closed_loop(bare_endpoint(url), PROMPTS, 2, duration_s=0.6, max_tokens=2, seed=1),
        gap_s=0.05,
    )
    assert point.finished == point.sent == len(engine.requests) >= 2
    assert point.requests_per_s <= 2 / 0.1


def test_refusals_and_failures_are_told_apart(stub_engines: Any) -> None:
    def load(url: str) -> LoadPoint:
        return closed_loop(bare_endpoint(url), PROMPTS, 2, request_count=2, max_tokens=4, seed=1)

    for behaviour, refused, failed in (
        ({"status": 429}, 2, 0),
        ({"status": 503}, 2, 0),
        ({"status": 500}, 0, 2),
        ({"break_after": 2}, 0, 2),
        ({"tokens": 0}, 0, 2),  # an answer without any text says nothing about speed
    ):
        point, _ = loaded(stub_engines, load, **behaviour)
        assert (point.finished, point.refused, point.failed) == (0, refused, failed), behaviour
        assert point.ttft is None and point.output_tokens_per_s == 0.0


@pytest.mark.parametrize("behaviour", [{"status": 429}, {"status": 500}, {"break_after": 2}, {"tokens": 3}])
def test_tokens_are_given_back_however_a_request_ends(stub_engines: Any, behaviour: dict[str, int]) -> None:
    def load(url: str) -> Load:
        endpoint = bare_endpoint(url, "m")
        return _run(endpoint, shuffled(PROMPTS, 1), 4, lambda _, clients: clients.loop(2, None, 4))

    held, _ = loaded(stub_engines, load, **behaviour)
    assert held.held_tokens == 0 and held.peak_held_tokens >= 10


def test_open_arrivals_never_wait_for_answers_and_latencies_count_from_when_they_were_due(
    stub_engines: Any,
) -> None:
    """A stand-in far slower than the load: all are in flight together, as the schedule wants."""
    point, engine = loaded(
        stub_engines,
        lambda url: open_loop(
            bare_endpoint(url), PROMPTS, 20.0, duration_s=1.0, max_tokens=1, seed=5, warmup_count=1
        ),
        gap_s=2.0,
    )
    due = poisson_arrivals_s(20.0, 1.0, seed=5)
    assert (point.name, point.concurrency, point.rate_per_s) == ("open-20", None, 20.0)
    assert point.sent == point.finished == len(due) == len(engine.requests) - 1
    sent_s = [at_s for at_s, _, _ in engine.requests[1:]]
    assert max(sent_s) - min(sent_s) < 2.0  # the last was sent before the first was answered
    assert point.ttft and point.ttft.p50_s >= 2.0
    assert point.peak_held_tokens >= 10 * len(due)


def test_a_load_without_one_end_is_refused() -> None:
    for ends in ({}, {"duration_s": 1.0, "request_count": 1}, {"request_count": 1}):
        with pytest.raises(ValueRefusedError):
            closed_loop(bare_endpoint("http://127.0.0.1:9"), PROMPTS, 2, max_tokens=1, seed=0, **ends)  # type: ignore[arg-type]


def test_a_load_may_open_as_many_connections_as_its_user_may(stub_engines: Any) -> None:
    softly, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 300:
        pytest.skip("this user may open few files")
    few = (
        len(list(Path("/proc/self/fd").iterdir())) + 60
    )  # fewer than the load asks for, however many are open
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(softly, few), most))
    try:
        point, _ = loaded(
            stub_engines,
            lambda url: closed_loop(
                bare_endpoint(url), PROMPTS, 100, request_count=100, max_tokens=1, seed=1
            ),
            gap_s=0.2,
        )
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (softly, most))
    assert point.finished == 100  # the stand-in shares this process: 200 sockets
