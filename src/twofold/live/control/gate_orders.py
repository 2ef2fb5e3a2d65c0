"""What the gate wants done beyond requests, as changes of what is wanted: `reconcile` carries them out.

What an order changes is written together with how far was read: a controller that is killed in between has
done nothing of it, and the next one does it.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from twofold.core.data import to_data
from twofold.core.display import format_seconds
from twofold.live.control.service import ServiceSettings
from twofold.live.control.store import BRING_BACK, ReplicaRow, Store

TO_RECORD = "to record"  # how trials ended, of which the registry has not heard
READ = "effects"  # the last one that was carried out: of which gateway, and its number


def carry_out(store: Store, effect: dict[str, Any], settings: ServiceSettings, read: str) -> None:
    """Change what is wanted as a slow effect says, note it, and keep that it was `read`: all or nothing.

    `read` names the effect among those of all gateways that there were.
    """
    with store.whole():
        ORDERS[effect["type"]](store, effect | {"decision": read}, settings)
        store.keep(READ, read)


def _start(store: Store, effect: dict[str, Any], settings: ServiceSettings) -> None:
    version, name = effect["version"] or settings.version, effect["replica_id"]
    is_back = version in store.called_off() and not store.kept(BRING_BACK)  # the gate may not know it
    if is_back or not store.version(version):
        # Or it is a name that nobody registered, as a scenario's "base": what runs by now is meant.
        version = store.kept("version") or settings.version
    store.put(ReplicaRow(name, version, effect["pool"], effect["zone"], effect["model"], by_gate=True))
    store.note(name, "the gate wants one more replica")


def _stop(store: Store, effect: dict[str, Any], _: ServiceSettings) -> None:
    name = effect["replica_id"]
    for row in store.replicas():
        if row.replica_id == name and not row.leaving:
            store.put(replace(row, leaving=True))
            store.note(name, "the gate wants it no more: it drains")


def _promoted(store: Store, effect: dict[str, Any], settings: ServiceSettings) -> None:
    """It runs from now on; one that was called off before the gate knew does not, which is said."""
    version = effect["version"]
    is_late = version in store.called_off()
    if not is_late:
        store.keep("version", version)
    store.no_longer_offered(version)
    _to_record(store, effect, settings, "promoted")
    after = f", after it was called off: {short(store.kept('version'))} is to run" if is_late else ""
    store.note("gateway", f"release {short(version)} passed its trial{_because(effect)}{after}")


def _rolled_back(store: Store, effect: dict[str, Any], settings: ServiceSettings) -> None:
    store.no_longer_offered(effect["version"])
    _to_record(store, effect, settings, "rolled-back")
    store.note("gateway", f"release {short(effect['version'])} rolled back{_because(effect)}")


def _to_record(store: Store, effect: dict[str, Any], settings: ServiceSettings, outcome: str) -> None:
    """What the registry is to be told of a trial, until it was."""
    if settings.registry:
        digest, why = effect["version"].replace("-", ":", 1), effect.get("reason", "")
        told = [digest, outcome, why, effect["decision"]]
        store.keep(TO_RECORD, json.dumps([*json.loads(store.kept(TO_RECORD) or "[]"), told]))


def bring_back(store: Store, releases: Collection[str]) -> list[dict[str, Any]]:
    """Let every replica run what the service is to be brought back to; events for the gate that follow.

    While it tries releases, or takes their replicas away, it counts replicas and starts those that it misses:
    so it is told first that they are called off, and replicas are replaced once it is done.
    """
    version = store.kept(BRING_BACK)
    if not version:
        return []
    if releases:
        return [{"type": "ReleaseWithdrawn", "version": each} for each in sorted(releases)]
    with store.whole():
        for row in store.replicas():
            if not row.leaving and not row.model and row.version != version:
                store.put(replace(row, version=version, failed_count=0, not_before_s=0.0))
        store.keep(BRING_BACK, "")
    return []


def calibrated(
    store: Store, settings: ServiceSettings | None, gateway: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """An event for a gate that believes other than the service was calibrated to since it began."""
    if settings is None or gateway.get("beliefs") in (None, wanted := to_data(settings.beliefs)):
        return []
    if store.kept("beliefs") != (text := json.dumps(wanted)):
        said = f"{format_seconds(settings.output_token_s)} per token of an answer"
        with store.whole():
            store.note("gateway", f"it is told to believe what was calibrated: {said}")
            store.keep("beliefs", text)
    return [{"type": "BeliefsChanged", **wanted, "gate_digest": settings.gate_digest}]


def note_unasked(store: Store, gateway: Mapping[str, Any]) -> None:
    """Once of each gateway that runs without the hosted API that is named."""
    told, why = gateway.get("incarnation", ""), gateway.get("overflow", {}).get("why", "")
    if why and store.kept("without overflow") != told:
        store.keep("without overflow", told)
        store.note("gateway", f"the hosted API is not asked: {why}")


def short(version: str) -> str:
    """A version as screens name it."""
    return version.removeprefix("sha256-").removeprefix("sha256:")[:12]


def _because(effect: dict[str, Any]) -> str:
    return f": {effect['reason']}" if effect.get("reason") else ""


def _noted(words: str) -> Callable[[Store, dict[str, Any], ServiceSettings], None]:
    def told(store: Store, effect: dict[str, Any], _: ServiceSettings) -> None:
        store.note(effect.get("replica_id", "gateway"), words.format(**effect))

    return told


def _nothing(_store: Store, _effect: dict[str, Any], _settings: ServiceSettings) -> None:
    """What it says changes nothing that is wanted."""


ORDERS: Mapping[str, Callable[[Store, dict[str, Any], ServiceSettings], None]] = {
    "StartReplica": _start,
    "StopReplica": _stop,
    "PromoteRelease": _promoted,
    "RollBackRelease": _rolled_back,
    "StageRelease": _noted("release {version} gets {share:.0%} of the requests"),
    "FailOverZone": _noted("zone {zone} is avoided"),
    "RestoreZone": _noted("zone {zone} is used again"),
    "Degrade": _noted("degradation level {level}"),
    "EjectReplica": _noted("slower or failing more often than the others: it is sent nothing for a while"),
    "ReadmitReplica": _noted("it is tried again"),
    "OpenCircuit": _nothing,  # its death is noted by whoever finds out why
    "CloseCircuit": _nothing,
}
