"""A service that heals: engines, gateway and controller are killed and stopped, alone and together.

The engines are stand-ins in processes of their own; everything else is what `up` starts.
"""

import json
import os
import re
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from twofold.core.errors import RunError
from twofold.live.chain_head import head_path
from twofold.live.control.admin_client import gateway_state
from twofold.live.control.engines import EngineSettings
from twofold.live.control.kept_log import check_log
from twofold.live.control.service import PoolShare, ServiceSettings, SmallerModel
from twofold.live.control.status import service_status
from twofold.live.control.store import Store
from twofold.live.control.supervisor import bring_down, bring_up, need_gateway_port
from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.request_log import requests_log
from twofold.live.processes import Child, PortError, free_port, need_free_port, running
from twofold.policy.gate import settings as gates
from twofold.report.service import status_lines

STUB = Path(__file__).with_name("stub_server.py")
PATIENCE_S = 90.0  # on a busy machine
SLO_S = 1.0  # of an answer of two tokens, on one as well


@dataclass
class Served:
    """A service of two stand-ins, and what can be done to it."""

    state: Path
    settings: ServiceSettings
    orders: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    def process(self, role: str) -> Child:
        [child] = running(self.state, role, exact=True)
        return child

    def hit(self, role: str, number: signal.Signals = signal.SIGKILL) -> int:
        child = self.process(role)
        os.kill(child.process_id, number)
        return child.process_id

    def healthy(self) -> int:
        there = (gateway_state(self.state) or {}).get("replicas", {})
        return sum(each["healthy"] and not each["draining"] for each in there.values())

    def back(self, role: str, before: int) -> bool:
        """Another process has the role, and all replicas are sent requests."""
        there = [child.process_id for child in running(self.state, role, exact=True)]
        return len(there) == 1 and there != [before] and self.healthy() == self.settings.replica_count

    def happened(self) -> list[str]:
        store = Store(self.state)
        try:
            return [f"{each.role}: {each.what}" for each in store.happened(100)]
        finally:
            store.close()

    def said(self, what: str) -> list[str]:
        return [each for each in self.happened() if each.startswith(what)]


def ask(url: str, tokens: int = 2, **more: Any) -> int:
    """The status of one request; 0 when nobody answered."""
    body = json.dumps({"prompt": "once", "max_tokens": tokens, **more}).encode()
    asked = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=20) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def until(happened: Callable[[], Any], said: Callable[[], Any]) -> float:
    """How long it took."""
    began_s = time.monotonic()
    while not happened():
        assert time.monotonic() - began_s < PATIENCE_S, "\n".join(said())
        time.sleep(0.05)
    return time.monotonic() - began_s


def program(folder: Path, name: str, orders: Path) -> str:
    """An engine's executable that is our stand-in."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nSTUB_ORDERS={orders} exec {sys.executable} {STUB} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("service")
    orders = folder / "orders"
    engine = EngineSettings(
        str(folder / "v1"), "float32", 1, 256, 64, program=program(folder, "stub", orders)
    )
    settings = ServiceSettings(engine, 2, 4, free_port(), 0.001, 0.01, name="stand-in")
    state = folder / ".twofold"
    try:
        bring_up(settings, state)
        yield Served(state, settings, orders)
    finally:
        assert bring_down(state) >= 1
        assert running(state) == []


def test_bringing_up_what_is_up_changes_nothing(served: Served) -> None:
    before = running(served.state)
    assert {child.role for child in before} == {
        *("controller", "watchdog", "gateway", "replica-0", "replica-1")
    }
    assert bring_up(served.settings, served.state).cold_start_s is None
    assert {each.process_id for each in running(served.state)} == {each.process_id for each in before}
    need_gateway_port(served.settings.port, served.state)  # our own gateway is in nobody's way
    with pytest.raises(PortError):
        need_gateway_port(served.settings.port, served.state / "another")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_r_057_a_replica_that_is_killed_or_stopped_is_routable_again_within_the_seconds_that_are_said(
    served: Served, number: signal.Signals
) -> None:
    before = served.hit("replica-0", number)
    statuses: list[int] = []

    def is_back() -> bool:
        statuses.append(ask(served.url))
        return served.back("replica-0", before)

    took_s = until(is_back, served.happened)
    assert sum(status != 200 for status in statuses[:5]) <= 1  # what was with it
    assert {*statuses[5:], *(ask(served.url) for _ in range(10))} == {200}
    why = "its process ended" if number is signal.SIGKILL else "stopped by a signal"
    said = re.compile(rf"replica-0: .*{why}.*; back after ([\d.]+) s")
    until(lambda: any(map(said.search, served.happened())), served.happened)
    [*_, back_s] = [float(found[1]) for found in map(said.search, served.happened()) if found]
    assert back_s < took_s + 2.0  # of stopping what did not end, and of looks
    assert took_s < back_s + 5.0  # of seeing that it died, and of looks


def test_a_dead_worker_behind_an_open_port_is_seen_within_two_seconds(served: Served) -> None:
    """As transformers' /health says it: 503. Both replicas share orders, so ours says it too."""
    before = {role: served.process(role).process_id for role in ("replica-0", "replica-1")}
    served.orders.write_text("dead")
    try:
        assert until(lambda: served.healthy() == 0, served.happened) < 2.0
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{served.url}/health", timeout=5)
    finally:
        served.orders.unlink()
    until(lambda: all(served.back(*each) for each in before.items()), served.happened)
    assert ask(served.url) == 200


