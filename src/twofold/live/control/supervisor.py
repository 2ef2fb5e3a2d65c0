"""Brings a service up: says what is wanted, sees that a controller is there, and waits until it serves.

It starts neither engines nor gateway: that is the controller's work, before and after this returns.
"""

import http.client
import secrets
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.core.data import to_json
from twofold.core.errors import FileError, RunError
from twofold.live import processes, watchdog
from twofold.live.control.admin_client import gateway_state
from twofold.live.control.engines import START_TIMEOUT_S, engine_command
from twofold.live.control.service import ServiceSettings, gateway_digest, replica_digest
from twofold.live.control.store import OFFERED, ReplicaRow, Store
from twofold.live.gateway.gateway_config import HEALTH_PATH
from twofold.live.server_urls import trust

BRING_UP_S = START_TIMEOUT_S + 60.0
FAILURES_MAX = 2  # of a replica that never served, until `up` gives up; a port may be lost to another once
LOOK_S = 0.1
TIER_START_S = 60.0  # until a server of a CPU tier accepts connections


@dataclass(frozen=True, slots=True)
class Service:
    """A service that answers. `cold_start_s` is None when nothing had to be started."""

    replica_count: int
    cold_start_s: float | None


def need_gateway_port(port: int, state: Path, host: str = "127.0.0.1") -> None:
    """Raise PortError when a program other than this state's own gateway holds `port`."""
    if not any(child.port == port for child in processes.running(state, "gateway")):
        processes.need_free_port(port, host)


def bring_up(settings: ServiceSettings, state: Path, tell: Callable[[str], None] = lambda _: None) -> Service:
    """Want this service, and wait until it serves; what was told the same runs on.

    Raises PortError when another program holds the port, FileError when the state cannot be written,
    RunError when a replica or gateway does not come.
    """
    need_gateway_port(settings.port, state, settings.reach.host)
    for each in settings.tier_processes:
        if not processes.running(state, each.role, exact=True):
            processes.need_free_port(each.port)
    if not settings.engine.url:
        engine_command(settings.engine)  # raises for what is not installed, before anything is started
    _hand_on_key(settings, state)
    there = {child.role for child in processes.running(state)}
    try:
        _want(settings, state)
        (state / watchdog.ENDING).unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        why = (error.strerror or "") if isinstance(error, OSError) else str(error)
        hint = "make room, or let this user write there, then ask again"
        raise FileError(f"`{state}` cannot be written: {why.lower()}", hint=hint) from error
    if watchdog.CONTROLLER not in there:
        watchdog.start_manager(state, watchdog.CONTROLLER)
    if "watchdog" not in there:
        watchdog.start_watchdog(state)
    names = _names(settings)
    colds = _until_it_serves(settings, state, tell) if names else _until_it_answers(settings, state)
    _until_tiers_answer(settings, state)
    new = [] if settings.engine.url else [name for name in names if name not in there]
    started = [colds[name] for name in new if name in colds]
    return Service(settings.replica_count, max(started, default=None))


def _until_tiers_answer(settings: ServiceSettings, state: Path) -> None:
    """Wait until every server of a tier that is ours accepts connections."""
    deadline_s = time.monotonic() + TIER_START_S
    for each in settings.tier_processes:
        while not processes.is_open(each.port):
            if time.monotonic() > deadline_s:
                raise RunError(
                    f"{each.role} does not answer at port {each.port}\n{_last_lines(state, each.role)}",
                    hint=f"its log is {processes.log_path(state, each.role)}",
                )
            time.sleep(LOOK_S)


def _hand_on_key(settings: ServiceSettings, state: Path) -> None:
    """End a gateway that lacks the hosted API's key which we have, and whoever would start it: they have
    their environment from an earlier call. Engines run on."""
    lacks_it = ((gateway_state(state) or {}).get("overflow") or {}).get("why")
    if not lacks_it or settings.overflow is None or settings.overflow.unasked:
        return
    managers = ("watchdog", watchdog.CONTROLLER)
    processes.stop([each for each in processes.running(state) if each.role in managers], at_once=True)
    with suppress(OSError):  # the next one is not to say that this one died
        (state / watchdog.CONTROLLER / watchdog.BEAT).unlink()
    processes.stop_all(state, "gateway", exact=True)


def bring_down(state: Path, grace_s: float = processes.GRACE_S) -> int:
    """End everything of a state, who would start it again first; returns how many processes there were."""
    if state.is_dir():
        with suppress(OSError):  # where the disk takes no mark, who would start what ends is ended first
            (state / watchdog.ENDING).touch(mode=0o600)
    managers = ("watchdog", *watchdog.MANAGERS)
    count = sum(processes.stop_all(state, role, grace_s, exact=True, at_once=True) for role in managers)
    return count + processes.stop_all(state, grace_s=grace_s)


def _names(settings: ServiceSettings) -> list[str]:
    return [f"replica-{number}" for number in range(settings.replica_count)]


