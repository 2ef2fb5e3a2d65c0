"""A registry of which something is lost, altered or read-only says so, and does what is left to do."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from twofold.app.registering import push_version, who_of
from twofold.cli import main
from twofold.core.errors import AlteredError, FileError, ValueRefusedError
from twofold.live.registry.formats import FormatRefusedError
from twofold.live.registry.referrers import BILL
from twofold.live.registry.registry import Registry
from twofold.live.registry.stores import TablesError
from twofold.policy.release.rules import Evaluation, Limits

HEADER = {"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}


def model(folder: Path, value: int = 1, header: dict[str, object] | None = None, size: int = 4) -> Path:
    folder.mkdir(parents=True)
    text = json.dumps(HEADER if header is None else header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes([value] * size)
    (folder / "model.safetensors").write_bytes(data)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return folder


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    opened = Registry(tmp_path / "registry", make=True)
    for value in (1, 2):
        opened.push(model(tmp_path / f"model-{value}", value), "chat", "ann")
    return opened


def blob(registry: Registry, digest: str) -> Path:
    return registry.folder / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _swapped(text: str) -> str:
    index = json.loads(text)
    named = [each for each in index["manifests"] if "annotations" in each]
    named[0]["digest"], named[1]["digest"] = named[1]["digest"], named[0]["digest"]
    return json.dumps(index)


def _without_the_first(text: str) -> str:
    index = json.loads(text)
    del index["manifests"][0]
    return json.dumps(index)


def _edited(edit: Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]) -> Callable[[str], str]:
    """The index after an edit of it, told the first version and a bill of materials in it as well."""

    def change(text: str) -> str:
        index = json.loads(text)
        attached = next(each for each in index["manifests"] if each["artifactType"] == BILL)
        edit(index, index["manifests"][0], attached)
        return json.dumps(index, sort_keys=True, separators=(",", ":")) + "\n"

    return change


EDITS: dict[str, tuple[Callable[[str], str], str]] = {
    "swapped": (_swapped, "has another `chat:1` than was pushed: it says sha256:"),
    "left out": (_without_the_first, "leaves out `chat:1`"),
    "a size": (_edited(lambda _, first, __: first.update(size=1)), "has another `size` of `chat:1`"),
    "a type": (
        _edited(lambda _, __, attached: attached.update(artifactType="x/y")),
        "has another `artifactType` of `sha256:",
    ),
    "an attachment": (
        _edited(lambda index, _, attached: index["manifests"].remove(attached)),
        "leaves out `sha256:[0-9a-f]{64}`, of application/vnd.cyclonedx",
    ),
    "twice": (_edited(lambda index, first, _: index["manifests"].append(first)), "lists `chat:1` twice"),
    "a key": (_edited(lambda index, *_: index.update(annotations={})), "has another `annotations` than was"),
    "an annotation": (
        _edited(lambda _, first, __: first["annotations"].update(note="x")),
        "has another `annotations` of `chat:1`",
    ),
    "named": (
        _edited(
            lambda _, __, attached: attached.update(annotations={"org.opencontainers.image.ref.name": "v"})
        ),
        "lists `v`, which was neither pushed nor attached",
    ),
    "another order": (
        _edited(lambda index, *_: index["manifests"].reverse()),
        "says what was written in another order",
    ),
    "twice a key": (lambda text: text.replace('"schemaVersion"', '"manifests":[],"schemaVersion"'), "."),
    "empty": (lambda _: "{}", "is no index of a layout"),
    "a list": (lambda _: "[1]", "is no index of a layout"),
    "no JSON": (lambda _: "no JSON", "is no index of a layout"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_index_that_tells_others_another_model_is_found(registry: Registry, name: str) -> None:
    change, told = EDITS[name]
    index = registry.folder / "index.json"
    registry.evaluated("chat", Evaluation("a" * 64, 4000, 2.0), "ann")  # so that no bill was added last
    registry.verify()
    index.write_text(change(index.read_text()))
    with pytest.raises(AlteredError, match=rf"index\.json` {told}"):
        registry.verify()
    registry.evaluated("chat", Evaluation("a" * 64, 5000, 2.0), "ann")
    registry.verify()


def test_a_pipe_in_place_of_what_says_that_it_is_a_layout_is_not_waited_for(registry: Registry) -> None:
    layout = registry.folder / "oci-layout"
    layout.unlink()
    os.mkfifo(layout)
    with pytest.raises(AlteredError, match="`oci-layout` no longer says"):
        registry.verify()


@pytest.mark.parametrize("text", ["{}", "", '{"imageLayoutVersion": "2.0.0"}', "["])
def test_what_says_that_it_is_a_layout_is_read_as_well(registry: Registry, text: str) -> None:
    layout = registry.folder / "oci-layout"
    layout.write_text(text)
    with pytest.raises(AlteredError, match="`oci-layout` no longer says") as raised:
        registry.verify()
    layout.write_text(raised.value.hint.split("`")[1])
    registry.verify()


def test_of_the_newest_version_no_more_may_be_missing_than_was_added_last(
    registry: Registry, tmp_path: Path
) -> None:
    index = registry.folder / "index.json"
    before = index.read_text()
    registry.push(model(tmp_path / "third", 3), "chat", "ann")
    pushed = index.read_text()
    index.write_text(before)  # a kill behind the tables
    registry.verify()
    index.write_text(_without_the_first(pushed))
    with pytest.raises(AlteredError, match="leaves out `chat:1`"):
        registry.verify()
    registry.evaluated("chat:3", Evaluation("a" * 64, 5000, 2.0), "ann")
    index.write_text(pushed)
    registry.verify()
    index.write_text(before)
    with pytest.raises(AlteredError, match="leaves out `chat:3`"):
        registry.verify()


def test_pushes_that_are_killed_before_the_index_are_nothing_altered(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    for value in (3, 4):
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(registry.attachments, "put_bill", killed)
            registry.push(model(tmp_path / f"model-{value}", value), "chat", "ann")
        told = (registry.folder / "index.json").read_text()
        assert f"chat:{value}" not in told and f"chat:{value - 1}" in told
        registry.verify()


def test_tables_that_are_gone_are_no_empty_registry(registry: Registry) -> None:
    registry.close()
    for path in registry.folder.glob("registry.sqlite*"):
        path.unlink()
    for make in (False, True):
        with pytest.raises(AlteredError, match=r"the tables of the registry .* are gone"):
            Registry(registry.folder, make=make)


def _cut(folder: Path, tables: bytes) -> None:
    for path in folder.glob("registry.sqlite*"):
        path.unlink()
    (folder / "registry.sqlite").write_bytes(tables)


def test_tables_without_a_byte_are_no_new_registry(registry: Registry) -> None:
    registry.close()
    index = (registry.folder / "index.json").read_bytes()
    _cut(registry.folder, b"")
    for make in (False, True):
        with pytest.raises(AlteredError, match=r"the tables of the registry .* are gone or empty"):
            Registry(registry.folder, make=make)
    assert (registry.folder / "registry.sqlite").read_bytes() == b""
    assert (registry.folder / "index.json").read_bytes() == index


def test_tables_that_were_emptied_or_are_an_older_copy_are_found_by_the_index(
    registry: Registry, tmp_path: Path
) -> None:
    empty = Registry(tmp_path / "empty", make=True)
    copies = []
    for each in (empty, registry):
        each.tables._store._connection.execute("pragma wal_checkpoint(truncate)")  # type: ignore[attr-defined]
        copies.append((each.folder / "registry.sqlite").read_bytes())
    registry.push(model(tmp_path / "third", 3), "chat", "ann")
    registry.push(model(tmp_path / "fourth", 4), "chat", "ann")
    registry.close()
    index = (registry.folder / "index.json").read_bytes()
    for copy, missing in zip(copies, ("chat:1` and 3 more", "chat:3` and 1 more"), strict=True):
        _cut(registry.folder, copy)
        for make in (False, True):
            with pytest.raises(
                AlteredError, match=f"names `{missing}, which the tables do not have"
            ) as raised:
                Registry(registry.folder, make=make)
        assert "restore the tables from a copy" in raised.value.hint
    assert (registry.folder / "index.json").read_bytes() == index
    (registry.folder / "index.json").unlink()
    assert len(Registry(registry.folder).tables.versions()) == 2


def test_names_in_the_index_alone_go_with_it(registry: Registry, tmp_path: Path) -> None:
    registry.close()
    index = registry.folder / "index.json"
    index.write_text(index.read_text().replace("chat:2", "chat:9"))
    with pytest.raises(AlteredError, match=r"names `chat:9`, which the tables do not have"):
        Registry(registry.folder)
    index.unlink()
    opened = Registry(registry.folder)
    with pytest.raises(AlteredError, match=r"index\.json"):
        opened.verify()
    opened.push(model(tmp_path / "new", 3), "chat", "ann")
    opened.verify()


def test_a_row_that_somebody_deleted_is_told_as_that_by_every_verb(
    registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log tells of it, so tables are not older than the index."""
    registry.close()
    with closing(sqlite3.connect(registry.folder / "registry.sqlite")) as file, file:
        file.execute("delete from versions where version = 2")
    for verb in ("verify", "list"):
        assert main(["registry", verb, "--registry", str(registry.folder)]) == 2
        said = capsys.readouterr().err
        assert "`push`" in said and "index.json" not in said


