"""What all tables of a registry must do, whatever keeps them: SQLite, PostgreSQL, MLflow."""

import gc
import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.live.test_registry import FREE, model
from tests.mlflow_server import MlflowServer
from twofold.core.errors import AlteredError, FileError, UnknownNameError, ValueRefusedError
from twofold.live.processes import free_port
from twofold.live.registry.registry import Registry
from twofold.live.registry.sql_stores import sqlite
from twofold.live.registry.stores import ADDRESS, Store, TablesError, check_address, open_store
from twofold.live.registry.tables import Tables
from twofold.policy.release.rules import Evaluation

KEY = b"k" * 32
MLFLOW = [  # by its client alone, and by a server of its own
    pytest.param(kind, marks=pytest.mark.filterwarnings("ignore")) for kind in ("mlflow", "mlflow-server")
]
STORES = ("sqlite", "postgresql", *MLFLOW)
PROGRAMS = Path("/usr/lib/postgresql")  # where Debian keeps the server's, a folder for each version
OTHER = {  # what somebody with the tables and without the key does -> the word of the log that it contradicts
    "an approval": "approve",
    "a figure": "evaluate",
    "a digest": "push",
    "an alias": "move",
}


class KilledError(BaseException):
    """Nothing of ours catches this one, as nothing catches kill -9."""


@dataclass(frozen=True, slots=True)
class Place:
    """One registry's tables: its folder, and the address of what is not in it."""

    kind: str
    folder: Path
    url: str

    def open(self) -> Tables:
        return Tables(self.store(), KEY)

    def store(self) -> Store:
        return open_store(self.folder, self.url)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a server of our own, on a port of loopback, that forgets all."""
    pytest.importorskip("psycopg", reason="needs the extra [postgres]: `make extras`")
    found = sorted(PROGRAMS.glob("*/bin/initdb"))
    programs = found[-1].parent if found else None
    if programs is None:
        pytest.skip(f"needs the server of PostgreSQL, in {PROGRAMS}: Debian's `postgresql`")
    user = "postgres" if os.getuid() == 0 else None  # it refuses to run as root
    folder, port = Path(tempfile.mkdtemp()), free_port()
    if user:
        shutil.chown(folder, user)
    told = {"user": user, "cwd": "/", "check": True, "capture_output": True, "timeout": 120}
    data = str(folder / "data")
    try:
        subprocess.run([programs / "initdb", "-D", data, "-A", "trust", "-U", "ann", "--no-sync"], **told)
        asked = f"-h 127.0.0.1 -p {port} -c unix_socket_directories='' -c fsync=off"
        command = [programs / "pg_ctl", "-D", data, "-l", f"{data}/log", "-w", "-o", asked]
        subprocess.run([*command, "start"], **told)
        try:
            yield f"postgresql://ann@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*command, "-m", "immediate", "stop"], **told)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def mlflow_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of MLflow's, which takes it half a minute to make."""
    for name in ("mlflow", "sqlalchemy", "alembic"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of theirs
            pytest.importorskip(name, reason="needs the extra [mlflow]: `make extras`")
    folder = tmp_path_factory.mktemp("mlflow")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        open_store(folder, f"mlflow+sqlite:///{folder}/empty.db").close()
    return folder / "empty.db"


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """MLflow's server, where there is one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of theirs
        pytest.importorskip("mlflow", reason="needs the extra [mlflow]: `make extras`")
    server = MlflowServer(tmp_path_factory.mktemp("mlflow-server"))
    try:
        yield server.start()
    finally:
        server.kill()


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request, tmp_path)


@pytest.fixture(params=MLFLOW)
def mlflow_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request, tmp_path)


def place_of(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    folder, kind = tmp_path / "registry", request.param
    folder.mkdir()
    url = ""
    if kind == "postgresql":
        server = request.getfixturevalue("postgres")
        url = schema_of(server, f"t{abs(hash(request.node.nodeid))}")
    if kind == "mlflow":
        shutil.copyfile(request.getfixturevalue("mlflow_file"), tmp_path / "mlflow.db")
        url = f"mlflow+sqlite:///{tmp_path}/mlflow.db"
    if kind == "mlflow-server":
        kind, url = "mlflow", f"mlflow+{request.getfixturevalue('mlflow_server').forget()}"
    return Place(kind, folder, url)


def schema_of(server: str, name: str) -> str:
    """The address of a part of the database that nobody else uses."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create schema {name}")
    return f"{server}?options=-csearch_path%3D{name}"


