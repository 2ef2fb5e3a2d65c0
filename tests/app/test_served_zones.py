"""A spec's zones reach the replicas that `up` starts: real controller and gateway; engines are stand-ins."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("psutil", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("uvicorn", reason="needs the extras [train] and [live]: `make extras`")

from tests.app.test_looping import EXAMPLE
from tests.live.test_controller import STUB, Served, ask, until
from twofold.app.loop_settings import serve_settings, train_settings
from twofold.app.loop_stages import LoopRequest, gate_for_it, service_settings
from twofold.app.releasing import Release
from twofold.app.sources import load
from twofold.live.control.admin_client import gateway_state
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.processes import free_port


def test_who_spreads_a_service_over_two_zones_outlasts_one_that_hangs(tmp_path: Path) -> None:
    """It accepts requests and says that it is well, so that only the gate can tell: it avoids the zone."""
    text = EXAMPLE.read_text("utf-8")
    text = text.replace(
        "  engine: transformers", "  engine: transformers\n  zones: 2\n  policies: {zones: on}"
    )
    (tmp_path / "config.json").write_text((EXAMPLE.parent / "config.json").read_text("utf-8"), "utf-8")
    spec, state = tmp_path / "twofold.yaml", tmp_path / ".twofold"
    spec.write_text(text, "utf-8")
    program = tmp_path / "stub"
    program.write_text(f'#!/bin/sh\nSTUB_ORDERS={tmp_path}/$TWOFOLD_ROLE exec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    serving = replace(serve_settings(load(spec).spec, 1.0), program=str(program))
    training = train_settings(load(spec).spec, state)
    request = LoopRequest(spec, state, training, serving, free_port(), lambda _: None, "tiny")
    request, gate = gate_for_it(request)
    settings = service_settings(request, gate, Release("tiny:1", "", tmp_path / "v1", is_tried=False))
    service = Served(state, settings, tmp_path)
    try:
        bring_up(settings, state)
        there = (gateway_state(state) or {})["replicas"]
        assert {name: each["zone"] for name, each in there.items()} == {
            "replica-0": "zone-1",
            "replica-1": "zone-2",
        }
        (tmp_path / "replica-0").write_text("mute")

        def avoided() -> bool:
            assert ask(service.url, stream=True) == 200
            return "gateway: zone zone-1 is avoided" in service.happened()

        until(avoided, service.happened)
    finally:
        bring_down(state)
