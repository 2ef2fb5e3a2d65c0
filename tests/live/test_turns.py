"""What a gate's driver is told in one turn of the loop is folded in together, logged, and then acted on."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.live.gateway.gate_log import GateLog
from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.live.gateway.replays import read_gate_log
from twofold.policy.gate.events import (
    CloseCircuit,
    RefusalReason,
    Refuse,
    RequestArrived,
    ResponseStarted,
    Send,
)
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs, GateSettings

ASKED = RequestArrived(10, 10)


def with_driver(
    folder: Path, scenario: Callable[[GateDriver], Awaitable[None]], place_count: int = 4
) -> None:
    """In a loop of its own, before one replica of so many places; its log is `events.jsonl`."""

    async def main() -> None:
        gate, log = Gate(GateSettings(), Beliefs(1e-4, 1e-3)), GateLog(folder / "events.jsonl", 1 << 20, 1)
        replica = GatewayReplica("a", "127.0.0.1", 1, "m", place_count)
        driver = GateDriver(gate, log, {"a": replica}, 1.0)
        driver.start()
        await asyncio.sleep(0)
        await scenario(driver)
        driver.stop()

    asyncio.run(main())


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
        driver.left((await driver.arrived(ASKED)).request_id)
        assert driver.state()["counts"] | {"ignored": 0} == driver.state()["counts"]
        assert driver.admin_state()["counts"]["left"] == 1

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
        await asyncio.sleep(0)
        assert driver.state()["counts"]["finished"] == 1
        assert [str(context["exception"]) for context in told] == ["ours"]

    with_driver(tmp_path, scenario)


def test_what_follows_from_a_first_token_is_done_though_somebody_looked_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Gate.handle

    def trusting(gate: Gate, event: Any, now_s: float) -> Any:
        effects = handle(gate, event, now_s)
        return [*effects, CloseCircuit("a")] if isinstance(event, ResponseStarted) else effects

    monkeypatch.setattr(Gate, "handle", trusting)

    async def scenario(driver: GateDriver) -> None:
        sent = await driver.arrived(ASKED)
        while driver._tick is not None:  # of a probe
            await asyncio.sleep(0)
        before = len(lines_of(tmp_path))
        driver.started(sent.request_id)
        assert driver.state()["in_flight"] == 1 and driver._tick is None
        assert len(lines_of(tmp_path)) == before
        driver._starts_are_due()
        assert "CloseCircuit" in lines_of(tmp_path)[-1]

    with_driver(tmp_path, scenario)