def test_the_log_of_requests_outlives_kills_is_kept_and_missed_when_it_is_gone(served: Served) -> None:
    log = requests_log(served.state)
    for _ in range(2):
        assert [ask(served.url) for _ in range(6)] == [200] * 6
        before = served.hit("gateway")
        until(lambda before=before: served.back("gateway", before), served.happened)
    assert ask(served.url) == 200
    until(lambda: check_log(log, is_copy=False).kept_number, lambda: [check_log(log, is_copy=False)])
    found = check_log(log, is_copy=False)
    assert found.sealed and found.broken == () and found.first == 1
    log.rename(log.with_name("taken"))
    head_path(log).rename(log.with_name("taken.head"))
    said = "gateway: the log of requests is gone, up to number"
    until(lambda: any(said in each for each in served.happened()), served.happened)
    assert re.search("is not there|are missing", check_log(log, is_copy=False).broken[0].why)


@pytest.mark.parametrize(
    ("roles", "number"),
    [
        (("gateway",), signal.SIGKILL),
        (("gateway",), signal.SIGSTOP),
        (("gateway", "replica-1"), signal.SIGKILL),
        (("controller", "gateway"), signal.SIGKILL),
        (("controller", "replica-0"), signal.SIGKILL),
        (("watchdog",), signal.SIGKILL),
    ],
)
def test_whoever_is_hit_the_service_comes_back_unattended(
    served: Served, roles: tuple[str, ...], number: signal.Signals
) -> None:
    others = {child.role: child.process_id for child in running(served.state) if child.role not in roles}
    died = [f"{role}: the {role} died" for role in roles if role in ("gateway", "controller")]
    for each in died:  # a gateway that falls again before it was asked is down once
        until(lambda each=each: all("; back after" in said for said in served.said(each)), served.happened)
    said = [served.said(each) for each in died]
    before = {role: served.hit(role, number) for role in roles}
    until(lambda: all(served.back(*each) for each in before.items()), served.happened)
    until(lambda: ask(served.url) == 200, served.happened)
    for each, earlier in zip(died, said, strict=True):
        until(lambda each=each: "; back after" in served.said(each)[-1], served.happened)
        assert len(served.said(each)) == len(earlier) + 1
    assert {role: served.process(role).process_id for role in others} == others  # adopted, not replaced


def test_a_new_policy_is_one_event_that_names_it_however_long_requests_take(served: Served) -> None:
    changed = replace(served.settings, gate=replace(served.settings.gate, hedge=gates.HedgeSettings()))
    statuses: list[int] = []
    said = "gateway: the gateway restarts: policies.hedge changed"
    for count, settings in enumerate((changed, served.settings), 1):
        served.orders.write_text("slow")
        stream = threading.Thread(target=lambda: statuses.append(ask(served.url, 20, stream=True)))
        stream.start()
        until(lambda: (gateway_state(served.state) or {}).get("in_flight"), served.happened)
        bring_up(settings, served.state)
        served.orders.unlink()
        stream.join()
        until(lambda count=count: len(served.said(f"{said}; back after")) == count, served.happened)
    assert statuses == [200, 200]
    assert len(served.said(said)) == 2


def test_a_stopped_controller_is_replaced_and_the_service_never_notices(served: Served) -> None:
    before = served.hit("controller", signal.SIGSTOP)
    took_s = until(lambda: ask(served.url) != 200 or served.back("controller", before), served.happened)
    assert ask(served.url) == 200
    assert took_s < 15.0