def mlflow_client(place: Place) -> Any:
    from mlflow import MlflowClient

    uri = place.url.removeprefix("mlflow+")
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def test_versions_count_up_below_a_name_and_the_same_digest_is_the_same_version(place: Place) -> None:
    tables = place.open()
    one = tables.add("chat", "sha256:aa", "seal", "ann")
    two = tables.add("chat", "sha256:bb", "seal", "bob")
    assert tables.add("chat", "sha256:aa", "seal", "eve") == one
    other = tables.add("other", "sha256:aa", "seal", "ann")
    assert [each.text for each in (one, two, other)] == ["chat:1", "chat:2", "other:1"]
    for opened in (tables, place.open()):
        assert opened.versions() == [one, two, other]
        assert opened.versions("chat") == [one, two]
        assert opened.versions("nobody") == []
    assert len(tables.log()) == 3
    with pytest.raises(ValueRefusedError):
        tables.add("No Name", "sha256:cc", "seal", "ann")


def test_an_alias_moves_and_every_move_is_kept(place: Place) -> None:
    tables = place.open()
    for digest in ("sha256:aa", "sha256:bb"):
        tables.add("chat", digest, "seal", "ann")
    moved = [tables.move("chat", "serving", number, "ann", f"to {number}") for number in (1, 2, 1)]
    tables.move("chat", "canary", 2, "bob", "")
    reopened = place.open()
    assert reopened.moves("chat", "serving") == moved
    assert reopened.aliases("chat") == {"serving": 1, "canary": 2}
    assert reopened.aliases("other") == {}
    with pytest.raises(UnknownNameError):
        tables.move("chat", "serving", 7, "ann", "")
    assert place.open().moves("chat", "serving") == moved
    for _ in range(2):
        tables.clear("chat", "canary", "bob", "")
    for opened in (tables, place.open()):
        assert opened.aliases("chat") == {"serving": 1}
        assert [each.version for each in opened.moves("chat", "canary")] == [2, 0]
        opened.check()


def test_approvals_are_one_each_and_the_last_evaluation_of_a_digest_counts(place: Place) -> None:
    tables = place.open()
    version = tables.add("chat", "sha256:aa", "seal", "ann")
    other = tables.add("chat", "sha256:bb", "seal", "ann")
    for who in ("bob", "eve", "bob"):
        tables.approve(version, who, "read it — twice")
    for loss in (2.0, 1.5):
        tables.evaluated(version, {"loss_nats": loss, "slices": ["ä"]}, "ann")
    reopened = place.open()
    assert sorted(reopened.approvals(version)) == ["bob", "eve"]
    assert reopened.approvals(other) == ()
    assert reopened.evaluation("sha256:aa") == {"loss_nats": 1.5, "slices": ["ä"]}
    assert reopened.evaluation("sha256:bb") is None
    reopened.check()


def test_the_log_tells_all_in_order_and_hangs_together(place: Place) -> None:
    tables = place.open()
    version = tables.add("chat", "sha256:aa", "seal", "ann")
    tables.approve(version, "bob", "")
    tables.evaluated(version, {"loss_nats": 2.0}, "ann")
    tables.refused("promotion to serving", version, "ann", {"drift": "not measured"})
    tables.move("chat", "serving", 1, "ann", "")
    said = [json.loads(line)["what"] for line in place.open().log()]
    assert said == ["push", "approve", "evaluate", "refused promotion to serving", "move"]
    place.open().check()


def test_what_fails_in_the_middle_leaves_nothing(place: Place) -> None:
    tables = place.open()
    tables.add("chat", "sha256:aa", "seal", "ann")
    with pytest.raises(ZeroDivisionError), tables.whole():
        tables.add("chat", "sha256:bb", "seal", "ann")
        tables.move("chat", "serving", 2, "ann", "")
        assert [each.version for each in tables.versions("chat")] == [1, 2]  # inside it is seen
        _ = 1 / 0
    for opened in (tables, place.open()):
        assert [each.version for each in opened.versions("chat")] == [1]
        assert opened.aliases("chat") == {} and len(opened.log()) == 1
        opened.check()


def test_two_that_write_at_once_lose_nothing(place: Place) -> None:
    """Each sees what the other wrote last: numbers and the chain go on from there."""
    one, two = place.open(), place.open()
    for number, tables in enumerate((one, two, one, two)):
        tables.add("chat", f"sha256:{number}", "seal", "ann")
    assert [each.version for each in one.versions()] == [1, 2, 3, 4]
    one.check()


