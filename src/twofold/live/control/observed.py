"""What a controller sees of its engines: their processes, and by asking them whether they answer. Mutable.

Processes are found once by their environment, then looked at by number: that is cheap enough for four looks a
second. Whoever is missing or new makes the next look a full one.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from twofold.core.errors import ValueRefusedError
from twofold.live import processes
from twofold.live.control.engine_checks import (
    COMPLETION_TIMEOUT_S,
    EngineClient,
    Health,
    Report,
    until_it_answers,
)
from twofold.live.control.engines import (
    START_TIMEOUT_S,
    EngineSettings,
    engine_model,
    engine_of,
)
from twofold.live.server_urls import asking, base_of, server_url

RESCAN_S = 5.0
STOPPED_S = 1.0  # that a process may be stopped by a signal
HEALTH_EVERY_S = 0.5
HANG_S = 10.0  # without an answer to a health request or a token, of one that has served
IDLE_PROBE_S = 15.0  # without a token from an idle replica, until it is asked for one
PROBE_TIMEOUT_S = 10.0
REFUSALS = 2  # in a row, from a process that is there
REPORT_EVERY_S = 2.0
DEAD_WORKER = "worker dead behind an open port"


@dataclass(slots=True)
class Process:
    """The first process of a role, and whether others of the role are there. Mutable."""

    child: processes.Child
    handle: psutil.Process
    stopped_at_s: float | None = None

    def trouble(self, now_s: float) -> str:
        """Whether it is stopped, as by SIGSTOP; raises psutil.NoSuchProcess when it is gone."""
        status = self.handle.status()
        if status == psutil.STATUS_ZOMBIE:
            raise psutil.NoSuchProcess(self.child.process_id)
        if status != psutil.STATUS_STOPPED:
            self.stopped_at_s = None
            return ""
        if self.stopped_at_s is None:
            self.stopped_at_s = now_s
        return "stopped by a signal" if now_s - self.stopped_at_s >= STOPPED_S else ""


@dataclass(slots=True)
class Processes:
    """All processes of a state by role. Mutable."""

    state: Path
    leaders: dict[str, Process] = field(default_factory=dict)
    remains: set[str] = field(default_factory=set)  # roles whose first process is gone and others are not
    scanned_s: float = -RESCAN_S

    def look(self, now_s: float) -> dict[str, str]:
        """The trouble of each role's first process, "" for none; those that are gone are not in it."""
        processes.reap()
        troubles = self._troubles(now_s)
        if troubles is None or now_s - self.scanned_s >= RESCAN_S:
            self._scan(now_s)
            troubles = self._troubles(now_s) or {}
        return troubles

    def changed(self) -> None:
        """Something was started or ended: the next look is a full one."""
        self.scanned_s = -RESCAN_S

    def _troubles(self, now_s: float) -> dict[str, str] | None:
        found = {}
        for role, process in self.leaders.items():
            try:
                found[role] = process.trouble(now_s)
            except psutil.Error:
                return None
        return found

    def _scan(self, now_s: float) -> None:
        self.scanned_s = now_s
        found = processes.running(self.state)
        leaders: dict[str, Process] = {}
        for child in found:
            with suppress(OSError, psutil.Error):
                if os.getsid(child.process_id) == child.process_id and child.role not in leaders:
                    before = self.leaders.get(child.role)
                    same = before is not None and before.child.process_id == child.process_id
                    leaders[child.role] = (
                        before if same and before else Process(child, psutil.Process(child.process_id))
                    )
        self.leaders = leaders
        self.remains = {child.role for child in found} - leaders.keys()


