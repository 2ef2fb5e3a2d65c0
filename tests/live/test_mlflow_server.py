"""A registry's tables behind a server of MLflow's that is ill: an error says so, and nothing is half done."""

import json
import threading
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.live.test_registry import model
from tests.live.test_registry_tables import Place, do_all
from tests.mlflow_server import MlflowServer
from twofold.cli import main
from twofold.live.processes import free_port
from twofold.live.registry.stores import TablesError, open_store
from twofold.live.registry.tables import Tables

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of theirs
    pytest.importorskip("mlflow", reason="needs the extra [mlflow]: `make extras`")

pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow's
ANSWERS = {  # status and body -> what is said
    "an error": (500, b"<html>\nno\n</html>", "500"),
    "a login": (401, b"You are not authenticated", "401"),
    "a login that may not": (
        403,
        b'{"error_code": "PERMISSION_DENIED", "message": "no"}',
        "PERMISSION_DENIED",
    ),
    "a page": (200, b"<html>\nwelcome\n</html>", "not in a valid JSON"),
    "another service": (200, b'{"registered_models": 5}', "registered_models"),
    "no such place": (404, b"<html>\nno\n</html>", "404"),
}


@dataclass
class Between:
    """Stands before a server, and fails from one of the questions that write on."""

    target: str = ""
    answer: tuple[int, bytes] | None = None  # to all
    left: int = 1 << 30  # questions that write, before it fails
    fault: str = ""  # of those after these: "lost before", "lost after", "error before", "error after"
    is_over: bool = False  # after one of them all is well again
    url: str = ""

    def asked(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        if self.answer:
            self._say(handler, *self.answer)
            return
        fails = False
        if handler.command != "GET":
            self.left -= 1
            fails = self.left == -1 if self.is_over else self.left < 0
        told = None if fails and self.fault.endswith("before") else self._forwarded(handler, body)
        if not fails:
            assert told is not None
            self._say(handler, *told)
        elif self.fault.startswith("error"):
            self._say(handler, 503, b"<html>\nupstream\n</html>")
        handler.close_connection = True

    def _forwarded(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        kind = {"content-type": handler.headers.get("content-type") or "application/json"}
        url = self.target + handler.path
        request = urllib.request.Request(url, body or None, kind, method=handler.command)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def _say(self, handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("content-length", str(len(body)))
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.wfile.write(body)


@contextmanager
def between(**told: object) -> Iterator[Between]:
    stands = Between(**told)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            stands.asked(self)

        do_GET = do_POST = do_PATCH = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        stands.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield stands
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    made = MlflowServer(tmp_path_factory.mktemp("server"))
    try:
        yield made.start()
    finally:
        made.kill()


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_server_that_is_ill_is_an_error_of_the_tables(kind: str, tmp_path: Path) -> None:
    status, body, said = ANSWERS[kind]
    with between(answer=(status, body)) as stands, pytest.raises(TablesError, match=said) as refused:
        open_store(tmp_path, f"mlflow+{stands.url}")
    assert len(refused.value.message) < 400 and "\n" not in refused.value.message
    assert ("MLFLOW_TRACKING_PASSWORD" in refused.value.hint) == (status in (401, 403))


def test_a_server_that_is_not_there_is_named_at_once_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--registry", str(tmp_path / "registry"), "--tables", f"mlflow+http://127.0.0.1:{free_port()}"]
    assert main(["registry", "push", str(model(tmp_path / "one")), "chat", *words]) == 2
    said = capsys.readouterr().err
    assert "error[E-tables]" in said and "refused" in said and "Traceback" not in said


def test_a_server_that_asks_for_a_login_is_given_it_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"MLFLOW_FLASK_SERVER_SECRET_KEY": "k", "MLFLOW_AUTH_ADMIN_PASSWORD": "a long password"}
    server = MlflowServer(tmp_path, ("--app-name", "basic-auth"), secrets)
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)
    try:
        server.start()
        with pytest.raises(TablesError, match="authenticate") as refused:
            place_of(server, tmp_path)
        assert "MLFLOW_TRACKING_PASSWORD" in refused.value.hint
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "another")
        with pytest.raises(TablesError):
            place_of(server, tmp_path)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a long password")
        place_of(server, tmp_path).add("chat", "sha256:aa", "seal", "ann")
        assert [each.text for each in place_of(server, tmp_path).versions()] == ["chat:1"]
    finally:
        server.kill()


def consistent(tables: Tables) -> list[str]:
    """What was done, by the log; the tables say the same."""
    tables.check()
    told = [json.loads(line) for line in tables.log()]
    said = [each["what"] for each in told]
    assert (tables.approvals(tables.versions("chat")[-1]) == ("bob",)) == ("approve" in said)
    assert (tables.evaluation("sha256:bb") is not None) == ("evaluate" in said)
    moved = [int(each["on"].partition(":")[2]) for each in told if each["what"] == "move"]
    assert [each.version for each in tables.moves("chat", "serving")] == moved
    return said


@pytest.mark.parametrize("is_over", [False, True], ids=["from then on", "once"])
@pytest.mark.parametrize("fault", ["lost before", "lost after", "error before", "error after"])
def test_a_server_that_fails_in_the_middle_of_a_commit_leaves_what_the_log_tells(
    fault: str, is_over: bool, server: MlflowServer, tmp_path: Path
) -> None:
    """Whatever was asked may have been done or not: it is never done twice."""
    with between(target=server.forget(), fault=fault, is_over=is_over) as stands:
        place = Place("mlflow", tmp_path, f"mlflow+{stands.url}")
        place.open().add("chat", "sha256:aa", "seal", "ann")
        ended, count = False, 0
        while not ended:
            tables = place.open()
            stands.left = count
            try:
                do_all(tables)
                ended = True
            except TablesError:
                count += 1
            stands.left = 1 << 30
            said = consistent(place.open())
            assert count < 60
    assert count > 5 and "move" in said
    assert [each.digest for each in place_of(server, tmp_path).versions("chat")] == ["sha256:aa", "sha256:bb"]


def place_of(server: MlflowServer, folder: Path) -> Tables:
    return Place("mlflow", folder, f"mlflow+{server.url}").open()


def test_a_server_that_is_killed_is_an_error_until_it_is_there_again(tmp_path: Path) -> None:
    server = MlflowServer(tmp_path)
    try:
        tables = place_of(server.start(), tmp_path)
        tables.add("chat", "sha256:aa", "seal", "ann")
        server.kill()  # whoever was connected may hear of it first
        with pytest.raises(TablesError, match=r"refused|the connection was cut"):
            do_all(tables)
        server.start()
        do_all(tables)
        assert consistent(place_of(server, tmp_path)).count("push") == 2
    finally:
        server.kill()
