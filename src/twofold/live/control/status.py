"""How a service is: gathered from its store, its gateway and the processes. It starts and stops nothing."""

import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.core.data import from_data
from twofold.core.errors import FileError
from twofold.live import watchdog
from twofold.live.control.admin_client import gateway_state
from twofold.live.control.service import ServiceSettings
from twofold.live.control.store import FILE, Happened, ReplicaRow, Store
from twofold.live.disk import disk_trouble
from twofold.live.gateway.keys import keys_beside, read_keys
from twofold.live.processes import running


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica. `state` is ready, starting, draining, sick (it is sent nothing) or down."""

    replica_id: str
    state: str
    version: str
    zone: str
    pool: str  # "" where there is one of all
    model: str  # the smaller one that it has; "": the service's own
    process_id: int | None
    in_flight_count: int
    in_flight_limit: int
    heard_ago_s: float | None  # since it last wrote a token; None: it never did
    failed_count: int  # deaths in a row


@dataclass(frozen=True, slots=True)
class OverflowStatus:
    """The hosted API beside a service, since the gateway's start."""

    healthy: bool
    sent_count: int
    usd: float
    unasked: str = ""  # why the service runs without it


@dataclass(frozen=True, slots=True)
class TierStatus:
    """A CPU tier before a service. Figures are of the last minute; None: nothing passed it."""

    name: str
    working_count: int
    place_count: int
    waiting_count: int
    s_p95: float | None  # waiting and work
    slo_s: float | None
    is_bottleneck: bool  # it holds requests up more than other tiers and the replicas do


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One service, now. Figures are of the last minute; None: nothing was seen."""

    name: str
    url: str
    controlled: bool  # a controller is alive, so that what dies comes back
    gateway_answers: bool
    replicas: tuple[ReplicaStatus, ...]
    requests_per_s: float
    refused_fraction: float  # by the gate: full, too late, over a limit …
    failed_fraction: float  # taken by the gate, and then answered by nobody
    ttft_s_p95: float | None
    ttft_slo_s: float | None
    in_flight_count: int
    held_count: int
    version: str
    happened: tuple[Happened, ...]
    overflow: OverflowStatus | None = None  # None: the spec names no hosted API
    disk: str = ""  # why its state's disk takes no line: read-only, full …; "": it takes them
    lost_lines: int = 0  # of the gateway's logs, that no disk took
    tiers: tuple[TierStatus, ...] = ()
    keys: str = ""  # why the file of keys opens for nobody: lost, broken; "": it does, or there never was one

    @property
    def wanted_count(self) -> int:
        """Replicas that are to serve."""
        return sum(each.state != "draining" for each in self.replicas)

    @property
    def ready_count(self) -> int:
        """Replicas that serve."""
        return sum(each.state == "ready" for each in self.replicas)

    @property
    def is_well(self) -> bool:
        """All that is to serve does, and somebody looks after it."""
        is_there = self.controlled and self.gateway_answers and not self.keys
        return is_there and 0 < self.wanted_count == self.ready_count


def service_status(state: Path, happened_count: int) -> ServiceStatus:
    """How the service of a state folder is. Raises FileError when none was ever brought up there."""
    nothing = FileError(f"nothing serves from `{state}`", hint="bring it up with `twofold up SPEC`")
    if not (state / FILE).exists():
        raise nothing
    try:
        store = Store(state)
        try:
            text, rows = store.kept("service"), store.replicas()
            happened, version = tuple(store.happened(happened_count)), store.kept("version")
        finally:
            store.close()
    except (sqlite3.Error, OSError) as error:
        refused = disk_trouble(state)
        why = f"its disk is {refused}" if refused else str(error)
        hint = "have its disk take lines again" if refused else "call `twofold up` again"
        raise FileError(f"`{state / FILE}` cannot be read: {why}", hint=hint) from error
    if not text:
        raise nothing
    settings = from_data(ServiceSettings, json.loads(text))
    found = gateway_state(state)
    recent, gateway = (found or {}).get("recent", {}), found or {}
    first = {child.role: child.process_id for child in sorted(running(state), key=lambda c: -c.process_id)}
    return ServiceStatus(
        name=settings.name or version,
        url=settings.url,
        controlled=watchdog.CONTROLLER in first and _is_heard(state),
        gateway_answers=found is not None,
        replicas=tuple(_replica(row, gateway, first, settings) for row in rows),
        requests_per_s=recent.get("requests_per_s", 0.0),
        refused_fraction=recent.get("refused_fraction", 0.0),
        failed_fraction=recent.get("failed_fraction", 0.0),
        ttft_s_p95=recent.get("ttft_s_p95"),
        ttft_slo_s=gateway.get("ttft_slo_s"),
        in_flight_count=gateway.get("in_flight", 0),
        held_count=gateway.get("held", 0),
        version=version,
        happened=happened,
        overflow=_overflow(gateway.get("overflow")),
        disk=disk_trouble(state),
        lost_lines=gateway.get("log_lost_lines", 0),
        tiers=tuple(_tiers(gateway)),
        keys=_keys_trouble(state),
    )


def _keys_trouble(state: Path) -> str:
    try:
        read_keys(keys_beside(state))
    except FileError as error:
        return error.message
    return ""


def _is_heard(state: Path) -> bool:
    """Whether the controller beats, or could not."""
    silent_s = watchdog.silent_for_s(state, watchdog.CONTROLLER)
    return silent_s < watchdog.SILENT_S or not watchdog.may_beat(state, watchdog.CONTROLLER)


def _tiers(gateway: dict[str, Any]) -> Iterator[TierStatus]:
    worst = gateway.get("bottleneck")
    for name, told in gateway.get("tiers", {}).items():
        places = told["at_work"], told["places"], told["waiting"]
        yield TierStatus(name, *places, told["s_p95"], told["slo_s"], name == worst)


def _overflow(told: dict[str, Any] | None) -> OverflowStatus | None:
    if told is None:
        return None
    return OverflowStatus(told["healthy"], told["sent"], told["usd"], told.get("why", ""))


def _replica(
    row: ReplicaRow, gateway: dict[str, Any], first: dict[str, int], settings: ServiceSettings
) -> ReplicaStatus:
    there = gateway.get("replicas", {}).get(row.replica_id)
    process_id = first.get(row.replica_id)
    if row.leaving or (there is not None and there["draining"]):
        state = "draining"
    elif there is not None:
        state = "ready" if there["healthy"] else "sick"
    else:
        state = "starting" if process_id is not None else "down"
    return ReplicaStatus(
        row.replica_id,
        state,
        there["version"] if there else row.version,
        row.zone,
        row.pool,
        row.model,
        process_id,
        there["in_flight"] if there else 0,
        there["in_flight_limit"] if there else settings.limit_of(row.pool),
        there["heard_ago_s"] if there else None,
        row.failed_count,
    )


def at_clock(happened: Happened) -> str:
    """When it happened, on this machine's clock; with the day when that was another one."""
    at, today = time.localtime(happened.at_s), time.localtime()
    return time.strftime("%H:%M:%S" if at[:3] == today[:3] else "%m-%d %H:%M:%S", at)
