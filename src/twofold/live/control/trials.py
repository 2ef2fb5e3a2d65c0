"""What a proof does to a service that runs: kills a replica, offers a release, waits until all is whole.

It also starts an engine that stands alone beside the service, to be asked directly, and one replica more that
goes the way of every replica: wanted in the store, started by the controller, announced to the gateway, then
drained and ended. A call that is killed leaves a row that the next `up` retires.
"""

import asyncio
import fcntl
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twofold.core.data import from_data, to_json
from twofold.core.errors import RunError
from twofold.live import processes
from twofold.live.control.admin_client import TIMEOUT_S, admin_address, bearer, gateway_state
from twofold.live.control.engines import (
    START_TIMEOUT_S,
    EngineSettings,
    engine_command,
    engine_environment,
    engine_model,
    engine_of,
)
from twofold.live.control.gate_orders import short
from twofold.live.control.service import ServiceSettings
from twofold.live.control.store import BRING_BACK, FILE, OFFERED, ReplicaRow, Store
from twofold.live.gateway.gateway_config import GatewayAdmin

LOOK_S = 0.1
ALONE = "train-release"  # a role that the controller lets be, and that `up` and `down` end
WHOLE_S = 240.0  # within which a service is to be whole again
GONE_S = 60.0  # within which one that is to leave has left
ROLE = "replica-"


def serving_replicas(state: Path, version: str) -> list[str]:
    """The replicas of a version that are sent requests."""
    there = (gateway_state(state) or {}).get("replicas", {})
    return sorted(
        name
        for name, each in there.items()
        if each["healthy"] and not each["draining"] and each["version"] == version
    )


def until_whole(state: Path, version: str, replica_count: int) -> list[str]:
    """Wait until just so many replicas serve, all of this version, and nothing is under way; which they are.

    Raises RunError when that takes too long.
    """
    names: list[str] = []

    def is_whole() -> bool:
        found, names[:] = gateway_state(state) or {}, serving_replicas(state, version)
        own = [each for each in found.get("replicas", {}).values() if not each["model"]]
        return len(names) == replica_count == len(own) and not found.get("in_flight")

    _until(is_whole)
    return names


def until_all_run(state: Path, version: str) -> None:
    """Wait until every replica that is wanted serves, all of this version, whatever clients ask meanwhile.

    Raises RunError when that takes too long.
    """
    store = Store(state)

    def do_all_run() -> bool:
        wanted = {row.replica_id for row in store.replicas() if not row.leaving and not row.model}
        return bool(wanted) and wanted == set(serving_replicas(state, version))

    try:
        _until(do_all_run)
    finally:
        store.close()


def _until(happened: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WHOLE_S
    while time.monotonic() < deadline_s:
        if happened():
            return
        time.sleep(LOOK_S)
    what = f"the service was not whole again within {WHOLE_S:.0f} s"
    raise RunError(what, hint="`twofold status` and `twofold logs` say what keeps it")


def alone_memory_bytes(state: Path) -> float:
    """What the engine that stands alone holds of the machine's memory, all its processes together."""
    import psutil

    return float(
        sum(psutil.Process(each.process_id).memory_info().rss for each in processes.running(state, ALONE))
    )


def is_decided(state: Path, version: str) -> bool:
    """Whether no trial of this version is to come or under way."""
    store = Store(state)
    try:
        return store.kept(OFFERED) != version
    finally:
        store.close()


def serving_version(state: Path) -> str:
    """What a service that runs is wanted to run; "" where none does."""
    if not processes.running(state, "gateway", exact=True):
        return ""
    store = Store(state)
    try:
        return store.kept("version")
    finally:
        store.close()


def wanted_engine(state: Path) -> EngineSettings:
    """What a replica of the version that is wanted is told."""
    store = Store(state)
    try:
        return from_data(EngineSettings, json.loads(store.version(store.kept("version"))))
    finally:
        store.close()


def kill_replica(state: Path, replica_id: str) -> float:
    """End all processes of a replica at once, as kill -9 does; when, on the machine's monotonic clock."""
    children = processes.running(state, replica_id, exact=True)
    at_s = time.monotonic()
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child.process_id, signal.SIGKILL)
    return at_s


