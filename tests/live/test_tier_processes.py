"""Servers of CPU tiers that `up` starts: started, kept, replaced and ended as replicas are."""

import asyncio
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.test_overflow import spec_of
from twofold.app.loop_settings import serve_settings
from twofold.app.sources import load
from twofold.core.errors import InputErrors
from twofold.live.control.controller import Controller
from twofold.live.control.engines import EngineSettings
from twofold.live.control.reconcile import BACKOFF_S
from twofold.live.control.service import ServiceSettings
from twofold.live.control.store import Store
from twofold.live.control.tier_processes import TierKeeper, TierProcess, tier_process
from twofold.live.processes import free_port, is_open, running, stop_all

LINE = "serve --port {port}"
ONE, TWO = (tier_process(f"lookup-{n}", LINE, 9000 + n, "/srv") for n in range(2))


def look(
    keeper: TierKeeper, runs: list[TierProcess], now_s: float, **more: Any
) -> tuple[list[str], dict[str, str]]:
    digests = {each.role: each.digest for each in runs} | more.pop("digests", {})
    found = keeper.look((ONE, TWO), digests, more.get("troubles", {}), more.get("ending", ()), now_s)
    return [each.replica_id for each in found.start], found.end


def test_who_is_missing_is_started_and_who_dies_again_waits_longer() -> None:
    keeper = TierKeeper()
    assert look(keeper, [], 0.0) == (["lookup-0", "lookup-1"], {})
    assert look(keeper, [ONE, TWO], 1.0) == ([], {})
    assert look(keeper, [TWO], 2.0) == (["lookup-0"], {}), "the first restart comes at once"
    assert look(keeper, [TWO], 2.25) == ([], {}), "it died again"
    assert look(keeper, [TWO], 2.25 + BACKOFF_S) == (["lookup-0"], {})
    assert look(keeper, [TWO], 4.0) == ([], {})
    assert look(keeper, [TWO], 4.0 + BACKOFF_S) == ([], {}), "the pause has doubled"


def test_who_is_told_something_else_hangs_or_is_wanted_no_more_is_ended() -> None:
    keeper = TierKeeper()
    assert look(keeper, [ONE, TWO], 0.0) == ([], {}), "a new controller adopts what runs"
    assert look(keeper, [TWO], 1.0, digests={ONE.role: "other"}) == ([], {ONE.role: ""})
    assert look(keeper, [TWO], 1.5, ending={ONE.role}) == ([], {})
    assert look(keeper, [TWO], 2.0) == (["lookup-0"], {})
    assert look(keeper, [ONE, TWO], 3.0, troubles={TWO.role: "stopped"}) == ([], {TWO.role: "stopped"})
    gone = keeper.look((), {ONE.role: ONE.digest, "replica-0": "x"}, {}, (), 4.0)
    assert gone.end == {ONE.role: ""} and not gone.start


def until(happened: Callable[[], Any], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline_s, "it never happened"
        time.sleep(0.05)


def test_a_controller_keeps_the_servers_of_a_tier(tmp_path: Path) -> None:
    """Real processes: one is killed, one is stopped, and both serve again; nothing is left at the end."""
    (tmp_path / "index.html").write_text("found")
    command = f"{sys.executable} -m http.server --bind 127.0.0.1 {{port}}"
    servers = tuple(
        tier_process(f"lookup-{number}", command, free_port(), str(tmp_path)) for number in range(2)
    )
    state = tmp_path / "state"
    state.mkdir()
    settings = ServiceSettings(EngineSettings("none", "float32", 1, 1, 1), 0, 1, free_port(), 0.0, 0.0)
    settings = replace(settings, tier_processes=servers)

    async def scenario() -> None:
        store = Store(state)
        controller = Controller(state, store)

        def kept(happened: Callable[[], Any]) -> Any:
            controller.processes.changed()
            troubles = controller.processes.look(time.monotonic())
            controller._keep_tiers(settings, troubles, time.monotonic())
            return happened()

        async def until_kept(happened: Callable[[], Any]) -> None:
            async with asyncio.timeout(30.0):
                while not kept(happened):
                    await asyncio.sleep(0.05)

        try:
            await until_kept(lambda: all(is_open(each.port) for each in servers))
            with urllib.request.urlopen(f"http://127.0.0.1:{servers[0].port}/index.html") as answer:
                assert answer.read() == b"found"
            [first], [second] = (running(state, each.role, exact=True) for each in servers)
            os.kill(first.process_id, signal.SIGKILL)
            os.kill(second.process_id, signal.SIGSTOP)

            def are_new() -> bool:
                now = [running(state, each.role, exact=True) for each in servers]
                return all(len(each) == 1 for each in now) and not (
                    {first.process_id, second.process_id} & {each[0].process_id for each in now}
                )

            await until_kept(are_new)
            await until_kept(lambda: all(is_open(each.port) for each in servers))
            said = [each.what for each in store.happened(10)]
            assert "its process ended" in said and any("stopped by a signal" in each for each in said)
        finally:
            store.close()
            await controller.engines.close()
            await controller.admin.close()

    try:
        asyncio.run(scenario())
    finally:
        stop_all(state)
    assert not running(state)


def test_a_spec_says_how_they_are_started(tmp_path: Path) -> None:
    tier = (
        "  before:\n    lookup: {work: 5 ms, command: 'python look.py --port {port}',"
        " urls: ['http://127.0.0.1:9001/a', 'http://localhost:9002/b']}\n  engine:"
    )
    told = serve_settings(load(spec_of(tmp_path, tier)).spec, 1.0).tier_commands
    line = "python look.py --port {port}"
    assert told == (("lookup-0", line, 9001), ("lookup-1", line, 9002))
    for old, new, says in (
        ("http://localhost:9002/b", "http://example.com:9002/b", "on this machine"),
        ("127.0.0.1:9001", "127.0.0.1:99999", "on this machine"),
        ("localhost:9002", "localhost:0", "on this machine"),
        ("--port {port}", "", "at which port"),
        (", urls: ['http://127.0.0.1:9001/a', 'http://localhost:9002/b']", "", "on this machine"),
    ):
        assert old in tier
        with pytest.raises(InputErrors) as caught:
            load(spec_of(tmp_path, tier.replace(old, new)))
        assert says in " ".join(map(str, caught.value.errors))