def do_all(tables: Tables) -> None:
    """A version with all that can be said of it, in three transactions."""
    with tables.whole():
        version = tables.add("chat", "sha256:bb", "seal", "ann")
        tables.approve(version, "bob", "")
    tables.evaluated(version, {"loss_nats": 2.0}, "ann")
    tables.move("chat", "serving", version.version, "ann", "")
    tables.clear("chat", "serving", "ann", "")


def cut(store: Any, count: int) -> None:
    """Whatever is asked after so many questions kills, the end of a transaction included."""
    left = [count]

    class Cut:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            held = getattr(self.inner, name)
            if name == "close" or name.startswith(("get_", "search_")):  # what only reads
                return held

            def asked(*words: Any, **more: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise KilledError
                return held(*words, **more)

            return asked

    for name in ("_connection", "_client"):
        if hasattr(store, name):
            setattr(store, name, Cut(getattr(store, name)))


def test_a_kill_at_any_place_leaves_tables_that_say_what_the_log_tells(place: Place) -> None:
    first = place.open()
    first.add("chat", "sha256:aa", "seal", "ann")
    first.close()
    for count in range(400):
        store = place.store()
        cut(store, count)
        try:
            do_all(Tables(store, KEY))
            ended = True
        except KilledError:
            ended = False
        store.close()  # as the end of a process does
        left = place.open()
        left.check()
        told = [json.loads(line)["what"] for line in left.log()]
        assert (left.approvals(left.versions("chat")[-1]) == ("bob",)) == ("approve" in told)
        assert (left.evaluation("sha256:bb") is not None) == ("evaluate" in told)
        lines = map(json.loads, left.log())
        moved = [int(line["on"].partition(":")[2]) for line in lines if line["what"] == "move"]
        assert [each.version for each in left.moves("chat", "serving")] == moved
        assert left.aliases("chat") == ({"serving": 2} if moved[-1:] == [2] else {})
        left.close()
        if ended:
            break
    assert ended and count > 5
    assert [each.digest for each in place.open().versions("chat")] == ["sha256:aa", "sha256:bb"]


def change(place: Place, what: str) -> None:
    """Somebody who can write the tables, and has no key."""
    if place.kind == "mlflow":
        client = mlflow_client(place)
        if what == "an alias":
            client.set_registered_model_alias("chat", "serving", "2")
            return
        [version] = [each for each in client.search_model_versions("name='chat'") if int(each.version) == 2]
        for key, value in version.tags.items():
            if what == "a figure" and "evaluation" in key:
                client.set_model_version_tag("chat", "2", key, value.replace("2.0", "1.0"))
            if what == "a digest" and key == "twofold.version":
                client.set_model_version_tag("chat", "2", key, value.replace("sha256:bb", "sha256:cc"))
        if what == "an approval":
            told = json.dumps(["chat", 2, "bob", "2026-01-01", ""])
            client.set_model_version_tag("chat", "2", "twofold.approval.9", told)
        return
    statement = {
        "an approval": "insert into approvals values ('chat', 2, 'bob', '2026-01-01', '')",
        "a figure": "update evaluations set report = replace(report, '2.0', '1.0')",
        "a digest": "update versions set digest = 'sha256:cc' where version = 2",
        "an alias": "insert into aliases (name, alias, version, at, who, why)"
        " values ('chat', 'serving', 2, '2026-01-01', 'ann', '')",
    }[what]
    if place.kind == "sqlite":
        with sqlite3.connect(place.folder / "registry.sqlite") as file:
            file.execute(statement)
        file.close()
    else:
        import psycopg

        with psycopg.connect(place.url, autocommit=True) as connection:
            connection.execute(statement)


@pytest.mark.parametrize("what", OTHER)
def test_what_the_log_does_not_tell_of_is_found(what: str, place: Place) -> None:
    tables = place.open()
    tables.add("chat", "sha256:aa", "seal", "ann")
    version = tables.add("chat", "sha256:bb", "seal", "ann")
    tables.evaluated(version, {"loss_nats": 2.0}, "ann")
    tables.move("chat", "serving", 1, "ann", "")
    tables.check()
    change(place, what)
    with pytest.raises(AlteredError, match=f"`{OTHER[what]}`"):
        place.open().check()


def test_a_log_that_another_key_sealed_is_refused(place: Place) -> None:
    Tables(place.store(), b"e" * 32).add("chat", "sha256:aa", "seal", "eve")
    with pytest.raises(AlteredError, match="written anew"):
        place.open().check()


def test_a_registry_keeps_where_its_tables_are_and_is_the_same_to_its_users(
    place: Place, tmp_path: Path
) -> None:
    shutil.rmtree(place.folder)
    made = Registry(place.folder, make=True, tables=place.url)
    made.push(model(tmp_path / "one"), "chat", "ann")
    made.push(model(tmp_path / "two", 2), "chat", "ann")
    found = Evaluation("a" * 64, 5000, 2.0, calibration_error_fraction=0.0)
    for text in ("chat:1", "chat:2"):
        made.evaluated(text, found, "ann")
        made.promote(text, "ann", "", FREE)
    made.roll_back("chat", "ann", "")
    again = Registry(place.folder)  # it is not told where
    assert again.find("chat@serving").version == 1
    assert [each.version.text for each in again.verify()] == ["chat:1", "chat:2"]
    assert (place.folder / ADDRESS).exists() == bool(place.url)
    assert (place.folder / "registry.sqlite").exists() != bool(place.url)
    with pytest.raises(FileError, match="the registry's tables are in"):
        Registry(place.folder, tables="postgresql://elsewhere/other")


def test_tables_of_another_registry_are_not_taken(place: Place, tmp_path: Path) -> None:
    if not place.url:
        pytest.skip("those of SQLite are in the registry's own folder")
    Registry(tmp_path / "theirs", make=True, tables=place.url).push(model(tmp_path / "one"), "chat", "eve")
    for _ in range(2):  # and the refusal does not keep the address
        with pytest.raises(AlteredError, match="written anew"):
            Registry(tmp_path / "ours", make=True, tables=place.url)


def test_mlflows_own_client_lists_the_same_versions_and_aliases(mlflow_place: Place, tmp_path: Path) -> None:
    place = mlflow_place
    shutil.rmtree(place.folder)
    registry = Registry(place.folder, make=True, tables=place.url)
    for number in (1, 2, 3):
        registry.push(model(tmp_path / str(number), number), "chat", "ann")
    registry.evaluated("chat:2", Evaluation("a" * 64, 5000, 2.0), "ann")
    registry.promote("chat:2", "ann", "", FREE)
    client = mlflow_client(place)
    listed = {int(each.version): each.source for each in client.search_model_versions("name='chat'")}
    assert listed == {each.version: f"oci:/{each.digest}" for each in registry.tables.versions("chat")}
    assert int(client.get_model_version_by_alias("chat", "serving").version) == 2
    client.delete_model_version("chat", "3")
    with pytest.raises(AlteredError, match="`push`"):
        registry.verify()


def test_what_mlflow_would_not_carry_over_is_refused_before_it_is_kept(mlflow_place: Place) -> None:
    place = mlflow_place
    client = mlflow_client(place)
    client.create_registered_model("theirs")
    client.create_model_version("theirs", "oci:/elsewhere")
    tables = place.open()
    tables.add("chat", "sha256:aa", "seal", "ann")
    for refused in (
        lambda: tables.add("theirs", "sha256:bb", "seal", "ann"),
        lambda: tables.add("twofold-journal", "sha256:bb", "seal", "ann"),
        lambda: tables.move("chat", "latest", 1, "ann", ""),
    ):
        with pytest.raises(TablesError):
            refused()
    tables.check()
    assert [each.text for each in tables.versions()] == ["chat:1"]


@pytest.mark.filterwarnings("ignore")  # of MLflow's
def test_an_mlflow_database_that_is_none_is_an_error_of_the_tables(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs the extra [mlflow]: `make extras`")
    (tmp_path / "mlflow.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(TablesError, match="not a database"):
        Registry(tmp_path / "registry", make=True, tables=f"mlflow+sqlite:///{tmp_path}/mlflow.db")


@pytest.mark.parametrize("value", ["no JSON", '["approvals"]', '{"a": 1}', "[[]]", "[1, 2]", '[["log", 1]]'])
def test_a_tag_that_somebody_made_unreadable_is_an_error_of_the_tables(
    value: str, mlflow_place: Place
) -> None:
    tables = mlflow_place.open()
    version = tables.add("chat", "sha256:aa", "seal", "ann")
    tables.approve(version, "bob", "")
    client = mlflow_client(mlflow_place)
    found = client.search_model_versions("name='chat'")[0].tags
    entry = client.search_model_versions("name='twofold-journal'")[0]
    for name, number, tags in (("chat", "1", found), (entry.name, str(entry.version), entry.tags)):
        for key in sorted(tags.keys() - {"twofold.carried-over"}):
            client.set_model_version_tag(name, number, key, value)
            with pytest.raises(TablesError, match=f"`{key}`|`[a-z]+` is not as it was written"):
                mlflow_place.open().check()
            client.set_model_version_tag(name, number, key, tags[key])
    mlflow_place.open().check()


SECRET = "hunter2"
WITH_A_PASSWORD = (
    "postgresql://ann:hunter2@elsewhere/tables",
    "postgres://ann:hunter2@elsewhere,other/tables",
    "postgresql://:hunter2@elsewhere/tables",
    "postgresql://ann:12?hunter2@elsewhere/tables",
    "postgresql://ann:12/hunter2@elsewhere/tables",
    "postgresql://elsewhere/tables?password=hunter2",
    "postgresql://elsewhere?sslmode=require&sslpassword=hunter2",
    "postgresql://elsewhere/tables?application_name=x#&pass%77ord=hunter2",
    "mlflow+mysql://ann:hunter2@elsewhere/tables",
    "mlflow+mysql+pymysql://ann:12/hunter2@elsewhere/tables",
    "mlflow+mysql://elsewhere/tables?passwd=hunter2",
    "mlflow+postgresql://ann:hunter2@elsewhere/tables",
    "mlflow+https://ann:hunter2@elsewhere",
    "mlflow+https://hunter2@elsewhere/path",
    "mlflow+https://elsewhere?access_token=hunter2",
)
NO_ADDRESS = (
    "mysql://ann:hunter2@elsewhere/tables",
    "MYSQL://elsewhere/tables;password=hunter2",
    "host=elsewhere password=hunter2",
    "ann:hunter2@elsewhere/tables",
    "hunter2",
)
UNREADABLE = (
    "postgresql://[",
    "postgresql://ann@[::1/hunter2",
    "postgresql://ann:hunter2",
    "mlflow+http://[",
)
WELL = (
    "postgresql://ann@elsewhere:5432/tables?sslmode=require&sslkey=/keys/ann&passfile=/keys/pass",
    "postgres://one:5432,other:5433/tables",
    "postgresql://[::1]:5432/tables",
    "postgresql://ann@/tables?host=/var/run&options=-csearch_path%3Dours",
    "postgresql:///tables",
    "mlflow+sqlite:////home/a:b@c/models.db",
    "mlflow+sqlite:///models.db",
    "mlflow+http://127.0.0.1:5000/path",
    "mlflow+mysql://ann@elsewhere/tables?read_default_file=/keys/my.cnf",
    "mlflow+databricks",
)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *((url, "holds a password") for url in WITH_A_PASSWORD),
        *((url, "no address of tables") for url in NO_ADDRESS),
        *((url, "cannot be read") for url in UNREADABLE),
    ],
)
def test_an_address_of_no_tables_or_with_a_password_is_refused_and_not_shown(
    url: str, said: str, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / ADDRESS).write_text(url)  # as somebody wrote it there
    for opened in (
        lambda: open_store(tmp_path, url),
        lambda: Registry(tmp_path / "new", make=True, tables=url),
        lambda: open_store(kept),
        lambda: open_store(kept, "postgresql://elsewhere/tables"),
    ):
        with pytest.raises(ValueRefusedError, match=said) as refused:
            opened()
        assert refused.value.exit_code == 2 and SECRET not in str(refused.value)
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize("url", WELL)
def test_an_address_without_a_password_is_taken(url: str) -> None:
    check_address(url)


@pytest.mark.filterwarnings("ignore")  # of MLflow's
def test_a_database_whose_driver_is_not_installed_is_an_error_of_the_tables(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs the extra [mlflow]: `make extras`")
    if importlib.util.find_spec("MySQLdb"):
        pytest.skip("MySQLdb is installed here")
    with pytest.raises(TablesError, match="MySQLdb"):
        open_store(tmp_path, f"mlflow+mysql://ann@127.0.0.1:{free_port()}/tables")


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="needs the extra [postgres]: `make extras`")
    with pytest.raises(TablesError, match="not reached"):
        open_store(tmp_path, f"postgresql://127.0.0.1:{free_port()}/tables")


def test_a_store_that_a_thread_left_open_is_closed_by_whoever_finds_it(tmp_path: Path) -> None:
    left: list[Store] = []
    thread = threading.Thread(target=lambda: left.append(sqlite(tmp_path)))
    thread.start()
    thread.join()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        left.clear()
        gc.collect()
    sqlite(tmp_path).close()
    assert not caught
