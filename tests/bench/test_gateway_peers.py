"""Other people's gateways: how they are told, which are missing, what is made of their counts. No load."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("uvloop", reason="needs the extra [live]: `make extras`")

from bench import gateway_peers
from bench.gateway import ANSWER_END, BARE, EVERY
from bench.gateway_peers import ALONE, CHAT, CHAT_EVENTS, Round, WaryClient, WatchedEngine, lines
from bench.peers import gateways
from bench.peers.gateways import PEERS, found, missing
from twofold.live.processes import free_port

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Wire:
    """In place of a transport, it keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data


def test_nginx_reads_what_is_written_for_it(tmp_path: Path) -> None:
    program = found(tmp_path).get("nginx")
    if program is None:
        pytest.skip("nginx: `make system`")
    command = gateways.nginx_command(program, tmp_path, free_port(), free_port())
    done = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr


def test_nginx_keeps_its_connections_and_buffers_nothing(tmp_path: Path) -> None:
    command = gateways.nginx_command("/a/nginx", tmp_path, 1234, 4321)
    written = Path(command[-1]).read_text("utf-8")
    assert command[0] == "/a/nginx" and written.count("{") == written.count("}")
    assert "listen 127.0.0.1:4321;" in written and "server 127.0.0.1:1234; keepalive 256;" in written
    assert "proxy_buffering off;" in written and "worker_processes 1;" in written
    assert written.count("keepalive_requests") == 2  # of clients, and of the engine
    paths = [line.split()[1] for line in written.splitlines() if "_path" in line or line.startswith("pid")]
    assert len(paths) == 6 and all(path.startswith(str(tmp_path)) for path in paths)


def test_litellm_and_the_router_are_told_the_engine(tmp_path: Path) -> None:
    command = gateways.litellm_command("/a/litellm", tmp_path, 1234, 4321)
    settings = json.loads(Path(command[command.index("--config") + 1]).read_text("utf-8"))
    (model,) = settings["model_list"]
    assert model["litellm_params"]["api_base"] == "http://127.0.0.1:1234/v1"
    assert json.loads(CHAT.partition(b"\r\n\r\n")[2])["model"] == model["model_name"]
    command = gateways.router_command("/a/vllm-router", tmp_path, 1234, 4321)
    assert command[command.index("--worker-urls") + 1] == "http://127.0.0.1:1234"
    assert command[command.index("--port") + 1] == "4321"


def test_what_is_missing_is_named_with_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, path="": None)  # noqa: ARG005
    assert found(tmp_path) == {}
    nginx, litellm, router = missing({})
    assert nginx.startswith("nginx is NOT THERE: `make system`")
    assert litellm.startswith("LiteLLM is NOT THERE: `make peers`")
    assert router.startswith("vLLM's router is NOT THERE: `make peers`")


def test_a_peer_is_found_in_an_environment_of_its_own_with_its_version(tmp_path: Path) -> None:
    program = tmp_path / PEERS["vLLM's router"].program
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    packages = program.parents[1] / "lib" / "python3.11" / "site-packages"
    (packages / "vllm_router-1.2.3.dist-info").mkdir(parents=True)
    there = found(tmp_path, nginx=str(tmp_path / "nowhere"))
    assert there == {"vLLM's router": str(program)}
    assert gateways.version(str(program)) == "1.2.3"
    assert [line.partition(" is ")[0] for line in missing(there)] == ["nginx", "LiteLLM"]


def test_a_peer_knows_nothing_of_our_sources_and_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, log = tmp_path / "litellm", tmp_path / "log"
    program.write_text('#!/bin/sh\necho "$PYTHONPATH|$LITELLM_LOG"\nexec sleep 600\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", os.fspath(tmp_path))
    process = gateways.start("LiteLLM", str(program), tmp_path, 1, 2, log)
    while not log.read_text("utf-8").endswith("\n"):
        assert process.poll() is None
    gateways.stop(process)
    assert log.read_text("utf-8") == "|ERROR\n" and process.poll() is not None


def test_the_engine_is_well_and_answers_chats() -> None:
    wire, engine = Wire(), WatchedEngine()
    engine.connection_made(wire)  # type: ignore[arg-type]
    engine.data_received(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
    assert wire.written.startswith(b"HTTP/1.1 200") and wire.written.endswith(b"{}")
    engine.data_received(CHAT)
    assert wire.written.count(b"token ") == 15 and wire.written.endswith(ANSWER_END)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n",
        HEAD + b'd\r\ndata: "error"\r\n' + ANSWER_END,
    ],
)
def test_no_error_is_taken_for_an_answer(answer: bytes) -> None:
    async def asked() -> WaryClient:
        client = WaryClient(0.0, latencies_s := [])
        client.connection_made(Wire())  # type: ignore[arg-type]
        client.data_received(answer)
        with pytest.raises(ConnectionError, match="no whole answer"):
            await client.done
        assert not latencies_s
        return client

    assert asyncio.run(asked()).size_bytes == len(answer)


def test_a_whole_answer_is_one_however_it_is_cut() -> None:
    async def asked() -> list[float]:
        client = WaryClient(0.0, latencies_s := [])
        client.connection_made(Wire())  # type: ignore[arg-type]
        for part in (HEAD, *CHAT_EVENTS, ANSWER_END[:2], ANSWER_END[2:]):
            client.data_received(part)
        await client.done
        return latencies_s

    assert len(asyncio.run(asked())) == 1


def test_figures_are_made_round_by_round() -> None:
    def rounds(*rates_per_s: float, p50_s: float) -> list[Round]:
        return [Round(rate_per_s, p50_s, 1e-4) for rate_per_s in rates_per_s]

    taken = {
        (ALONE, 1): rounds(4000.0, 2000.0, p50_s=1e-3),
        (BARE, 1): rounds(2000.0, 1000.0, p50_s=1.5e-3),
        (EVERY, 1): rounds(1000.0, 500.0, p50_s=1.6e-3),
        ("nginx", 1): rounds(3000.0, 1000.0, p50_s=1.25e-3),
    }
    _, alone, bare, every, nginx, beside = lines(taken)
    # The machine was half as fast in the second round: no ratio moves where both sides were.
    assert "3,000 (2,000 to 4,000)" in alone and "2.000 (2.000 to 2.000)" in alone and "+" not in alone
    assert "1.000 (1.000 to 1.000)" in bare and "+0.50 (+0.50 to +0.50)" in bare
    assert "0.500 (0.500 to 0.500)" in every and "+0.60" in every and every.endswith("0.100")
    assert "1.250 (1.000 to 1.500)" in nginx and "+0.25" in nginx
    assert beside == "every policy beside nginx, 1 at once: 0.42 (0.33 to 0.50) times the answers/s"
    many = {(name, 16): each for (name, _), each in taken.items()}
    assert not any("+" in line for line in lines(many))


def test_a_run_without_peers_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gateway_peers, "found", lambda *_told: {})
    monkeypatch.setattr(gateway_peers, "run", lambda *_told: print("the table"))
    gateway_peers.main([])
    told = capsys.readouterr().out.splitlines()
    assert told[3:5] == ["no peer is there", "the table"]
    assert told[5:] == missing({})
