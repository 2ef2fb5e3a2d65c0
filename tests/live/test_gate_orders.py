"""What the gate's decisions change in what is wanted of a service, without a gate."""

import json
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from twofold.live.control import trials
from twofold.live.control.engines import EngineSettings
from twofold.live.control.gate_orders import TO_RECORD, carry_out
from twofold.live.control.service import ServiceSettings
from twofold.live.control.store import Store

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
    told = {"type": decision, "reason": "why", "decision": "gateway 7"}
    carry_out(store, told | {"version": "a"}, SETTINGS)
    assert store.kept("offered") == "b" and not trials.is_decided(tmp_path, "b")
    assert [told[0] for told in json.loads(store.kept(TO_RECORD))] == ["a"]
    carry_out(store, told | {"version": "b"}, SETTINGS)
    assert store.kept("offered") == "" and trials.is_decided(tmp_path, "b")


def test_calling_a_release_off_leaves_the_offer_of_another(store: Store, tmp_path: Path) -> None:
    trials.offer_release(tmp_path, "b", ENGINE)
    trials.withdraw_release(tmp_path, "a")
    assert store.kept("offered") == "b"
    trials.withdraw_release(tmp_path, "b")
    assert store.kept("offered") == ""