def _want(settings: ServiceSettings, state: Path) -> None:
    """Write down what is wanted: the controller reads it at its next look."""
    version, zones = settings.version, settings.zones
    rows = [
        ReplicaRow(name, version, settings.pool_of(number), zones[number % len(zones)])
        for number, name in enumerate(_names(settings))
    ]
    store = Store(state)
    try:
        if not store.kept("admin_key"):
            store.keep("admin_key", secrets.token_urlsafe(24))
        there = {each.version for each in store.replicas() if not each.leaving}
        if settings.gate.canary is None or settings.engine.url or not there:  # a server's is not ours to try
            store.keep("version", version)
            with store.whole():
                store.want(to_json(settings), version, to_json(settings.engine), rows)
                _want_smaller(settings, store)
            return
        # What runs goes on; a new version is offered to the gate, which tries it on a share of the requests.
        store.keep("service", to_json(settings))
        _want_smaller(settings, store)
        store.add_version(version, to_json(settings.engine))
        if version not in (store.kept("version"), store.kept(OFFERED)):
            store.offer(version)
    finally:
        store.close()


def _want_smaller(settings: ServiceSettings, store: Store) -> None:
    """What answers in need stands beside the rest, spread over the zones; no release replaces it."""
    told, zones = settings.smaller, settings.zones
    if told is None:
        store.want_smaller({}, [])
        return
    rows = [
        ReplicaRow(f"smaller-{n}", told.version, zone=zones[n % len(zones)], model=told.name)
        for n in range(told.replica_count)
    ]
    store.want_smaller({told.version: to_json(told.engine)}, rows)


def _until_it_serves(settings: ServiceSettings, state: Path, tell: Callable[[str], None]) -> dict[str, float]:
    """Wait until every replica that is wanted is sent requests; how long each took to start."""
    deadline_s, engines = time.monotonic() + BRING_UP_S, [settings.engine]
    wanted, told = set(_names(settings)), -1
    if settings.smaller is not None:
        engines.append(settings.smaller.engine)
        wanted |= {f"smaller-{n}" for n in range(settings.smaller.replica_count)}
    digests = set(map(replica_digest, engines))
    is_tried = settings.gate.canary is not None  # a release replaces replicas by its own pace
    store = Store(state)
    try:
        while time.monotonic() < deadline_s:
            is_told = _is_told(settings, state)  # before it is asked: an old one answers until it has ended
            found = gateway_state(state)
            ready = _ready(found, state, settings, digests)
            if is_tried:
                wanted = {row.replica_id for row in store.replicas() if not row.leaving}
                ready = {name for name, each in (found or {}).get("replicas", {}).items() if each["healthy"]}
            ready &= wanted
            if wanted and len(ready) == len(wanted) and is_told:
                colds = {name: store.kept(f"cold_start_s {name}") for name in wanted}
                return {name: float(text) for name, text in colds.items() if text}
            if len(ready) != told:
                told = len(ready)
                tell(f"{told} of {len(wanted)} replicas ready")
            _refuse_failures(store, state)
            time.sleep(LOOK_S)
    finally:
        store.close()
    raise RunError(
        f"the service did not come up within {BRING_UP_S:.0f} s\n{_last_lines(state, 'controller')}",
        hint=f"its logs are in {state / 'logs'}",
    )


def _ready(
    found: dict[str, Any] | None, state: Path, settings: ServiceSettings, digests: set[str]
) -> set[str]:
    """Replicas that the gateway sends requests to and whose processes were told what is wanted now."""
    there = (found or {}).get("replicas", {})
    healthy = {name for name, each in there.items() if each["healthy"] and not each["draining"]}
    if settings.engine.url or not healthy:
        return healthy
    return {child.role for child in processes.running(state) if child.digest in digests} & healthy


def _is_told(settings: ServiceSettings, state: Path) -> bool:
    wanted = gateway_digest(settings, state)
    return any(child.digest == wanted for child in processes.running(state, "gateway", exact=True))


def _until_it_answers(settings: ServiceSettings, state: Path) -> dict[str, float]:
    """Wait for the gateway of a service without replicas of its own."""
    deadline_s = time.monotonic() + BRING_UP_S
    tls = trust(settings.reach.certificate, own=True)  # not asked where none is spoken
    opened = urllib.request.HTTPSHandler(context=tls)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), opened)
    while time.monotonic() < deadline_s:
        try:
            direct.open(f"{settings.url}{HEALTH_PATH}", timeout=1.0).close()
        except urllib.error.HTTPError as refusal:  # that no replica is healthy is an answer as well
            refusal.close()
        except (OSError, http.client.HTTPException):
            time.sleep(LOOK_S)
            continue
        if _is_told(settings, state):
            return {}
        time.sleep(LOOK_S)
    raise RunError(f"the gateway did not answer\n{_last_lines(state, 'gateway')}", hint="see its log")


def _refuse_failures(store: Store, state: Path) -> None:
    """Raise RunError for a replica that never served and fails again, and for a gateway that cannot start."""
    for row in store.replicas():
        if row.failed_count >= FAILURES_MAX and not row.has_served:
            what = next((each.what for each in store.happened(50)[::-1] if each.role == row.replica_id), "")
            raise RunError(
                f"{row.replica_id} does not start: {what}\n{_last_lines(state, row.replica_id)}",
                hint=f"its log is {processes.log_path(state, row.replica_id)}",
            )


def _last_lines(state: Path, role: str) -> str:
    return processes.last_lines(processes.log_path(state, role))