@pytest.mark.parametrize("tag", ["prod", "2025"])
def test_another_clients_tag_is_told_by_verify_and_stands_in_nobodys_way(
    tag: str, registry: Registry, tmp_path: Path
) -> None:
    path = registry.folder / "index.json"
    index = json.loads(path.read_text())
    tagged = dict(index["manifests"][0], annotations={"org.opencontainers.image.ref.name": tag})
    path.write_text(json.dumps({**index, "manifests": [*index["manifests"], tagged]}))
    opened = Registry(registry.folder)
    with pytest.raises(AlteredError, match=f"lists `{tag}`"):
        opened.verify()
    assert opened.pull("chat", tmp_path / "out").version.text == "chat:2"
    opened.close()


def test_tables_that_are_no_database_are_told_as_input(registry: Registry) -> None:
    registry.close()
    for path in registry.folder.glob("registry.sqlite-*"):
        path.unlink()
    (registry.folder / "registry.sqlite").write_bytes(b"garbage" * 1000)
    with pytest.raises(TablesError, match="not a database") as caught:
        Registry(registry.folder)
    assert "from a copy" in caught.value.hint
    (registry.folder / "registry.sqlite").unlink()
    (registry.folder / "registry.sqlite").mkdir()  # as a mount of what is not there makes it
    with pytest.raises(TablesError, match="unable to open"):
        Registry(registry.folder)


