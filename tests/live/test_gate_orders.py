"""What the gate's decisions change in what is wanted of a service, without a gate."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from twofold.live.control import trials
from twofold.live.control.engines import EngineSettings
from twofold.live.control.gate_orders import READ, TO_RECORD, bring_back, carry_out
from twofold.live.control.service import ServiceSettings
from twofold.live.control.store import ReplicaRow, Store

ENGINE = EngineSettings("/models/v0", "float32", 1, 256, 64)
SETTINGS = ServiceSettings(ENGINE, 2, 4, 8700, 0.001, 0.01, registry="/registry", registered="chat")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The store of a service that runs `v0`."""
    made = Store(tmp_path)
    made.keep("version", "v0")
    made.add_version("v0", "{}")
    return made


@pytest.mark.parametrize("decision", ["PromoteRelease", "RollBackRelease"])
def test_a_decision_ends_the_offer_of_its_own_version_and_of_no_other(
    decision: str, store: Store, tmp_path: Path
) -> None:
    for version in ("a", "b"):  # the second while the first is tried
        trials.offer_release(tmp_path, version, ENGINE)
    told = {"type": decision, "reason": "why"}
    carry_out(store, told | {"version": "a"}, SETTINGS, "gateway 7")
    assert store.kept("offered") == "b" and not trials.is_decided(tmp_path, "b")
    assert [told[0] for told in json.loads(store.kept(TO_RECORD))] == ["a"]
    carry_out(store, told | {"version": "b"}, SETTINGS, "gateway 8")
    assert store.kept("offered") == "" and trials.is_decided(tmp_path, "b")


def test_calling_a_release_off_leaves_the_offer_of_another(store: Store, tmp_path: Path) -> None:
    trials.offer_release(tmp_path, "b", ENGINE)
    trials.withdraw_release(tmp_path, "a")
    assert store.kept("offered") == "b"
    trials.withdraw_release(tmp_path, "b")
    assert store.kept("offered") == ""


def started(store: Store, version: str) -> str:
    """What a replica runs that the gate starts of this version."""
    asked = {"replica_id": "new", "pool": "", "zone": "", "model": "", "version": version}
    carry_out(store, {"type": "StartReplica", **asked}, SETTINGS, "gateway 1")
    [row] = [each for each in store.replicas() if each.replica_id == "new"]
    store.forget("new")
    return row.version


@pytest.mark.parametrize("is_told", [False, True])
def test_a_release_that_passes_while_the_service_is_brought_back_does_not_run_and_is_recorded(
    is_told: bool, store: Store, tmp_path: Path
) -> None:
    """In whichever order the two come; another one that is offered later is tried and runs."""
    store.put(ReplicaRow("replica-0", "v1"))
    store.put(ReplicaRow("release-1", "a"))
    store.put(ReplicaRow("replica-1", "v1", leaving=True))
    passed = {"type": "PromoteRelease", "version": "a"}
    trials.offer_release(tmp_path, "a", ENGINE)
    store.keep("offered to", "a gateway")
    if is_told:
        carry_out(store, passed, SETTINGS, "gateway 7")
        assert store.kept("version") == "a"
    trials.bring_back(store, "v0", ENGINE)
    if not is_told:
        carry_out(store, passed, SETTINGS, "gateway 7")
        assert "after it was called off: v0 is to run" in store.happened(1)[0].what
    assert (store.kept("version"), store.kept("offered")) == ("v0", "")
    assert [told[:2] for told in json.loads(store.kept(TO_RECORD))] == [["a", "promoted"]]

    # The gate rolls it out: its replicas come, and are replaced once the gate has ended that.
    assert started(store, "a") == "a"
    assert bring_back(store, ["a"]) == [{"type": "ReleaseWithdrawn", "version": "a"}]
    assert {each.version for each in store.replicas()} == {"v1", "a"}
    assert bring_back(store, []) == []
    assert {each.replica_id: each.version for each in store.replicas()} == {
        "replica-0": "v0", "release-1": "v0", "replica-1": "v1",
    }  # fmt: skip
    assert started(store, "a") == "v0"  # as a scaler asks for it
    store.put(ReplicaRow("replica-0", "b"))
    assert bring_back(store, []) == [] and store.replicas()[1].version == "b"  # it is over

    for version in ("b", "a"):  # the same one may be tried anew
        trials.offer_release(tmp_path, version, ENGINE)
        assert started(store, version) == version
        carry_out(store, passed | {"version": version}, SETTINGS, f"gateway {version}")
        assert store.kept("version") == version


class KilledError(BaseException):
    """Nothing of ours catches this one, as nothing catches kill -9."""


class Cut:
    """A connection of which all that comes after so many statements that write is lost with the process."""

    def __init__(self, inner: sqlite3.Connection, count: int) -> None:
        self.inner, self.left = inner, count

    def execute(self, statement: str, *words: Any) -> Any:
        if not statement.startswith("select"):
            self.left -= 1
            if self.left < 0:
                raise KilledError
        return self.inner.execute(statement, *words)

    def rollback(self) -> None:
        raise KilledError

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def said(store: Store) -> tuple[Any, ...]:
    """All that an order may change."""
    keys = ("version", "offered", TO_RECORD, READ)
    rows = [(each.replica_id, each.version, each.leaving) for each in store.replicas()]
    return *map(store.kept, keys), rows, [each.what for each in store.happened(9)]


@pytest.mark.parametrize(
    ("effect", "writes"),
    [
        ({"type": "PromoteRelease", "version": "a"}, 8),
        ({"type": "RollBackRelease", "version": "a", "reason": "tpot worse"}, 7),
        ({"type": "StopReplica", "replica_id": "replica-0"}, 6),
        ({"type": "OpenCircuit", "replica_id": "replica-0"}, 3),
    ],
)
def test_an_order_that_is_cut_between_any_two_writes_is_carried_out_once(
    effect: dict[str, Any], writes: int, tmp_path: Path
) -> None:
    """What it changes, what is noted, what the registry is to be told, how far was read: all or nothing."""
    seen = set()
    for count in range(writes + 1):
        state = tmp_path / str(count)
        store = Store(state)
        store.keep("version", "v0")
        store.put(ReplicaRow("replica-0", "v0"))
        trials.offer_release(state, "a", ENGINE)
        before, whole = said(store), store._file
        store._file = Cut(whole, count)  # type: ignore[assignment]
        try:
            carry_out(store, effect, SETTINGS, "gateway 7")
            died = False
        except KilledError:
            died = True
        whole.close()
        left = Store(state)
        assert died == (count < writes) and (said(left) == before) == died
        if died:
            carry_out(left, effect, SETTINGS, "gateway 7")
        seen.add(str(said(left)))
        assert left.kept(READ) == "gateway 7"
        left.close()
    assert len(seen) == 1
