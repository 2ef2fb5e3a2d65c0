"""What a controller notes of its gateway and of itself: once each, with who it is of and how it went on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from twofold.live.control.engines import EngineSettings
from twofold.live.control.gateway_notes import GatewayNotes
from twofold.live.control.memory import Memory
from twofold.live.control.service import ServiceSettings, gateway_changes, gateway_config
from twofold.live.control.store import Store
from twofold.live.gateway.gateway_config import GatewayAdmin, write_gateway_config
from twofold.live.gateway.reach import Reach
from twofold.policy.gate.settings import HedgeSettings, QueueSettings

SETTINGS = ServiceSettings(EngineSettings("v1", "float32", 1, 256, 64), 1, 4, 8700, 0.001, 0.01, name="chat")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


def test_a_gateway_that_was_killed_died_once_and_is_back(store: Store) -> None:
    notes = GatewayNotes(Memory(store))
    notes.looked(None, 0.0, is_there=False, is_ending=False)
    notes.started()
    notes.looked(None, 0.2, is_there=True, is_ending=False)
    for now_s in (1.0, 1.2):
        notes.looked({"in_flight": 3}, now_s, is_there=False, is_ending=False)
    notes.started()
    notes.answers(None, 2.5, is_ending=False)
    assert [each.what for each in store.happened(9)] == [
        "the gateway started",
        "the gateway died (its process ended), with 3 requests; back after 1.5 s",
    ]


def test_a_gateway_that_is_told_something_else_restarts_and_that_is_said_once(
    store: Store, tmp_path: Path
) -> None:
    notes, path = GatewayNotes(Memory(store)), tmp_path / "config.json"
    path.write_text(write_gateway_config(gateway_config(SETTINGS, tmp_path)))
    wanted = replace(SETTINGS, gate=replace(SETTINGS.gate, hedge=HedgeSettings()))
    notes.looked(None, 0.0, is_there=True, is_ending=False)
    notes.restarts(path, wanted, tmp_path, 0.0)
    for now_s in (0.2, 0.4):  # it answers until it has ended
        notes.looked(None, now_s, is_there=True, is_ending=True)
        notes.answers(None, now_s, is_ending=True)
    notes.looked(None, 0.6, is_there=False, is_ending=False)
    notes.started()
    notes.answers("lookup", 1.0, is_ending=False)
    notes.answers(None, 1.2, is_ending=False)
    assert [each.what for each in store.happened(9)] == [
        "the gateway restarts: policies.hedge changed; back after 1.0 s",
        "CPU tier lookup is the bottleneck",
        "CPU tier lookup is none any more",
    ]


def test_what_changed_is_named_as_the_spec_has_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    before = gateway_config(SETTINGS, tmp_path, admin=GatewayAdmin(9, "key"))
    path.write_text(write_gateway_config(before))
    gate = replace(SETTINGS.gate, hedge=HedgeSettings(), queue=QueueSettings())
    wanted = replace(SETTINGS, gate=gate, reach=Reach("::1"), input_token_s=0.5)
    assert gateway_changes(path, wanted, tmp_path) == "policies.queue, policies.hedge, host"
    assert gateway_changes(path, SETTINGS, tmp_path) == "its settings"
    renewed = Reach("127.0.0.1", "server.pem", "server.key", "digest")
    told = gateway_config(replace(SETTINGS, reach=renewed), tmp_path)
    path.write_text(write_gateway_config(told))
    again = replace(SETTINGS, reach=replace(renewed, digest="another"))
    assert gateway_changes(path, again, tmp_path) == "its certificate"
    path.write_text("{}")
    assert gateway_changes(path, wanted, tmp_path) == "its settings"