def test_r_100_a_new_version_rolls_through_one_by_one_and_nobody_is_refused_or_late(served: Served) -> None:
    engine = replace(served.settings.engine, artefact=served.settings.engine.artefact.replace("v1", "v2"))
    gateway, statuses, ended = served.process("gateway"), list[int](), threading.Event()
    answers_s = list[float]()

    def client() -> None:
        while not ended.is_set():
            began_s = time.monotonic()
            statuses.append(ask(served.url, stream=True))
            answers_s.append(time.monotonic() - began_s)

    asking = threading.Thread(target=client)
    asking.start()
    try:
        before = {child.role: child.process_id for child in running(served.state, "replica")}
        bring_up(replace(served.settings, engine=engine), served.state)
        after = {child.role: child.process_id for child in running(served.state, "replica")}
    finally:
        ended.set()
        asking.join()
    assert before.keys() == after.keys() and not set(before.values()) & set(after.values())
    assert set(statuses) == {200} and len(statuses) > 20, (statuses, served.happened())
    assert sorted(answers_s)[int(0.95 * len(answers_s))] < SLO_S  # replicas answer before they are asked
    assert served.process("gateway") == gateway
    there = (gateway_state(served.state) or {})["replicas"].values()
    assert {each["version"] for each in there} == {"v2"}
    bring_up(served.settings, served.state)