def wanted_service(state: Path) -> ServiceSettings | None:
    """What is wanted of the service of a state folder; None: there is none."""
    if not (state / FILE).exists():
        return None
    store = Store(state)
    try:
        text = store.kept("service")
        return from_data(ServiceSettings, json.loads(text)) if text else None
    finally:
        store.close()


def bring_back(store: Store, version: str, engine: EngineSettings) -> None:
    """Let every replica run this version again, one after another and without a trial; what is being tried
    is called off, and does not run if it passes before the gate has heard that."""
    with store.whole():
        store.call_off()
        store.add_version(version, to_json(engine))
        store.keep("version", version)
        store.keep(BRING_BACK, version)
        store.note("controller", f"back to {short(version)}")


def offer_release(state: Path, version: str, engine: EngineSettings, questions: str | None = None) -> float:
    """`offer` to the service of a state; when, on the monotonic clock."""
    store = Store(state)
    try:
        offer(store, version, engine, questions)
        return time.monotonic()
    finally:
        store.close()


def offer(store: Store, version: str, engine: EngineSettings, questions: str | None = None) -> None:
    """Offer a version to the gate, also one that it has tried before.

    `questions`: the file that it is judged by on the side, "" by none; None: as it was.
    """
    with store.whole():
        store.add_version(version, to_json(engine))
        if questions is not None:
            service = from_data(ServiceSettings, json.loads(store.kept("service")))
            store.keep("service", to_json(replace(service, questions=questions)))
        store.offer(version)


