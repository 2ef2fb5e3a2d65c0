"""The resident controller: `python -m twofold.live.control.controller STATE`, one per state folder.

It looks at what is there, asks `reconcile` what to do, does it. What is wanted, what failed and what happened
stands in the store; what runs is read off the machine: the next controller finds it by its marks.
"""

import asyncio
import fcntl
import json
import os
import signal
import sqlite3
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

from twofold.core.data import from_data
from twofold.core.errors import TwofoldError
from twofold.live import processes, watchdog
from twofold.live.control import drifting, reconcile, scoring
from twofold.live.control.admin_client import CONFIG
from twofold.live.control.admin_session import AdminClient
from twofold.live.control.engine_checks import EngineClient
from twofold.live.control.engines import EngineSettings, engine_command, engine_of
from twofold.live.control.gate_orders import READ, bring_back, calibrated, carry_out, note_unasked, short
from twofold.live.control.gateway_notes import GatewayNotes, with_requests
from twofold.live.control.kept_log import keep_heads
from twofold.live.control.memory import Memory
from twofold.live.control.observed import Processes, Watched, watch, watched_url
from twofold.live.control.recording import record_trials, settle_moves
from twofold.live.control.reports import Reports, report_of
from twofold.live.control.service import (
    ServiceSettings,
    added,
    address_of,
    gateway_config,
    gateway_digest,
    replica_digest,
    replica_environment,
)
from twofold.live.control.store import BRING_BACK, OFFERED, TRIED, ReplicaRow, Store
from twofold.live.control.tier_processes import ROLE as TIER_ROLE
from twofold.live.control.tier_processes import TierKeeper, start_tier
from twofold.live.gateway.gateway_config import GatewayAdmin, GatewayReplica, write_gateway_config
from twofold.live.training.artefact import write_whole

LOOK_S = 0.25
POLL_S = 0.5  # of the gateway
RELAY_WAIT_S = 10.0
GATEWAY_START_S = 30.0  # in which it need not answer yet
GATEWAY_HANG_S = 5.0
OTHERS = ("gateway", "watchdog", *watchdog.MANAGERS)  # roles that are no replicas, nor are these:
JOBS = ("train-", "job-")  # of trainers and jobs
REPORT_S = 2.0


