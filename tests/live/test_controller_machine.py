"""The controller in any order of what happens: what is wanted comes back, nothing that serves is ended.

Processes, engines' answers, the gateway and the clock are stand-ins; controller, store and decisions are the
real ones. A controller is forgotten as kill -9 forgets it; the disk may refuse what it writes.
"""

import asyncio
import os
import shutil
import sqlite3
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from twofold.live import processes
from twofold.live.control import controller as controlling
from twofold.live.control import reconcile
from twofold.live.control.controller import Controller
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings, gateway_digest, replica_digest
from twofold.live.control.store import ReplicaRow, Store
from twofold.live.control.supervisor import _want
from twofold.live.processes import Child

NAMES = ("replica-0", "replica-1", "replica-2", "extra")
STARTS_MOST = 9  # of a replica in a minute: at once, then after 0, 1, 2, 4, 8, 16, 32 s
LOOK_S = 0.25


@dataclass
class Process:
    """One of the machine's."""

    child: Child
    began_s: float
    is_up: bool = False  # it answers
    hangs: bool = False


@dataclass
class World:
    """The machine: its processes by role, its gateway's replicas, its clock; `processes` for a controller."""

    now_s: float = 1000.0
    there: dict[str, Process] = field(default_factory=dict)
    known: dict[str, dict[str, Any]] = field(default_factory=dict)  # to the gateway
    in_flight: dict[str, int] = field(default_factory=dict)
    withdrawn_s: dict[str, float] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)  # replicas whose process ends at once
    starts_s: dict[str, list[float]] = field(default_factory=dict)
    number: int = 100
    said: list[str] = field(default_factory=list)
    wanted: dict[str, str] = field(default_factory=dict)  # by replica: the digest that it is to have
    GRACE_S = processes.GRACE_S
    make_private = staticmethod(processes.make_private)
    python_module = staticmethod(processes.python_module)

    # --- as `processes` ---

    def start(
        self,
        _command: list[str],
        role: str,
        _state: Path,
        *,
        digest: str = "",
        port: int | None = None,
        **_: Any,
    ) -> Child:
        assert role not in self.there, f"{role} is started beside itself"
        self.number += 1
        child = Child(self.number, role, digest, port)
        self.starts_s.setdefault(role, []).append(self.now_s)
        if role not in self.bad:
            self.there[role] = Process(child, self.now_s, is_up=role == "gateway")
        return child

    def stop_all(self, _state: Path, role: str, _grace_s: float, *, exact: bool, at_once: bool) -> int:
        assert exact
        process = self.there.get(role)
        if process is None:
            return 0
        if role != "gateway":
            serves = process.is_up and not process.hangs and process.child.digest == self.wanted.get(role)
            assert not serves, f"{role} serves as it should, and is ended"
            if not at_once:
                assert not self.is_sent(role), "one that is sent requests is ended in peace"
                gone_s = self.now_s - self.withdrawn_s.get(role, self.now_s)
                assert not self.in_flight.get(role) or gone_s > reconcile.DRAIN_S, "it has requests"
        self.dies(role)
        return 1

    def running(self, _state: Path, role: str, **_: Any) -> list[Child]:
        return [self.there[role].child] if role in self.there else []

    def stop(self, children: list[Child], **_: Any) -> None:
        for child in children:
            self.dies(child.role)

    def age_s(self, process_id: int) -> float:
        [found] = [each for each in self.there.values() if each.child.process_id == process_id]
        return self.now_s - found.began_s

    def free_port(self) -> int:
        self.number += 1
        return 10_000 + self.number

    def say(self, line: str) -> None:
        self.said.append(line)

    def dies(self, role: str) -> None:
        self.there.pop(role, None)
        self.in_flight.pop(role, None)
        if role == "gateway":
            self.known.clear()
            self.in_flight.clear()

    def is_sent(self, name: str) -> bool:
        """Whether the gateway sends it requests."""
        return name in self.known and not self.known[name]["draining"]

    # --- as what a controller sees ---

    @property
    def leaders(self) -> dict[str, Any]:
        return {role: SimpleNamespace(child=each.child) for role, each in self.there.items()}

    remains: frozenset[str] = frozenset()

    def look(self, _now_s: float) -> dict[str, str]:
        return dict.fromkeys(self.there, "")

    def changed(self) -> None:
        """The next look is a full one: each is."""

    # --- as the gateway's second server ---

    async def tell(self, told: list[dict[str, Any]]) -> bool:
        gateway = self.there.get("gateway")
        if gateway is None or gateway.hangs:
            return False
        for event in told:
            name = event.get("replica_id", "")
            if event["type"] == "ReplicaAdded":
                assert name in self.there and self.there[name].is_up, "one that does not answer is announced"
                port = event["address"]["port"]
                told_of = {
                    "port": port,
                    "version": event["version"],
                    "zone": event["zone"],
                    "pool": event["pool"],
                    "model": event["model"],
                }
                self.known[name] = {**told_of, "draining": False}
                self.withdrawn_s.pop(name, None)
            elif event["type"] == "ReplicaRemoved" and self.is_sent(name):
                self.known[name]["draining"] = True
                self.withdrawn_s[name] = self.now_s
        return True

    async def get(self, _path: str, *_: Any) -> Any:
        gateway = self.there.get("gateway")
        if gateway is None or gateway.hangs:
            return None
        more = {"healthy": True, "heard_ago_s": None}
        for name in [name for name in self.known if not self.is_sent(name) and not self.in_flight.get(name)]:
            del self.known[name]  # the last of its requests has ended
        return {
            "incarnation": str(gateway.child.process_id),
            "replicas": {
                name: {**each, **more, "in_flight": self.in_flight.get(name, 0)}
                for name, each in self.known.items()
            },
        }

    async def close(self) -> None:
        """Nothing is open."""