def withdraw_release(state: Path, version: str) -> None:
    """Call a trial off that is not decided; nothing happens to one that is."""
    store = Store(state)
    try:
        store.no_longer_offered(version)
    finally:
        store.close()
    address = admin_address(state)
    if address is None:
        return
    data: dict[str, Any] = {"events": [{"type": "ReleaseWithdrawn", "version": version}]}
    headers = {**address.headers, "content-type": "application/json"}
    asked = urllib.request.Request(f"{address.url}/events", json.dumps(data).encode(), headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with suppress(urllib.error.URLError, OSError):
        direct.open(asked, timeout=TIMEOUT_S).close()


def address_of(state: Path, replica_id: str, engine: EngineSettings) -> tuple[str, str]:
    """A replica itself, past the gateway: its address, and what it calls its model.

    Raises RunError for one that the gateway does not know.
    """
    replica = (gateway_state(state) or {}).get("replicas", {}).get(replica_id)
    if replica is None:
        raise RunError(f"{replica_id} is gone", hint="`twofold status` says why")
    return f"http://{replica['host']}:{replica['port']}", engine_model(engine)


def own_door(state: Path) -> tuple[str, dict[str, str], str]:
    """The service, as whoever runs it asks: its address, headers in place of a tenant's key, and the file of
    its certificate, "" where it speaks no TLS. Raises RunError where there is none."""
    settings, address = wanted_service(state), admin_address(state)
    if settings is None or address is None:
        raise RunError(f"nothing serves in `{state}`", hint="`twofold status` says how the service is")
    return settings.url, bearer(GatewayAdmin(0, address.key).own_key), settings.reach.certificate


def want_beliefs(state: Path, seen: ServiceSettings, told: ServiceSettings) -> bool:
    """Write down what the gate is to believe; the controller tells it. False where what is wanted of the
    service is no longer what was seen: nothing is written then."""
    store = Store(state)
    try:
        with store.whole():
            is_seen = store.kept("service") == to_json(seen)
            if is_seen:
                store.keep("service", to_json(told))
        return is_seen
    finally:
        store.close()


@contextmanager
def measuring(state: Path) -> Iterator[None]:
    """Wait until nobody else measures an engine beside the service, and let nobody else begin meanwhile."""
    processes.make_private(state / "controller")
    lock = os.open(state / "controller" / "measuring.lock", os.O_RDONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def engine_alone(state: Path, engine: EngineSettings) -> Iterator[tuple[str, str]]:
    """An engine beside the service that no gateway knows, until the end of the block: as `address_of`.

    Raises RunError when it does not answer.
    """
    port = processes.free_port()
    command = [*engine_command(engine), engine_of(engine.kind).port_option, str(port)]
    base = f"http://127.0.0.1:{port}"
    with measuring(state):
        try:
            processes.start(command, ALONE, state, port=port, environment=engine_environment(engine))
            if said := asyncio.run(_until_it_answers(base, engine)):
                where = f"see {state / 'logs'}/{ALONE}.log"
                raise RunError(f"the release does not start: {said}", hint=where)
            yield base, engine_model(engine)
        finally:
            processes.stop_all(state, ALONE, at_once=True)


async def _until_it_answers(base: str, engine: EngineSettings) -> str:
    from twofold.live.control.engine_checks import EngineClient, until_it_answers  # needs the extra

    client = EngineClient()
    try:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        return await until_it_answers(client, base, engine_of(engine.kind), engine_model(engine), deadline_s)
    finally:
        await client.close()


@dataclass(frozen=True, slots=True)
class StartSeen:
    """One replica's start. Moments are on the machine's monotonic clock."""

    asked_s: float  # when it was wanted
    serving_s: float  # when the gateway sent it requests
    start_s: float  # from the start of its process to its first answer
    memory_before_bytes: int  # of all replicas' processes
    memory_after_bytes: int  # with it, once it serves


def one_more(state: Path, cold_files: Iterable[Path] = ()) -> StartSeen | None:
    """Want one replica more until it serves, then let it go; None where it did not come in time.

    `cold_files` are put out of the file cache before, as far as no other process holds them.
    """
    store = Store(state)
    row = ReplicaRow("", "")
    try:
        there = store.replicas()
        names = {each.replica_id for each in there}
        free = next(f"{ROLE}{n}" for n in range(len(names) + 1) if f"{ROLE}{n}" not in names)
        zone = there[0].zone if there else ""
        row = ReplicaRow(free, store.kept("version"), zone=zone)
        forget_files(cold_files)
        store.keep(_kept(free), "")
        before, asked_s = replicas_bytes(state), time.monotonic()
        store.put(row)
        while time.monotonic() - asked_s < START_TIMEOUT_S:
            found = (gateway_state(state) or {}).get("replicas", {}).get(free)
            told = store.kept(_kept(free))
            if found is not None and found["healthy"] and told:
                after = replicas_bytes(state)
                return StartSeen(asked_s, time.monotonic(), float(told), before, after)
            time.sleep(LOOK_S)
        return None
    finally:
        if row.replica_id:
            _let_go(state, store, row)
        store.close()


def _let_go(state: Path, store: Store, row: ReplicaRow) -> None:
    """Until it is drained and forgotten; what takes longer, the controller goes on with."""
    deadline_s = time.monotonic() + GONE_S
    while time.monotonic() < deadline_s:
        own = [each for each in store.replicas() if each.replica_id == row.replica_id]
        if not own and not processes.running(state, row.replica_id, exact=True):
            return
        for each in own:
            if not each.leaving:
                store.put(replace(each, leaving=True))
        time.sleep(LOOK_S)


def _kept(replica_id: str) -> str:
    return f"cold_start_s {replica_id}"  # where the controller notes it


def replicas_bytes(state: Path) -> int:
    """Resident memory of all replicas' processes, shared pages counted with each."""
    import psutil

    total = 0
    for child in processes.running(state, ROLE):
        with suppress(psutil.Error):
            total += psutil.Process(child.process_id).memory_info().rss
    return total


def forget_files(files: Iterable[Path]) -> None:
    """Put what was read of these files out of the kernel's file cache; pages that are mapped stay."""
    for file in files:
        with suppress(OSError):
            opened = os.open(file, os.O_RDONLY)
            try:
                os.fsync(opened)
                os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(opened)
