"""What a gate's driver is told in one turn of the loop is folded in together, logged, and then acted on."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.live.gateway import gateway_driver
from twofold.live.gateway.answers import Used
from twofold.live.gateway.gate_log import GateLog
from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.live.gateway.kept_answers import WholeAnswer
from twofold.live.gateway.replays import read_gate_log
from twofold.live.gateway.telemetry import Outcome
from twofold.policy.gate.events import (
    Cancel,
    Cause,
    CloseCircuit,
    GiveAgain,
    GiveUp,
    RefusalReason,
    Refuse,
    RequestArrived,
    ResponseStarted,
    Send,
)
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs, GateSettings

ASKED = RequestArrived(10, 10)


@pytest.fixture(autouse=True)
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever probes the replica reaches it, so that nothing here hangs on when a probe ends."""

    async def reached(*_: object) -> None:
        return None

    monkeypatch.setattr(gateway_driver, "connect_failure", reached)


def with_driver(
    folder: Path, scenario: Callable[[GateDriver], Awaitable[None]], place_count: int = 4
) -> None:
    """In a loop of its own, before one replica of so many places; its log is `events.jsonl`."""

    async def main() -> None:
        gate, log = Gate(GateSettings(), Beliefs(1e-4, 1e-3)), GateLog(folder / "events.jsonl", 1 << 20, 1)
        replica = GatewayReplica("a", "127.0.0.1", 1, "m", place_count)
        driver = GateDriver(gate, log, {"a": replica}, 1.0)
        mistakes: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: mistakes.append(context))
        driver.start()
        await quiet(driver)
        await scenario(driver)
        driver.stop()
        assert not mistakes

    asyncio.run(main())


async def quiet(driver: GateDriver) -> None:
    """Until no turn is due and no probe runs."""
    while driver._tick is not None or driver._probes:
        await asyncio.sleep(0)


def lines_of(folder: Path) -> list[str]:
    [run] = read_gate_log(folder / "events.jsonl").runs
    return list(run.entries)


def test_a_decision_is_heard_once_its_line_is_in_the_log(tmp_path: Path) -> None:
    async def scenario(driver: GateDriver) -> None:
        heard: list[int] = []
        first, second = driver.arrived(ASKED), driver.arrived(ASKED)
        for each in (first, second):
            each.add_done_callback(lambda _: heard.append(len(lines_of(tmp_path))))
        before = len(lines_of(tmp_path))
        assert not first.done()
        await asyncio.gather(first, second)
        await asyncio.sleep(0)
        assert heard == [before + 2, before + 2]  # both lines, by one write

    with_driver(tmp_path, scenario)


def test_what_the_gate_refused_and_what_failed_are_two_figures_and_a_clients_mistake_is_neither(
    tmp_path: Path,
) -> None:
    async def scenario(driver: GateDriver) -> None:
        async def sent() -> int:
            return (await driver.arrived(ASKED)).request_id

        await sent()
        assert isinstance(await driver.arrived(ASKED), Refuse)
        driver.ended(1, 10)
        driver.ended(await sent(), 0, status=400)  # the engine could not read it
        left = driver.arrived(ASKED)
        await left
        driver.forsaken(left)
        failing = await sent()
        assert isinstance(driver.failed(failing, Cause.ERROR, 1), Send)
        assert isinstance(driver.failed(failing, Cause.ERROR, 2), GiveUp)
        recent = driver.admin_state()["recent"]
        assert (recent["refused_fraction"], recent["failed_fraction"]) == (1 / 3, 1 / 3)

    with_driver(tmp_path, scenario, place_count=1)


def test_a_place_that_came_free_in_this_turn_is_taken_by_who_came_after(tmp_path: Path) -> None:
    async def scenario(driver: GateDriver) -> None:
        sent = await driver.arrived(ASKED)
        assert isinstance(sent, Send)
        early = driver.arrived(ASKED)
        driver.ended(sent.request_id, 10, sent.attempt)
        late = driver.arrived(ASKED)
        refused = await early
        assert isinstance(refused, Refuse) and refused.reason is RefusalReason.FULL
        assert isinstance(await late, Send)

    with_driver(tmp_path, scenario, place_count=1)