def asked_at_once(url: str, count: int, tokens: int) -> list[int]:
    statuses: list[int] = []
    clients = [
        threading.Thread(target=lambda: statuses.append(ask(url, tokens, stream=True))) for _ in range(count)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return statuses


def test_the_gate_starts_and_stops_replicas_as_load_comes_and_goes(tmp_path: Path) -> None:
    orders, state = tmp_path / "orders", tmp_path / ".twofold"
    stub = program(tmp_path, "stub", orders)
    scaling = gates.ScalingSettings(
        (gates.PoolScaling(max_count=2, in_flight_limit_count=4),),
        tick_s=0.25,
        up_pause_s=0.25,
        down_pause_s=1.0,
        start_s=1.0,
    )
    gate = gates.GateSettings(scaling=scaling, queue=gates.QueueSettings())
    engine = EngineSettings(str(tmp_path / "v1"), "float32", 1, 256, 64, program=stub)
    settings = ServiceSettings(engine, 1, 4, free_port(), 0.001, 0.01, gate)
    served = Served(state, settings, orders)
    orders.write_text("slow")
    try:
        bring_up(settings, state)
        loading = threading.Thread(target=asked_at_once, args=(served.url, 8, 40))
        loading.start()
        until(lambda: served.healthy() == 2, served.happened)
        loading.join()
        until(lambda: served.healthy() == 1, served.happened)
        until(lambda: len(running(state, "s")) + len(running(state, "replica")) == 1, served.happened)
        assert any("one more replica" in each for each in served.happened())
        assert any("it drains" in each for each in served.happened())
    finally:
        bring_down(state)


PARTED = PoolShare("chat", 1, 64), PoolShare("night", 1, 16)


@pytest.mark.parametrize(
    ("pools", "smaller"),
    [((), False), (PARTED, False), ((), True)],
    ids=["one pool", "two pools", "a smaller model"],
)
def test_a_release_is_tried_on_a_share_and_takes_over_when_it_is_as_good(
    tmp_path: Path, pools: tuple[PoolShare, ...], smaller: bool
) -> None:
    """Under a canary a new artefact is offered to the gate: it decides, the controller carries out. Where
    there are pools it is tried where somebody waits, and ends in both; what answers in need stays."""
    orders, state = tmp_path / "orders", tmp_path / ".twofold"
    stub = program(tmp_path, "stub", orders)
    # Margins as wide as a busy machine is uneven: what is told apart is policy's own test.
    canary = gates.CanarySettings(
        stages=(gates.Stage(0.5, 200),), ttft_margin_fraction=9.0, tpot_margin_fraction=9.0
    )
    gate = gates.GateSettings(canary=canary, rollout=gates.RolloutSettings(tick_s=0.25))
    if pools:
        rules = gates.PoolRules("chat", "night", ("night",))
        gate = replace(gate, routes=gates.RoutingSettings(pools=rules))
    engine = EngineSettings(str(tmp_path / "v1"), "float32", 1, 256, 64, program=stub)
    port = free_port()
    settings = ServiceSettings(engine, 2, 64, port, 0.001, 0.01, gate, name="stand-in", pools=pools)
    if smaller:
        named = tuple(gates.ClassSettings(each, smaller_model="mini") for each in ("chat", "night"))
        gate = replace(gate, classes=named)
        told = SmallerModel("mini", replace(engine, artefact=str(tmp_path / "mini")), 1)
        settings = replace(settings, gate=gate, smaller=told)
    served, newer = Served(state, settings, orders), replace(engine, artefact=str(tmp_path / "v2"))
    try:
        bring_up(settings, state)
        bring_up(replace(settings, engine=newer), state)
        statuses: list[int] = []

        def versions() -> set[str]:
            statuses.extend(asked_at_once(served.url, 16, 2))
            there = (gateway_state(state) or {}).get("replicas", {}).values()
            return {each["version"] for each in there if not each["draining"] and not each["model"]}

        until(lambda: "v2" in versions(), served.happened)
        until(lambda: versions() == {"v2"} and served.healthy() == 2 + smaller, served.happened)
        assert set(statuses) == {200}
        assert any("release v2 passed its trial" in each for each in served.happened())
        status = service_status(state, 1)
        assert status is not None
        there = {(each.pool, each.in_flight_limit) for each in status.replicas if not each.model}
        beside = [(each.replica_id, each.version, each.state) for each in status.replicas if each.model]
        assert beside == ([("smaller-0", "mini", "ready")] if smaller else [])
        assert there == ({(each.name, each.in_flight_limit) for each in pools} or {("", 64)})
    finally:
        bring_down(state)


def test_an_engine_that_cannot_start_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("#!/bin/sh\necho no such model >&2\nexit 1\n")
    bad.chmod(0o755)
    engine = EngineSettings(str(tmp_path / "v1"), "float32", 1, 256, 64, program=str(bad))
    state = tmp_path / ".twofold"
    try:
        with pytest.raises(RunError, match="no such model"):
            bring_up(ServiceSettings(engine, 1, 4, free_port(), 0.001, 0.01), state)
    finally:
        bring_down(state)
    assert running(state) == []


def test_a_service_comes_up_without_the_hosted_apis_key_and_has_it_when_up_is_called_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TWOFOLD_TEST_KEY", raising=False)
    orders = tmp_path / "orders"
    engine = EngineSettings(
        str(tmp_path / "v1"), "float32", 1, 256, 64, program=program(tmp_path, "stub", orders)
    )
    api = gates.OverflowSettings()
    hosted = GatewayReplica(
        "overflow", "127.0.0.1", free_port(), "theirs", 4, key_variable="TWOFOLD_TEST_KEY"
    )
    settings = ServiceSettings(
        engine, 1, 4, free_port(), 0.001, 0.01, gates.GateSettings(overflow=api), overflow=hosted
    )
    state = tmp_path / ".twofold"
    service = Served(state, settings, orders)
    try:
        bring_up(settings, state)
        assert ask(service.url) == 200
        until(
            lambda: any("the hosted API is not asked" in each for each in service.happened()),
            service.happened,
        )
        status = service_status(state, 1)
        assert status.overflow is not None and status.overflow.unasked == "`TWOFOLD_TEST_KEY` holds no key"
        assert "no hosted API takes what finds no place: `TWOFOLD_TEST_KEY`" in "\n".join(
            status_lines(status)
        )
        replica, before = service.process("replica-0"), service.process("gateway")
        monkeypatch.setenv("TWOFOLD_TEST_KEY", "sk-1")
        bring_up(settings, state)
        told = service_status(state, 1).overflow
        assert told is not None and told.healthy and not told.unasked
        assert service.process("replica-0") == replica and service.process("gateway") != before
        assert ask(service.url) == 200
    finally:
        bring_down(state)
    assert not any(
        "sk-1" in path.read_text("utf-8", "replace") for path in state.rglob("*") if path.is_file()
    )


def test_what_down_ends_stays_ended_and_what_lies_there_is_private(tmp_path: Path) -> None:
    """Whoever would start it again is ended first; a second `down` finds nothing."""
    engine = EngineSettings(str(tmp_path / "v1"), "float32", 1, 256, 64, program=sys.executable)
    settings = ServiceSettings(engine, 0, 4, free_port(), 0.001, 0.01)
    state = tmp_path / ".twofold"
    try:
        bring_up(settings, state)
        moved = replace(settings, port=free_port())
        bring_up(moved, state)  # told otherwise: the gateway is another one
        need_free_port(settings.port)
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", moved.port)) == 0
        open_to_others = [path for path in (state, *state.rglob("*")) if path.stat().st_mode & 0o077]
        assert open_to_others == []
    finally:
        assert bring_down(state) == 3
    time_of = time.monotonic()
    while time.monotonic() - time_of < 1.5:
        assert running(state) == []
    assert bring_down(state) == 0