def test_what_is_no_folder_file_or_layout_any_more_is_named(registry: Registry) -> None:
    with pytest.raises(FileError, match=r"key` is no folder"):
        Registry(registry.folder.with_name("registry.key"))
    index = registry.folder / "index.json"
    index.unlink()
    os.mkfifo(index)
    with pytest.raises(AlteredError, match="is no file"):
        Registry(registry.folder).verify()
    (registry.folder / "oci-layout").unlink()
    for make in (False, True):
        with pytest.raises(AlteredError, match="`oci-layout` of the registry") as caught:
            Registry(registry.folder, make=make)
    (registry.folder / "oci-layout").write_text(caught.value.hint.split("`")[1])
    index.unlink()
    registry.evaluated("chat", Evaluation("a" * 64, 4000, 2.0), "ann")
    Registry(registry.folder).verify()


def test_a_layout_without_tables_is_no_registry_yet(tmp_path: Path) -> None:
    """A kill, or tables elsewhere that were not reached."""
    url = "postgresql://127.0.0.1:1/x"
    pytest.importorskip("psycopg", reason="needs the extra [postgres]: `make extras`")
    with pytest.raises(TablesError):
        Registry(tmp_path / "other", make=True, tables=url)
    with pytest.raises(FileError, match="no registry in"):
        Registry(tmp_path / "other")
    with pytest.raises(TablesError):  # and not that they are elsewhere
        Registry(tmp_path / "other", make=True, tables=url)