def test_whoever_looks_sees_what_was_told_before(tmp_path: Path) -> None:
    async def scenario(driver: GateDriver) -> None:
        asked = driver.arrived(ASKED)
        assert driver.state()["in_flight"] == 1 and not asked.done()
        sent = await asked
        driver.started(sent.request_id)
        driver.ended(sent.request_id, 10)
        assert 'twofold_output_tokens_total{class="default"} 10' in driver.metrics()
        sent = await driver.arrived(ASKED)
        driver.ended(sent.request_id, 10)
        asked = driver.arrived(ASKED)
        await asked
        driver.forsaken(asked)
        counts = driver.admin_state()["counts"]
        assert (counts["finished"], counts["left"]) == (2, 1)

    with_driver(tmp_path, scenario)


def test_who_left_before_the_decision_holds_no_place(tmp_path: Path) -> None:
    async def scenario(driver: GateDriver) -> None:
        asked = driver.arrived(ASKED)
        asked.cancel()
        driver.forsaken(asked)  # never told to the gate
        await asyncio.sleep(0)
        assert driver.state()["counts"]["arrived"] == 0
        asked = driver.arrived(ASKED)
        assert driver.state()["in_flight"] == 1  # decided, and not heard yet
        asked.cancel()
        await asyncio.sleep(0)
        assert driver.state()["in_flight"] == 0 and driver.state()["counts"]["left"] == 1
        asked = driver.arrived(ASKED)
        await asyncio.sleep(0)
        driver.forsaken(asked)  # heard, by somebody who was gone
        assert driver.state()["in_flight"] == 0 and driver.state()["counts"]["left"] == 2

    with_driver(tmp_path, scenario)


def test_a_mistake_about_one_request_is_no_other_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Gate.handle

    def failing(gate: Gate, event: Any, now_s: float) -> Any:
        if getattr(event, "input_tokens", None) == 666:
            raise AssertionError("ours")
        return handle(gate, event, now_s)

    monkeypatch.setattr(Gate, "handle", failing)

    async def scenario(driver: GateDriver) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        first, bad, second = (
            driver.arrived(ASKED),
            driver.arrived(RequestArrived(666, 1)),
            driver.arrived(ASKED),
        )
        assert isinstance(await first, Send) and isinstance(await second, Send)
        with pytest.raises(AssertionError, match="ours"):
            await bad
        one, other = (await first).request_id, (await second).request_id
        driver.ended(one, 10, 1, 666)
        driver.ended(other, 10, 1, 10)
        state = driver.state()
        assert (state["counts"]["finished"], state["counts"]["left"], state["in_flight"]) == (1, 1, 0)
        assert [str(context["exception"]) for context in told] == ["ours"]

    with_driver(tmp_path, scenario)


def test_a_mistake_in_what_is_counted_fails_no_request_and_no_other_sink(tmp_path: Path) -> None:
    async def scenario(driver: GateDriver) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        heard: list[str] = []

        def failing(_: Outcome) -> None:
            raise OverflowError("of a sink")

        driver.telemetry.sinks += [failing, lambda outcome: heard.append(outcome.outcome)]
        sent = await driver.arrived(ASKED)
        driver.ended(sent.request_id, 10)
        assert driver.state()["counts"]["finished"] == 1 and driver.state()["in_flight"] == 0
        assert heard == ["finished"] and [str(each["exception"]) for each in told] == ["of a sink"]

    with_driver(tmp_path, scenario)


def test_a_first_token_alone_is_folded_in_within_5_ms(tmp_path: Path) -> None:
    async def scenario(driver: GateDriver) -> None:
        sent = await driver.arrived(ASKED)
        await quiet(driver)
        driver.started(sent.request_id)
        assert driver._tick is None and len(driver._inbox) == 1
        due_s = driver._starts_due.when() if driver._starts_due else 0.0
        assert due_s - driver._loop.time() <= 0.005
        while driver._starts_due is not None:
            await asyncio.sleep(0.001)
        assert not driver._inbox and driver.gate.view.requests[sent.request_id].started

    with_driver(tmp_path, scenario)


def test_a_first_token_waits_for_nothing_while_somebody_is_held(tmp_path: Path) -> None:
    async def scenario(driver: GateDriver) -> None:
        sent = await driver.arrived(ASKED)
        await quiet(driver)
        driver._held[99] = driver._loop.create_future()
        driver.started(sent.request_id)
        assert driver._tick is not None
        del driver._held[99]

    with_driver(tmp_path, scenario)


