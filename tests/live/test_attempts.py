"""Of two attempts the first to answer is taken, and nothing of the other is left."""

import asyncio
from typing import Any, cast

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from twofold.live.gateway.attempts import Opened, Race, waits_of
from twofold.live.gateway.gateway_config import GatewayLimits
from twofold.live.gateway.upstream import UpstreamFailed
from twofold.policy.gate.events import Cause, Send
from twofold.policy.gate.patience import NO_PROMISE, Patience

FIRST, SECOND = Send(1, "a", 1), Send(1, "b", 2)


class Response:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class World:
    """Two replicas that answer or fail when they are told to."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.answers = {FIRST.attempt: loop.create_future(), SECOND.attempt: loop.create_future()}
        self.cancelled: list[int] = []
        self.failed: list[int] = []
        self.race = Race(self.opened, cast(Any, None), self.note)

    async def opened(self, _request: object, sent: Send) -> Opened:
        try:
            return cast(Opened, await self.answers[sent.attempt])
        except asyncio.CancelledError:
            self.cancelled.append(sent.attempt)
            raise

    def note(self, _request_id: int, _cause: Cause, attempt: int) -> None:
        self.failed.append(attempt)

    def answer(self, sent: Send) -> Response:
        response = Response()
        self.answers[sent.attempt].set_result(Opened(sent, cast(Any, response), None, b"", 1.0, 99))
        return response

    def fail(self, sent: Send) -> None:
        self.answers[sent.attempt].set_exception(UpstreamFailed(Cause.BROKEN))


def raced(scenario: Any) -> None:
    async def main() -> None:
        world = World()
        first = asyncio.create_task(world.race.first(FIRST))
        await asyncio.sleep(0)
        world.race.told(SECOND)
        await asyncio.sleep(0)
        await asyncio.wait_for(scenario(world, first), 10.0)

    asyncio.run(main())


def test_a_second_attempt_that_answers_sooner_ends_the_first() -> None:
    async def scenario(world: World, first: Any) -> None:
        world.answer(SECOND)
        sent, outcome = await first
        assert sent == SECOND and isinstance(outcome, Opened)
        assert world.cancelled == [1] and world.failed == []

    raced(scenario)


def test_a_first_attempt_that_answers_ends_the_second() -> None:
    async def scenario(world: World, first: Any) -> None:
        world.answer(FIRST)
        assert (await first)[0] == FIRST
        world.race.stop()
        await asyncio.sleep(0)
        assert world.cancelled == [2]

    raced(scenario)


def test_a_second_attempt_that_fails_is_told_and_the_first_goes_on() -> None:
    async def scenario(world: World, first: Any) -> None:
        world.fail(SECOND)
        await asyncio.sleep(0.01)
        assert world.failed == [2] and not first.done()
        world.answer(FIRST)
        assert (await first)[0] == FIRST

    raced(scenario)


def test_a_first_attempt_that_fails_leaves_the_second_to_answer() -> None:
    async def scenario(world: World, first: Any) -> None:
        world.fail(FIRST)
        sent, outcome = await first
        assert sent == FIRST and isinstance(outcome, UpstreamFailed)
        world.answer(SECOND)
        assert (await world.race.next())[0] == SECOND

    raced(scenario)


def test_of_two_answers_at_once_one_is_taken_and_the_other_closed() -> None:
    async def scenario(world: World, first: Any) -> None:
        one, other = world.answer(FIRST), world.answer(SECOND)
        _, outcome = await first
        await asyncio.sleep(0)
        world.race.stop()
        assert isinstance(outcome, Opened)
        taken = cast(Any, outcome.response)
        assert {one, other} - {taken} and not taken.closed
        assert world.cancelled or (other if taken is one else one).closed

    raced(scenario)


def test_a_client_that_leaves_ends_both() -> None:
    async def scenario(world: World, first: Any) -> None:
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        world.race.stop()
        await asyncio.sleep(0)
        assert sorted(world.cancelled) == [1, 2]

    raced(scenario)


def test_a_promise_is_waited_for_however_long_and_what_is_promised_nothing_is_not() -> None:
    limits = GatewayLimits()
    promised = Patience(600.0, 90.0, 1200.0)  # a whole answer within 400 s
    assert waits_of(promised, limits) == promised
    assert waits_of(Patience(3.0, 2.0, 33.0), limits) == Patience(3.0, 2.0, 33.0)
    assert waits_of(NO_PROMISE, limits) == Patience(60.0, 30.0, 300.0)