class Refusing:
    """A connection on a disk that takes nothing."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self.real = real

    def execute(self, statement: str, *more: Any) -> sqlite3.Cursor:
        if not statement.lstrip().startswith(("select", "pragma")):
            raise sqlite3.OperationalError("database or disk is full")
        return self.real.execute(statement, *more)


async def _never(*_: Any) -> None:
    await asyncio.Event().wait()


class ServiceInAWorld(RuleBasedStateMachine):
    """INV-14 of what is ended: nothing that is sent requests. None is started beside itself or in a storm."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.state = self.folder / ".twofold"
        self.world, self.loop, self.entered = World(), asyncio.new_event_loop(), ExitStack()
        patched = self.entered.enter_context(pytest.MonkeyPatch.context())
        patched.setattr(controlling, "processes", self.world)
        patched.setattr(controlling, "Processes", lambda _: self.world)
        patched.setattr(controlling, "AdminClient", lambda _: self.world)
        patched.setattr(controlling, "EngineClient", lambda: self.world)
        patched.setattr(controlling, "watch", _never)
        patched.setattr(controlling, "time", SimpleNamespace(monotonic=lambda: self.world.now_s))
        start = lambda state: self.world.start([], "watchdog", state)  # noqa: E731
        patched.setattr(controlling.watchdog, "start_watchdog", start)
        patched.setattr("twofold.live.training.artefact.flush", lambda _: None)
        self.refuses, self.controller, self.kills_s = False, None, list[float]()
        self.wants(2, "v1")
        self.a_controller_starts()

    # --- looking ---

    def look(self, seconds: float = LOOK_S) -> None:
        """So much time in looks of a quarter of a second, or of more when it is long."""
        until_s = self.world.now_s + seconds
        while self.world.now_s < until_s:
            self.world.now_s = min(self.world.now_s + max(LOOK_S, seconds / 40), until_s)
            if self.controller is not None:
                self.loop.run_until_complete(self.looked(self.controller))

    async def looked(self, controller: Controller) -> None:
        await controller._ask_gateway()
        for name, replica in controller.watched.items():
            process = self.world.there.get(name)
            well = process is not None and process.child.process_id == replica.process_id
            replica.answers = bool(well and process.is_up and not process.hangs)
            replica.trouble = "silent" if well and process.hangs else ""
            if replica.answers and replica.ready_s is None:
                replica.ready_s = self.world.now_s
        self.wanted_now(controller.store)
        try:
            controller.look(self.world.now_s)
        except (sqlite3.Error, OSError) as error:
            controller.memory.refused(error)
        work = [each for each in controller._tasks if each.get_coro().__name__ != "_never"]
        if work:
            await asyncio.wait(work, timeout=20)

    def wanted_now(self, store: Store) -> None:
        """The digest of each replica that is to stay."""
        rows = [row for row in store.replicas() if not row.leaving]
        self.world.wanted = {row.replica_id: replica_digest(self.engine(row.version)) for row in rows}

    def engine(self, version: str) -> EngineSettings:
        return EngineSettings(str(self.folder / version), "float32", 1, 64, 256, program=sys.executable)

    # --- what people and the gate want ---

    @precondition(lambda self: not self.refuses)
    @rule(count=st.integers(1, 3), version=st.sampled_from(["v1", "v2"]))
    def wants(self, count: int, version: str) -> None:
        self.state.mkdir(exist_ok=True)
        self.settings = ServiceSettings(self.engine(version), count, 4, 9000, 0.001, 0.01, name="one")
        _want(self.settings, self.state)
        self.world.starts_s.clear()
        self.look()

    @precondition(lambda self: not self.refuses)
    @rule(leaving=st.booleans())
    def the_gate_wants_one_more_or_less(self, leaving: bool) -> None:
        store = Store(self.state)
        try:
            there = [row for row in store.replicas() if row.replica_id == "extra"]
            if leaving == bool(there):
                version = there[0].version if there else store.kept("version")
                store.put(ReplicaRow("extra", version, leaving=leaving, by_gate=True))
        finally:
            store.close()
        self.look()

    # --- what becomes of engines and the gateway ---

    @rule()
    def engines_come_up(self) -> None:
        for process in self.world.there.values():
            process.is_up = True
        self.look()

    @rule(role=st.sampled_from([*NAMES, "gateway", "watchdog"]))
    def one_is_killed(self, role: str) -> None:
        self.world.dies(role)
        self.look()

    @rule(role=st.sampled_from([*NAMES, "gateway"]))
    def one_hangs(self, role: str) -> None:
        if role in self.world.there:
            self.world.there[role].hangs = True
        self.look()

    @rule(name=st.sampled_from(NAMES), bad=st.booleans())
    def one_ends_at_once_from_now_on(self, name: str, bad: bool) -> None:
        (self.world.bad.add if bad else self.world.bad.discard)(name)
        self.look()

    @rule(name=st.sampled_from(NAMES), count=st.sampled_from([0, 0, 3]))
    def it_has_requests(self, name: str, count: int) -> None:
        if self.world.is_sent(name):
            self.world.in_flight[name] = count
        self.look()

    @rule(past_s=st.sampled_from([1.0, 5.0, 40.0, 120.0]))
    def time_passes(self, past_s: float) -> None:
        self.look(past_s)

    # --- what becomes of controllers, and of the disk ---

    @rule()
    def the_controller_is_killed(self) -> None:
        if self.controller is not None:
            self.loop.run_until_complete(self.ended(self.controller))
            self.controller.store.close() if not self.refuses else self.controller.store._file.real.close()
            self.controller = None
            self.kills_s.append(self.world.now_s)
            if self.refuses:
                self.world.starts_s.clear()  # what it could not write down is forgotten with it

    async def ended(self, controller: Controller) -> None:
        await controller.close()
        await asyncio.gather(*controller._tasks, return_exceptions=True)

    @precondition(lambda self: self.controller is None)
    @rule()
    def a_controller_starts(self) -> None:
        store = Store(self.state)
        if self.refuses:
            store._file = Refusing(store._file)
        self.controller = Controller(self.state, store)
        self.look()

    @precondition(lambda self: self.controller is not None)
    @rule(refuses=st.booleans())
    def the_disk_refuses_or_takes(self, refuses: bool) -> None:
        store = self.controller.store
        if refuses and not self.refuses:
            store._file = Refusing(store._file)
        elif self.refuses and not refuses:
            store._file = store._file.real
        self.refuses = refuses
        self.look()

    # --- what always holds ---

    @invariant()
    def nothing_is_started_in_a_storm(self) -> None:
        since_s = self.world.now_s - 60.0
        most = STARTS_MOST + sum(at_s > since_s for at_s in self.kills_s)  # each may forget the newest
        for role in NAMES:
            recent = [at_s for at_s in self.world.starts_s.get(role, []) if at_s > since_s]
            assert len(recent) <= most, (role, recent)

    @invariant()
    def a_disk_that_refuses_is_not_said_at_every_look(self) -> None:
        assert len(self.world.said) <= 400, self.world.said[-5:]

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.the_controller_is_killed()
            self.loop.close()
            self.entered.close()
            shutil.rmtree(self.folder)

    def settle(self) -> None:
        """Once the machine is well again, all that is wanted serves before long, and nothing else runs."""
        self.world.bad.clear()
        if self.controller is None:
            self.a_controller_starts()
        self.the_disk_refuses_or_takes(False)
        for _ in range(60):
            self.world.in_flight.clear()
            self.engines_come_up()
            self.look(10.0)
        rows = {row.replica_id: row for row in self.controller.store.replicas()}
        assert not any(row.leaving for row in rows.values()), rows
        there = {role: each.child.digest for role, each in self.world.there.items()}
        replicas = {role: digest for role, digest in there.items() if role in NAMES}
        assert replicas == {name: replica_digest(self.engine(row.version)) for name, row in rows.items()}
        assert self.world.known.keys() == rows.keys() and there.keys() >= {"gateway", "watchdog"}
        assert there["gateway"] == gateway_digest(self.settings, self.state)
        happened = [each.what for each in self.controller.store.happened(2000)]
        assert len(happened) < 2000 and not self.controller.memory._rows


TestServiceInAWorld = ServiceInAWorld.TestCase
TestServiceInAWorld.settings = settings(
    max_examples=200 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 20, stateful_step_count=25
)