def test_what_cannot_be_written_can_be_read(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.close()
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != registry.folder)
    opened = Registry(registry.folder)
    opened.verify()
    opened.pull("chat:1", tmp_path / "out")
    assert opened.trace("chat:1")
    with pytest.raises(TablesError, match="readonly"):
        opened.approve("chat:1", "bob", "")
    (registry.folder / "registry.sqlite-wal").write_bytes(b"rows")
    with pytest.raises(TablesError, match="holds rows of it"):
        Registry(registry.folder)


PUSH = """
import sys
from pathlib import Path
from twofold.live.registry.registry import Registry
print(flush=True)
sys.stdin.readline()
Registry(Path(sys.argv[1]), make=True).push(Path(sys.argv[2]), "chat", "ann")
"""


def test_two_first_pushes_at_once_make_one_registry(tmp_path: Path) -> None:
    for turn in range(3):
        folder = tmp_path / f"registry-{turn}"
        pushes = [
            subprocess.Popen(
                [sys.executable, "-c", PUSH, folder, model(tmp_path / f"{turn}-{value}", value)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for value in (1, 2)
        ]
        for each in pushes:
            assert each.stdout is not None
            each.stdout.readline()  # it stands ready
        for each in pushes:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        for each in pushes:
            each.communicate()
        assert [each.returncode for each in pushes] == [0, 0]
        assert len(Registry(folder).verify()) == 2


def test_a_bill_of_materials_that_is_gone_comes_with_the_next_push(
    registry: Registry, tmp_path: Path
) -> None:
    (bill,) = [digest for kind, digest in registry.describe("chat:1").attached if kind == BILL]
    blob(registry, bill).unlink()
    with pytest.raises(AlteredError):
        registry.verify()
    registry.push(tmp_path / "model-1", "chat", "ann")
    registry.verify()


def test_a_manifest_that_is_gone_stands_in_no_other_models_way(registry: Registry, tmp_path: Path) -> None:
    blob(registry, registry.find("chat:2").digest).unlink()
    assert registry.push(model(tmp_path / "new", 3), "other", "ann").version.text == "other:1"
    registry.verify("other")
    with pytest.raises(AlteredError):
        registry.verify()


def test_a_list_names_all_versions_and_says_of_which_the_manifest_is_gone(
    registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = registry.find("chat:2").digest
    blob(registry, lost).unlink()
    asked = ["registry", "list", "--registry", str(registry.folder)]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "chat:1" in said
    assert f"✗ chat:2: its manifest {lost[:19]} is missing" in said
    assert main([*asked, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["versions"]
    assert "off" not in first
    assert (second["digest"], second["off"]) == (lost, f"its manifest {lost[:19]} is missing")
    assert main([*asked, "--csv"]) == 0
    assert lost in capsys.readouterr().out
    for verb in (["verify"], ["show", "chat:2"], ["pull", "chat:2", "out"]):
        assert main(["registry", *verb, "--registry", str(registry.folder)]) == 2
        assert f"chat:2: its manifest {lost[:19]} is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("show chat:9", "it holds chat:1, chat:2"),
        ("show chat:x", "it holds chat:1, chat:2"),
        ("pull chat@serving out", "it holds chat:1, chat:2"),
        ("pull chat@tried out", "it holds chat:1, chat:2, chat@good"),
        ("show chatt", "it holds chat"),
        ("list chat:2", "`registry show chat:2`"),
    ],
)
def test_a_wrong_name_is_told_what_there_is(
    line: str, hint: str, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    if "good" in hint:
        registry.tables.move("chat", "good", 1, "ann", "")
    assert main(["registry", *line.split(), "--registry", str(registry.folder)]) == 2
    assert f"hint: {hint}\n" in capsys.readouterr().err


def test_what_is_no_public_key_is_no_missing_signature(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, private = str(tmp_path / "relase.pub"), tmp_path / "release.pem"
    private.write_text("-----BEGIN PRIVATE KEY-----\n")
    told = {missing: "doesnotexist", str(tmp_path): "isafolder", str(private): "holdsnopublickey"}
    verbs = (["verify"], ["promote", "chat:1"], ["pull", "chat:1", str(tmp_path / "out")])
    for verb in verbs:
        for key, what in told.items():
            assert main(["registry", *verb, "--registry", str(registry.folder), "--public-key", key]) == 2
            assert f"{key}`{what}" in "".join(capsys.readouterr().err.split())  # a long path is broken
    assert "refused" not in "".join(registry.tables.log())


def test_nothing_is_hung_on_a_log_that_somebody_changed(registry: Registry, tmp_path: Path) -> None:
    registry.tables._store._connection.execute("delete from log where number = 2")  # type: ignore[attr-defined]
    for action in (
        lambda: registry.approve("chat:1", "bob", ""),
        lambda: registry.push(model(tmp_path / "new", 3), "chat", "ann"),
        lambda: registry.branch("chat:1", "own", "ann"),
    ):
        with pytest.raises(AlteredError, match="of the log"):
            action()
    assert len(registry.tables.versions()) == 2


HOLE = {"w": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}}
OVER = {"v": HEADER["w"], **HEADER}


@pytest.mark.parametrize(("header", "size"), [(HOLE, 8), (OVER, 4)])
def test_weights_with_holes_or_that_overlap_do_not_enter(
    registry: Registry, tmp_path: Path, header: dict[str, object], size: int
) -> None:
    with pytest.raises(FormatRefusedError, match="overlap, or leave holes"):
        registry.push(model(tmp_path / "new", 3, header, size), "chat", "ann")


def test_a_bad_name_is_refused_before_anything_is_stored(registry: Registry, tmp_path: Path) -> None:
    before = len(list((registry.folder / "blobs" / "sha256").iterdir()))
    with pytest.raises(ValueRefusedError, match="no name of a model"):
        registry.push(model(tmp_path / "new", 3), "BAD", "ann")
    assert len(list((registry.folder / "blobs" / "sha256").iterdir())) == before


def test_other_spellings_of_who_pushed_it_are_nobody_else(registry: Registry) -> None:
    for who in ("ann ", "Ann", " ANN"):
        registry.approve("chat:1", who, "")
    rules = {each.rule for each in registry.judge("chat:1", "serving", Limits())}
    assert "approval" in rules
    registry.approve("chat:1", "bob", "")
    assert "approval" not in {each.rule for each in registry.judge("chat:1", "serving", Limits())}


def test_limits_that_were_not_the_usual_ones_stand_in_the_log(registry: Registry) -> None:
    registry.evaluated("chat:1", Evaluation("a" * 64, 5000, 2.0, calibration_error_fraction=0.0), "ann")
    registry.promote("chat:1", "ann", "now", Limits(approvals_least=0))
    assert registry.tables.changes("chat")[-1].why == "now; limits: approvals at least 0"


def test_names_of_several_lines_and_kinds_that_are_told_twice_are_refused(tmp_path: Path) -> None:
    assert who_of(" ann ") == "ann"
    with pytest.raises(ValueRefusedError, match="`--by`"):
        who_of("ann\nroot")
    source = model(tmp_path / "source")
    for told in (["data=a", "data=b"], ["data=a\nb"]):
        with pytest.raises(ValueRefusedError):
            push_version(source, "chat", tmp_path / "r", "ann", told, "", None, None)