def test_what_was_told_bears_the_time_when_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(driver: GateDriver) -> None:
        now_s = gateway_driver.clock_s()
        outcomes: list[Outcome] = []
        driver.telemetry.sinks.append(outcomes.append)
        monkeypatch.setattr(gateway_driver, "clock_s", lambda: now_s)
        asked = driver.arrived(ASKED)
        monkeypatch.setattr(gateway_driver, "clock_s", lambda: now_s + 0.25)
        sent = await asked  # folded in a quarter of a second late
        driver.ended(sent.request_id, 10)
        before_s = time.time() - time.monotonic()
        driver.settle()
        assert outcomes[0].e2e_s == pytest.approx(0.25)
        assert outcomes[0].at_s == pytest.approx(before_s + now_s, abs=0.1)

    with_driver(tmp_path, scenario)


def test_what_is_told_in_the_last_turn_is_decided_heard_and_in_the_log(tmp_path: Path) -> None:
    waited: list[asyncio.Future[Any]] = []

    async def scenario(driver: GateDriver) -> None:
        sent = await driver.arrived(ASKED)
        driver.ended(sent.request_id, 10)
        waited.append(driver.arrived(ASKED))

    with_driver(tmp_path, scenario)
    assert isinstance(waited[0].result(), Send)
    [*_, ended, arrived] = lines_of(tmp_path)
    assert "ResponseEnded" in ended and "RequestArrived" in arrived


def test_a_failure_is_told_after_what_was_told_before(tmp_path: Path) -> None:
    async def scenario(driver: GateDriver) -> None:
        sent = await driver.arrived(ASKED)
        driver.started(sent.request_id)
        decision = driver.failed(sent.request_id, Cause.BROKEN, 1)
        assert isinstance(decision, GiveUp)  # an answer that has begun is not asked for again

    with_driver(tmp_path, scenario)


def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first token closes the replica's circuit."""
    handle = Gate.handle

    def closing(gate: Gate, event: Any, now_s: float) -> Any:
        effects = handle(gate, event, now_s)
        return [*effects, CloseCircuit("a")] if isinstance(event, ResponseStarted) else effects

    monkeypatch.setattr(Gate, "handle", closing)


def test_what_follows_from_a_first_token_is_done_though_somebody_looked_and_heard_once_it_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusting(monkeypatch)

    async def scenario(driver: GateDriver) -> None:
        sent = await driver.arrived(ASKED)
        await quiet(driver)
        before, heard = lines_of(tmp_path), len(driver.slow_effects)
        waiting = asyncio.create_task(driver.effects_after(heard, 10.0))
        await asyncio.sleep(0)
        driver.started(sent.request_id)
        assert driver.state()["in_flight"] == 1 and driver._tick is not None  # somebody looked
        assert lines_of(tmp_path) == before and len(driver.slow_effects) == heard
        [(_, effect)] = await waiting
        assert isinstance(effect, CloseCircuit) and "CloseCircuit" in lines_of(tmp_path)[-1]

    with_driver(tmp_path, scenario)


def test_a_second_attempt_is_told_after_those_who_wait_have_heard(tmp_path: Path) -> None:
    async def scenario(driver: GateDriver) -> None:
        order: list[str] = []
        driver.told_beside = lambda _: order.append("beside")

        async def client() -> None:
            await driver.arrived(ASKED)
            order.append("heard")

        task = asyncio.create_task(client())
        await asyncio.sleep(0)
        driver._beside.append(Cancel(1, "a", 2))
        await task
        await asyncio.sleep(0)
        assert order == ["heard", "beside"]

    with_driver(tmp_path, scenario)


def test_who_left_what_was_refused_or_given_again_had_ended(tmp_path: Path) -> None:
    async def scenario(driver: GateDriver) -> None:
        await driver.arrived(ASKED)
        refused = driver.arrived(ASKED)
        decision = await refused
        assert isinstance(decision, Refuse)
        driver.forsaken(refused)
        given: asyncio.Future[Any] = driver._loop.create_future()
        given.set_result(GiveAgain(decision.request_id, 1))
        driver._given[decision.request_id] = WholeAnswer(False, b"{}", Used(1, 1))
        driver.forsaken(given)
        assert not driver._given  # nobody comes for it any more
        driver.settle()
        assert "ClientLeft" not in "".join(lines_of(tmp_path))

    with_driver(tmp_path, scenario, place_count=1)