@dataclass(slots=True)
class Watched:
    """One replica that is asked. Mutable: its own task writes, the controller reads."""

    replica_id: str
    engine: EngineSettings
    version: str  # that it runs
    host: str
    port: int
    began_s: float  # of its process, on the monotonic clock
    process_id: int | None  # None: behind a URL
    answers: bool = False
    ready_s: float | None = None  # when it first answered
    trouble: str = ""
    heard_s: float = 0.0  # the last token that the gateway had of it
    in_flight_count: int = 0  # by the gateway's count
    in_gateway: bool = False
    report: Report | None = None
    task: "asyncio.Task[None] | None" = None

    @property
    def base(self) -> str:
        """Its address as a URL."""
        return server_url(self.engine.url).base if self.engine.url else base_of(self.host, self.port)


def watched_url(replica_id: str, engine: EngineSettings, version: str, now_s: float) -> Watched:
    """A replica that runs elsewhere: it is asked, never started or ended."""
    at = server_url(engine.url)
    return Watched(replica_id, engine, version, at.host, at.port, now_s, None)


def first_answer_by_s(replica: Watched, now_s: float) -> float:
    """Until when it may be silent. One that started long ago is given the time of one answer all the same:
    it is its controller that is new.
    """
    if not replica.process_id:
        return float("inf")
    return max(replica.began_s + START_TIMEOUT_S, now_s + COMPLETION_TIMEOUT_S)


async def watch(replica: Watched, client: EngineClient, changed: Callable[[], None]) -> None:
    """Ask a replica until it answers, then whether it is well, until it is in trouble. `changed` is told.

    One that the gateway sends requests is taken for ready once it is well: its controller died, not it.
    """
    told, model = replica.engine, engine_model(replica.engine)
    engine = engine_of(told.kind)
    if told.url:
        try:
            options = asking(told.key_variable, told.authorities, tls=server_url(told.url).tls)
        except ValueRefusedError as error:
            replica.trouble = error.message
            changed()
            return
        client.options[replica.base] = options
    known = replica.in_gateway and await client.health(replica.base, engine) is Health.WELL
    if not known:
        limit_s = first_answer_by_s(replica, time.monotonic())
        said = await until_it_answers(client, replica.base, engine, model, limit_s)
        if said:
            replica.trouble = f"it never answered its first request: {said}"
            changed()
            return
    replica.answers, replica.ready_s = True, time.monotonic()
    changed()
    while not replica.trouble:
        replica.trouble = await _until_trouble(replica, client)
    replica.answers = False
    changed()
    if replica.process_id is None:  # nobody ends and starts it: it is asked until it is back
        await until_it_answers(client, replica.base, engine, model, float("inf"))
        replica.trouble = ""
        changed()
        await watch(replica, client, changed)


async def _until_trouble(replica: Watched, client: EngineClient) -> str:
    """Why it is not to be sent requests any more."""
    engine, model = engine_of(replica.engine.kind), engine_model(replica.engine)
    well_s = asked_s = reported_s = time.monotonic()
    refusals = 0
    while True:
        await asyncio.sleep(HEALTH_EVERY_S)
        health, now_s = await client.health(replica.base, engine), time.monotonic()
        refusals = refusals + 1 if health is Health.REFUSED else 0
        if health is Health.DEAD:
            return DEAD_WORKER
        if refusals >= REFUSALS:
            return "nobody listens at its port"
        well_s = now_s if health is Health.WELL else well_s
        silent_s = now_s - max(well_s, replica.heard_s)
        if silent_s > HANG_S:
            return f"silent for {silent_s:.0f} s"
        idle_s = now_s - max(asked_s, replica.heard_s)
        if health is Health.WELL and not replica.in_flight_count and idle_s > IDLE_PROBE_S:
            asked_s = time.monotonic()
            said = await client.completes(replica.base, model, PROBE_TIMEOUT_S)
            if said and not replica.in_flight_count:  # else it became busy, and its requests tell
                return f"it says that it is well, and answers nothing: {said}"
        if engine.metrics_path and now_s - reported_s >= REPORT_EVERY_S:
            reported_s = now_s
            replica.report = await client.report(replica.base, engine)