class Controller:
    """One service's controller. Mutable; lives in one event loop."""

    def __init__(self, state: Path, store: Store) -> None:
        self.state, self.store = state, store
        self.processes = Processes(state)
        self.settings: ServiceSettings | None = None
        self.rows: dict[str, ReplicaRow] = {}
        self.watched: dict[str, Watched] = {}
        self.digests: dict[str, str] = {}  # of what each version's process is to be told
        self.gateway: dict[str, Any] | None = None  # its latest state
        self.gateway_seen_s = time.monotonic()
        self.gateway_failures, self.gateway_not_before_s = 0, 0.0
        self._ending: set[str] = set()  # roles that are being ended
        self._started: set[str] = set()  # since the last look
        self._withdrawn_s: dict[str, float] = {}
        self.memory = Memory(store)
        self._noted = GatewayNotes(self.memory)
        self._changes = -1
        self._tiers = TierKeeper()
        self._kick = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.engines, self.admin, self.reports = EngineClient(), AdminClient(state), Reports()

    async def run(self) -> None:
        """Until the state is to end."""
        self._begin(time.monotonic())
        for each in (
            self._poll(),
            self._relay(),
            self._report(),
            self._beat(),
            scoring.score_releases(self.engines, self._tried, self.admin.tell),
            record_trials(self.store, lambda: self.settings),
            settle_moves(self.store, self.state, lambda: self.settings),
            drifting.watch_answers(self.store, self.state, lambda: self.settings),
            keep_heads(self.store, self.state, self.memory.note),
        ):
            self._spawn(each)
        while not watchdog.is_ending(self.state):
            try:
                self.look(time.monotonic())
            except (sqlite3.Error, OSError) as error:  # a full disk must not stop the healing
                self.memory.refused(error)
            if self.store.is_replaced():
                processes.say("another disk is in the place of the store's: who starts anew reads that one")
                raise SystemExit(1)
            self._kick.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._kick.wait()

    def _begin(self, now_s: float) -> None:
        """After one that died: what serves has lost nobody who ended in peace."""
        silent_s = watchdog.silent_for_s(self.state, watchdog.CONTROLLER)
        self.processes.look(now_s)
        serving = {"gateway", *self.memory.replicas()} & self.processes.leaders.keys()
        self._noted.was_there = died = bool(serving) and silent_s < float("inf")
        what = f"died; back after {silent_s:.1f} s" if died else "started"
        self.memory.note("controller", f"the controller {what}")

    def look(self, now_s: float) -> None:
        """What is there, what follows, and that done."""
        self._read()
        troubles = self.processes.look(now_s)
        if self.settings is None:
            return
        self._follow(now_s)
        seen = [self._seen(name, troubles, now_s) for name in self._names()]
        wanted = [
            reconcile.WantedReplica(
                row.replica_id,
                self.digests.get(row.version, ""),
                row.leaving,
                row.not_before_s if row.not_before_s - now_s <= reconcile.BACKOFF_S_MAX else 0.0,
            )
            for row in self.rows.values()
        ]
        digest, gateway = gateway_digest(self.settings, self.state), self._seen_gateway(troubles, now_s)
        not_before_s = self.gateway_not_before_s
        for action in reconcile.actions_of(wanted, seen, digest, gateway, now_s, not_before_s):
            try:
                self._do(action, now_s)
            except (sqlite3.Error, OSError) as error:  # the others are done all the same
                self.memory.refused(error)
        self._keep_tiers(self.settings, troubles, now_s)
        if "watchdog" not in troubles or troubles["watchdog"]:
            for process in processes.running(self.state, "watchdog", exact=True):
                processes.stop([process], at_once=True)
            watchdog.start_watchdog(self.state)
            self.processes.changed()

    # --- what is wanted and what is there ---

    def _read(self) -> None:
        """What is wanted, read again when somebody wrote."""
        changes = self.store.changes()
        if changes != self._changes:
            self._changes = changes
            text = self.store.kept("service")
            self.settings = from_data(ServiceSettings, json.loads(text)) if text else None
            self.digests = {}
        self.rows = self.memory.replicas()
        for row in self.rows.values():
            if row.version not in self.digests:
                try:
                    self.digests[row.version] = replica_digest(self.engine(row.version))
                except TwofoldError as error:
                    self.digests[row.version] = "none"
                    self.memory.note(row.replica_id, error.message)

    def engine(self, version: str) -> EngineSettings:
        """What a replica of this version is told."""
        return from_data(EngineSettings, json.loads(self.store.version(version)))

    def _version_of(self, digest: str, otherwise: str) -> str:
        """What a process runs, by what it was told: a new version may be wanted of it meanwhile."""
        for version in self.store.versions():
            if version not in self.digests:
                with suppress(TwofoldError):
                    self.digests[version] = replica_digest(self.engine(version))
        return next((each for each, told in self.digests.items() if told == digest), otherwise)

    def _names(self) -> list[str]:
        roles = {*self.processes.leaders, *self.processes.remains, *self.watched, *self.rows}
        others = (*JOBS, TIER_ROLE)
        return sorted(r for r in roles if r not in (*OTHERS, *self._ending) and not r.startswith(others))

    def _follow(self, now_s: float) -> None:
        """Whoever has a process is asked; whoever lost it is not, and that is a failure."""
        for name, replica in list(self.watched.items()):
            leader = self.processes.leaders.get(name)
            if replica.process_id is None:
                gone = name not in self.rows
            else:
                gone = leader is None or leader.child.process_id != replica.process_id
            if gone:
                self._unwatch(name)
                if replica.process_id is not None and name not in self._ending:
                    self._failed(name, replica, "its process ended", now_s)
        for name in self._started - self.processes.leaders.keys() - self._ending:
            self._failed(name, None, "it ended at once", now_s)
        self._started.clear()
        for name, row in self.rows.items():
            if name in self.watched or name in self._ending:
                continue
            leader = self.processes.leaders.get(name)
            version = self._version_of(leader.child.digest, row.version) if leader else row.version
            engine = self.engine(version)
            if engine.url:
                replica = watched_url(name, engine, version, now_s)
            elif leader is not None:
                child = leader.child
                began_s = now_s - processes.age_s(child.process_id)
                here = "127.0.0.1", child.port or 0
                replica = Watched(name, engine, version, *here, began_s, child.process_id)
            else:
                continue
            self.watched[name] = replica
            self._update(replica)
            replica.task = self._spawn(watch(replica, self.engines, self._kick.set))

    def _unwatch(self, name: str) -> None:
        replica = self.watched.pop(name, None)
        if replica is not None and replica.task is not None:
            replica.task.cancel()

    def _seen(self, name: str, troubles: dict[str, str], now_s: float) -> reconcile.SeenReplica:
        leader, replica = self.processes.leaders.get(name), self.watched.get(name)
        elsewhere = replica is not None and replica.process_id is None
        row = self.rows.get(name)
        if replica is not None and replica.answers:
            self._came_up(name, replica, now_s)
        digest = leader.child.digest if leader else ""
        if elsewhere and row is not None:
            digest = self.digests.get(row.version, "")
        return reconcile.SeenReplica(
            name,
            digest,
            has_process=leader is not None or elsewhere,
            has_remains=name in self.processes.remains,
            answers=replica is not None and replica.answers,
            trouble=troubles.get(name, "") or (replica.trouble if replica else ""),
            in_gateway=self._in_gateway(name),
            in_flight_count=replica.in_flight_count if replica else 0,
            draining_s=now_s - self._withdrawn_s.get(name, now_s),
        )

    def _in_gateway(self, name: str) -> bool:
        replica = self.watched.get(name)
        if self.gateway is None:
            # Not heard yet, or silent: nothing may be ended for not being sent requests.
            return replica is not None and "gateway" in self.processes.leaders
        there = self.gateway["replicas"].get(name)
        if there is None or there["draining"]:
            return False
        if replica is None:
            return True
        row = self.rows.get(name)
        told = there["zone"], there["pool"], there["model"]
        place = (row.zone, row.pool, row.model) if row else told
        is_told = (there["version"], *told) == (replica.version, *place)
        return is_told and bool(there["port"] == replica.port)

    def _came_up(self, name: str, replica: Watched, now_s: float) -> None:
        """It answers: what was noted of its death ends with how long that took."""
        self.memory.back(name, now_s)
        row = self.rows.get(name)
        if row is None or row.has_served:
            return
        cold_s = (replica.ready_s or now_s) - replica.began_s
        self._put(replace(row, has_served=True))
        self.memory.note(name, f"ready {cold_s:.1f} s after its start")
        self.store.keep(f"cold_start_s {name}", f"{cold_s:.3f}")

    def _seen_gateway(self, troubles: dict[str, str], now_s: float) -> reconcile.SeenGateway:
        leader, is_ending = self.processes.leaders.get("gateway"), "gateway" in self._ending
        self._noted.looked(self.gateway, now_s, is_there=leader is not None, is_ending=is_ending)
        if leader is None or is_ending:
            return reconcile.SeenGateway(is_ending=is_ending)
        age_s = processes.age_s(leader.child.process_id)
        silent_s = now_s - self.gateway_seen_s
        hangs = silent_s > GATEWAY_HANG_S and age_s > GATEWAY_START_S
        trouble = troubles.get("gateway", "") or (f"silent for {silent_s:.0f} s" if hangs else "")
        return reconcile.SeenGateway(True, leader.child.digest, self.gateway is not None, trouble)

    # --- what is done ---

    def _do(self, action: reconcile.Action, now_s: float) -> None:
        match action:
            case reconcile.StartReplica():
                self._start(action.replica_id, now_s)
            case reconcile.EndReplica():
                self._end(action.replica_id, action.trouble, now_s)
            case reconcile.Announce():
                self._withdrawn_s.pop(action.replica_id, None)
                self._spawn(self._announce(action.replica_id))
            case reconcile.Withdraw():
                self._withdrawn_s.setdefault(action.replica_id, now_s)
                self._spawn(self.tell({"type": "ReplicaRemoved", "replica_id": action.replica_id}))
            case reconcile.Forget():
                self.store.forget(action.replica_id)
                self._unwatch(action.replica_id)
                self._withdrawn_s.pop(action.replica_id, None)
            case reconcile.StartGateway():
                self._start_gateway(now_s)
            case reconcile.EndGateway():
                self._end_gateway(action.trouble, now_s)
            case _:
                assert_never(action)

    def _keep_tiers(self, settings: ServiceSettings, troubles: dict[str, str], now_s: float) -> None:
        """The servers of CPU tiers that are ours to start."""
        digests = {role: process.child.digest for role, process in self.processes.leaders.items()}
        found = self._tiers.look(settings.tier_processes, digests, troubles, self._ending, now_s)
        for role in found.died:
            self.store.note(role, "its process ended")
        for role, trouble in found.end.items():
            self.store.note(role, f"died ({trouble})" if trouble else "restarts: its settings changed")
            self._ending.add(role)
            self._spawn(self._stopped(role, processes.GRACE_S, at_once=bool(trouble)))
        for each in found.start:
            start_tier(each, self.state, self.store)
            self.processes.changed()

    def _start(self, name: str, now_s: float) -> None:
        row = self.rows[name]
        engine = self.engine(row.version)
        try:
            port = processes.free_port()
            command = [*engine_command(engine), engine_of(engine.kind).port_option, str(port)]
            environment, digest = replica_environment(engine, name), self.digests[row.version]
            processes.start(command, name, self.state, digest=digest, port=port, environment=environment)
            self._started.add(name)
        except (OSError, TwofoldError) as error:
            what = error.message if isinstance(error, TwofoldError) else str(error)
            self._failed(name, None, f"it cannot be started: {what}", now_s)
        self.processes.changed()

    def _end(self, name: str, trouble: str, now_s: float) -> None:
        replica = self.watched.get(name)
        if replica is not None and replica.process_id is None:
            return  # it runs elsewhere: it is asked until it is back
        if trouble and name in self.rows:
            self._failed(name, replica, trouble, now_s)
        grace_s = engine_of(replica.engine.kind).stop_grace_s if replica else processes.GRACE_S
        self._unwatch(name)
        self._ending.add(name)
        self._spawn(self._stopped(name, grace_s, at_once=bool(trouble)))

    async def _stopped(self, role: str, grace_s: float, *, at_once: bool) -> None:
        """End a role's processes in a thread: waiting for them must not stop the looking."""
        try:
            await asyncio.to_thread(
                processes.stop_all, self.state, role, grace_s, exact=True, at_once=at_once
            )
        except TwofoldError as error:
            self.memory.note(role, error.message)
        self._ending.discard(role)
        self.processes.changed()
        self._kick.set()

    def _failed(self, name: str, replica: Watched | None, why: str, now_s: float) -> None:
        """One death: noted, counted, and its next start put off. One that the gate asked for, and that never
        came, is not tried again: the gate is told, and decides."""
        row = self.rows.get(name)
        if row is None or row.leaving:
            return
        in_flight = replica.in_flight_count if replica else 0
        self.memory.down(name, f"died ({why}){with_requests(in_flight)}", now_s)
        if row.by_gate and not row.has_served:
            self._put(replace(row, leaving=True))
            self.memory.unwanted(name)
            self._spawn(self.tell({"type": "ReplicaStartFailed", "replica_id": name}))
            return
        served_s = now_s - replica.ready_s if replica and replica.ready_s else 0.0
        count, not_before_s = reconcile.next_failure(row.failed_count, served_s, now_s)
        self._put(replace(row, failed_count=count, not_before_s=not_before_s))

    def _put(self, row: ReplicaRow) -> None:
        self.rows[row.replica_id] = row
        self.memory.put(row)

    def _start_gateway(self, now_s: float) -> None:
        settings = self.settings
        assert settings is not None
        admin = GatewayAdmin(processes.free_port(), self.store.kept("admin_key"))
        ready = [
            self._address(settings, each, row)
            for name, each in self.watched.items()
            if each.answers and not each.trouble and (row := self.rows.get(name)) and not row.leaving
        ]
        # Zones and versions are told once it runs; the plain ones it has from its first moment.
        config = gateway_config(settings, self.state, ready, admin)
        path = self.state / CONFIG
        processes.make_private(path.parent)
        try:
            write_whole(path, write_gateway_config(config))
        except OSError as error:  # a full disk: what the last one was told is told again, replicas come later
            if not path.is_file():
                raise
            processes.say(f"the gateway's configuration cannot be written: {error}")
        digest = gateway_digest(settings, self.state)
        command = processes.python_module("twofold.live.gateway.gateway", str(path))
        # Ours: replicas behind a URL and the hosted API have keys, spans have where they go.
        processes.start(command, "gateway", self.state, digest=digest, port=settings.port, is_ours=True)
        self.gateway, self.gateway_seen_s = None, now_s
        self.gateway_failures, self.gateway_not_before_s = reconcile.next_failure(
            self.gateway_failures, now_s - self.gateway_not_before_s, now_s
        )
        self.processes.changed()
        self._noted.started()

    def _end_gateway(self, trouble: str, now_s: float) -> None:
        assert self.settings is not None
        if trouble:
            self._noted.died(trouble, self.gateway, now_s)
        else:
            self._noted.restarts(self.state / CONFIG, self.settings, self.state, now_s)
        self._ending.add("gateway")
        self.gateway = None
        self._spawn(self._stopped("gateway", processes.GRACE_S, at_once=bool(trouble)))

    # --- the gateway ---

    async def tell(self, event: dict[str, Any]) -> None:
        """An event for the gate. A gateway that does not take it is told by what the next look finds."""
        await self.admin.tell([event])
        await self._ask_gateway()

    async def _offer(self) -> None:
        """A new version, once to each gateway: one that was started anew knows nothing of its trial."""
        offered, incarnation = self.store.kept(OFFERED), (self.gateway or {}).get("incarnation", "")
        told = f"{offered} {incarnation}"
        if not offered or not incarnation or told == self.store.kept(TRIED) or self.store.kept(BRING_BACK):
            return
        replicas = (self.gateway or {})["replicas"].values()
        if any(each["healthy"] for each in replicas):  # so that there is something to compare it with
            self.store.keep(TRIED, told)
            self.store.note("gateway", f"release {short(offered)} is offered to the gate")
            await self.tell({"type": "ReleaseOffered", "version": offered})

    async def _bring_back(self) -> None:
        if self.gateway is not None:
            back = bring_back(self.store, self.gateway.get("releases", ()))
            for told in (*back, *calibrated(self.store, self.settings, self.gateway)):
                await self.tell(told)

    async def _announce(self, name: str) -> None:
        row, replica, settings = self.rows.get(name), self.watched.get(name), self.settings
        if row is None or replica is None or settings is None:
            return
        address = self._address(settings, replica, row)
        await self.tell(added(address, row.zone, replica.version))

    def _address(self, settings: ServiceSettings, replica: Watched, row: ReplicaRow) -> GatewayReplica:
        at, limit = (replica.host, replica.port), settings.limit_of(row.pool)
        return address_of(replica.replica_id, replica.engine, *at, limit, row.pool, row.model)

    async def _poll(self) -> None:
        while True:
            await self._ask_gateway()
            with suppress(sqlite3.Error):  # it is offered, and noted, again
                note_unasked(self.store, self.gateway or {})
                await self._bring_back()
                await self._offer()
            await asyncio.sleep(POLL_S)

    async def _ask_gateway(self) -> None:
        found = await self.admin.get("/state")
        if found is None:
            if time.monotonic() - self.gateway_seen_s > GATEWAY_HANG_S:
                self.gateway = None
            return
        self.gateway, self.gateway_seen_s = found, time.monotonic()
        is_ending = "gateway" in self._ending
        self._noted.answers(found.get("bottleneck"), self.gateway_seen_s, is_ending=is_ending)
        for replica in self.watched.values():
            self._update(replica)
        self._kick.set() if self._is_behind() else None

    def _is_behind(self) -> bool:
        """Whether a replica that answers is not sent requests: as after a start of the gateway."""
        return any(each.answers and not self._in_gateway(name) for name, each in self.watched.items())

    def _update(self, replica: Watched) -> None:
        there = (self.gateway or {}).get("replicas", {}).get(replica.replica_id)
        if there is None or there["port"] != replica.port:
            replica.in_flight_count, replica.in_gateway = 0, False
            return
        replica.in_flight_count, replica.in_gateway = there["in_flight"], not there["draining"]
        if there["heard_ago_s"] is not None:
            replica.heard_s = time.monotonic() - there["heard_ago_s"]

    async def _relay(self) -> None:
        """Every slow effect once: what it changes in the store and how far was read are written together."""
        while True:
            incarnation, _, number = self.store.kept(READ).partition(" ")
            after = int(number or 0) if incarnation == (self.gateway or {}).get("incarnation") else 0
            path = f"/effects?after={after}&wait_s={RELAY_WAIT_S}"
            found = await self.admin.get(path, RELAY_WAIT_S + 2.0)
            if found is None or self.settings is None:
                await asyncio.sleep(POLL_S)
                continue
            if found["incarnation"] != incarnation and after:
                continue  # another gateway: its numbers begin anew
            try:
                for number, effect in found["effects"]:
                    carry_out(self.store, effect, self.settings, f"{found['incarnation']} {number}")
                    self._kick.set()
            except sqlite3.Error as error:  # what is not written is asked for again
                processes.say(f"the store refuses: {error}")
                await asyncio.sleep(POLL_S)

    async def _report(self) -> None:
        """What engines say of themselves, when it is news to the gate."""
        while True:
            await asyncio.sleep(REPORT_S)
            if self.gateway is None or self.settings is None:
                continue
            there, now_s, scaling = self.gateway["replicas"], time.monotonic(), self.settings.gate.scaling
            reports = [
                report_of(replica, there[name], now_s)
                for name, replica in self.watched.items()
                if replica.answers and name in there
            ]
            self.reports.keep(self.watched)
            fresh_s = None if scaling is None else scaling.report_s_max
            told = list(self.reports.news(reports, self.gateway["incarnation"], fresh_s))
            if told and not await self.admin.tell(told):
                self.reports.keep(())

    def _tried(self) -> tuple[Watched | None, Watched | None, str]:
        """A replica of the release under trial, one of what runs beside it, and the file of questions."""
        path = self.settings.questions if self.settings is not None else ""
        with suppress(sqlite3.Error):
            offered = self.store.kept(OFFERED)
            ready = [each for name, each in self.watched.items() if each.answers and self._in_gateway(name)]
            new = next((each for each in ready if each.version == offered), None)
            own = (each for each in ready if each.version != offered and not self.rows[each.replica_id].model)
            return new if path else None, next(own, None), path
        return None, None, ""

    async def _beat(self) -> None:
        while True:
            with suppress(OSError):
                watchdog.beat(self.state, watchdog.CONTROLLER)
            await asyncio.sleep(watchdog.BEAT_S)

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            processes.say(f"a task of the controller failed: {error!r}")
            raise SystemExit(1) from error  # crash-only: the watchdog starts one that knows nothing of it

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.engines.close()
        await self.admin.close()


def run_controller(state: Path) -> None:
    """Until the state is to end. One per state: a second one ends at once."""
    processes.make_private(state / "controller")
    # Not opened to be written: where the disk is read-only the service is looked after as well.
    lock = os.open(state / "controller" / "lock", os.O_RDONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    asyncio.run(_serve(state))


async def _serve(state: Path) -> None:
    controller = Controller(state, Store(state))
    try:
        await controller.run()
    finally:
        await controller.close()


def main() -> None:
    """The command line of the process."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    run_controller(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
