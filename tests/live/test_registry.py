"""The registry: what enters, what comes back, what is refused, and what a kill in the middle leaves."""

import json
import pickle
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from twofold.app.registering import ShownVersion, show_version
from twofold.core.data import to_data
from twofold.core.errors import AlteredError, BusyError, FileError, UnknownNameError, ValueRefusedError
from twofold.live.registry import blobs
from twofold.live.registry.formats import FormatRefusedError
from twofold.live.registry.registry import Registry, ReleaseRefusedError
from twofold.policy.release.rules import Evaluation, Limits
from twofold.report.registry import shown

FREE = Limits(approvals_least=0, token_count_least=0, drift_most_nats=None)
FOUND = Evaluation(
    set_sha256="a" * 64, token_count=5000, loss_nats=2.0, drift_nats=0.0, calibration_error_fraction=0.0
)


def model(folder: Path, value: int = 1, **config: object) -> Path:
    """A folder with one tensor of 4 bytes, as safetensors are written."""
    folder.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes([value] * 4)
    )
    said = {"model_type": "llama", "architectures": ["Llama"], "max_position_embeddings": 64, **config}
    (folder / "config.json").write_text(json.dumps(said))
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    return folder


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry", make=True)


def released(registry: Registry, folder: Path) -> str:
    """The reference of a version that the rules let pass."""
    text = registry.push(folder, "chat", "ann").version.text
    registry.evaluated(text, FOUND, "ann")
    registry.promote(text, "ann", "", FREE)
    return text


def test_what_is_pulled_is_what_was_pushed_and_the_same_bytes_are_one_version(
    registry: Registry, tmp_path: Path
) -> None:
    source = model(tmp_path / "source")
    first = registry.push(source, "chat", "ann", {"data": "sha256:aa"})
    again = registry.push(source, "chat", "bob", {"data": "sha256:aa"})
    assert first.version == again.version
    assert first.stored.facts["parameter_count"] == 4
    registry.pull("chat", tmp_path / "out")
    for path in source.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    with pytest.raises(FileError, match="exists"):
        registry.pull("chat", tmp_path / "out")


def test_other_bytes_or_another_origin_are_another_version_and_old_ones_stay(
    registry: Registry, tmp_path: Path
) -> None:
    one = registry.push(model(tmp_path / "one"), "chat", "ann")
    two = registry.push(model(tmp_path / "two", 2), "chat", "ann")
    three = registry.push(tmp_path / "two", "chat", "ann", {"parent": one.stored.digest})
    assert [each.version.version for each in (one, two, three)] == [1, 2, 3]
    assert registry.find("chat:1").digest == one.stored.digest
    assert registry.find(two.stored.digest[:20]) == two.version
    assert registry.trace("chat:3")[1:] == [("parent", one.stored.digest), ("chat:1", one.stored.digest)]


def test_the_log_of_a_name_says_who_did_what_when_and_why_or_which_rules_refused(
    registry: Registry, tmp_path: Path
) -> None:
    first = registry.push(model(tmp_path / "one"), "chat", "ann").version.text
    registry.push(model(tmp_path / "other", 9), "chatter", "eve")
    with pytest.raises(ReleaseRefusedError):
        registry.promote(first, "ann", "now", Limits())
    registry.approve(first, "bob", "read it\n\x1b[2J twice")
    registry.evaluated(first, FOUND, "cy")
    registry.promote(first, "ann", "the first", FREE)
    registry.tables.clear("chat", "serving", "dan", "it is no good")
    found = registry.with_log(registry.describe("chat"))
    lines = shown(found, ())
    assert found.log is not None and max(map(len, lines)) <= 100
    at = [f"{each.at[:19]}Z" for each in found.log]
    assert at == sorted(at) and "log" not in "\n".join(shown(registry.describe("chat"), ()))
    text = " ".join(" ".join(lines[[line[:5] for line in lines].index("  log") :]).split())
    assert text == " ".join(
        [
            f"log {at[0]} · chat:1 · pushed by ann",
            f"{at[1]} · chat:1 · refused promotion to serving by ann",
            "approval: 0 of 1 approvals besides who pushed it · evaluation: never evaluated",
            f"{at[2]} · chat:1 · approved by bob · read it [2J twice",
            f"{at[3]} · chat:1 · evaluated by cy",
            f"{at[4]} · chat:1 · made `serving` by ann",
            "the first; limits: drift most not asked, approvals at least 0, token count at least 0",
            f"{at[5]} · chat · `serving` cleared by dan · it is no good",
        ]
    )


def test_a_long_log_is_shown_from_its_end(registry: Registry, tmp_path: Path) -> None:
    registry.push(model(tmp_path / "one"), "chat", "ann")
    for number in range(12):
        registry.approve("chat", f"who-{number}", "because " * 30)
    lines = shown(registry.with_log(registry.describe("chat")), ())
    text = "\n".join(lines)
    assert "log        the last 10 of 13 lines" in text and max(map(len, lines)) <= 100
    assert "by who-2" in text and "by who-1\n" not in text and text.count("approved by") == 10
    data = show_version("chat:1", registry.folder).as_data["log"]
    assert [each["by"] for each in data] == [f"who-{number}" for number in range(2, 12)]
    assert data[-1].keys() == {"at", "what", "on", "by", "alias", "why", "rules"}
    assert "log" not in ShownVersion(registry.describe("chat")).as_data


@pytest.mark.parametrize("reference", ["chat:9", "chat@serving", "other", "chat:x", "sha256:00", "", ":"])
def test_what_is_not_there_is_an_error_that_says_what_is(
    reference: str, registry: Registry, tmp_path: Path
) -> None:
    registry.push(model(tmp_path / "one"), "chat", "ann")
    with pytest.raises(UnknownNameError):
        registry.find(reference)


def write_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps([1, 2]))


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"x")


def write_arrays(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights.npy", b"x")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("pytorch_model.bin", lambda path: path.write_bytes(b"anything")),
        ("innocent.json.txt", write_pickle),
        ("innocent.dat", write_zip),
        ("modeling_chat.py", lambda path: path.write_text("import os")),
        ("broken.safetensors", lambda path: path.write_bytes(b"\x00" * 40)),
        ("old.txt", lambda path: path.write_bytes(pickle.dumps([1, {"a": print}], protocol=0))),
        ("older.md", lambda path: path.write_bytes(b"(lp0\nI1\na.and then words")),
        ("called.jinja", lambda path: path.write_bytes(b"cos\nsystem\n(S'true'\ntR.")),
        ("objects.npy", lambda path: path.write_bytes(b"\x93NUMPY\x01\x00")),
        ("arrays.txt", write_arrays),
        ("weights.h5", lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n")),
        ("original.tar", lambda path: path.write_bytes(b"config.json" + bytes(501))),
        ("model.gguf", lambda path: path.write_bytes(b"GGUF\x03\x00\x00\x00")),
        ("hdf.txt", lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n")),
        ("zeros.txt", lambda path: path.write_bytes(bytes(512))),
        ("broken.json", lambda path: path.write_text("{")),
        ("nested.json", lambda path: path.write_text("[" * 100_000)),
        ("tokenizer.model", lambda path: path.write_bytes(b"BZh91AY")),
        ("no_suffix", lambda path: path.write_text("words")),
        ("SHOUTED.PT", lambda path: path.write_text("words")),
        ("short.safetensors", lambda path: path.write_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00{}more")),
    ],
)
def test_pickles_code_and_torn_weights_never_enter(name, write, registry: Registry, tmp_path: Path) -> None:
    source = model(tmp_path / "source")
    write(source / name)
    with pytest.raises(FormatRefusedError, match=name.split(".")[0]):
        registry.push(source, "chat", "ann")
    assert registry.tables.versions() == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "Not. A pickle, though its first words read as one"),
        ("merges.txt", "0.\ncat\ndog\n"),
        ("vocab.txt", "chat\nmodel\nbird\n(t.\n"),
        ("LICENSE", "Permission is hereby granted\n"),
        ("LICENSE.txt", "(c) ours\n"),
        ("chat_template.jinja", "{{ messages }}"),
        ("special_tokens_map.json", '["<s>"]'),
        ("tokenizer.model", "\n\x0epiece"),
        ("docs/notes.md", ""),
    ],
)
def test_text_and_tokenizers_enter_whatever_their_words(
    name: str, text: str, registry: Registry, tmp_path: Path
) -> None:
    source = model(tmp_path / "source")
    (source / name).parent.mkdir(exist_ok=True)
    (source / name).write_text(text)
    assert name in {each.path for each in registry.push(source, "chat", "ann").stored.files}


@pytest.mark.parametrize(
    "tensor",
    [
        {"shape": [4], "data_offsets": ["0", "4"]},
        {"shape": [4], "data_offsets": [0.0, 4.0]},
        {"shape": [-2, -2], "data_offsets": [0, 4]},
        {"shape": "4444", "data_offsets": [0, 4]},
        {"shape": [4], "data_offsets": None},
    ],
)
def test_a_header_whose_lengths_are_no_lengths_is_refused(
    tensor: dict[str, object], registry: Registry, tmp_path: Path
) -> None:
    source = model(tmp_path / "source")
    header = json.dumps({"w": {"dtype": "U8", **tensor}}).encode()
    (source / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    with pytest.raises(FormatRefusedError, match="`w` is not described"):
        registry.push(source, "chat", "ann")


@pytest.mark.parametrize("widths", [[64], [0], [4, 8]])
def test_weights_that_are_packed_otherwise_than_told_are_refused(
    widths: list[int], registry: Registry, tmp_path: Path
) -> None:
    groups = {f"group_{number}": {"weights": {"num_bits": bits}} for number, bits in enumerate(widths)}
    quantised = {"quant_method": "compressed-tensors", "config_groups": groups}
    with pytest.raises(FormatRefusedError, match="one width of 1 to 32"):
        registry.push(model(tmp_path / "odd", quantization_config=quantised), "chat", "ann")


def test_a_config_of_other_types_is_read_or_refused(registry: Registry, tmp_path: Path) -> None:
    odd = registry.push(model(tmp_path / "odd", architectures={"a": 1}), "chat", "ann")
    assert odd.stored.facts["architecture"] == "llama"
    for number, value in enumerate(("long", [64], 6.4)):
        source = model(tmp_path / str(number), max_position_embeddings=value)
        with pytest.raises(FormatRefusedError, match="max_position_embeddings"):
            registry.push(source, "chat", "ann")


def test_a_registry_may_be_the_folder_that_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    opened = Registry(Path(), make=True)
    opened.push(model(tmp_path / "one"), "chat", "ann")
    opened.verify()
    assert (tmp_path / "here.key").exists()


def test_a_file_that_is_swapped_while_it_is_pushed_is_refused(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is looked at are the bytes that are stored, not those that stood there before."""
    source = model(tmp_path / "source")
    copy = blobs._copy

    def swapped(read: Path, written: Path) -> str:
        if read.name == "tokenizer.json":
            write_pickle(read)
        return copy(read, written)

    monkeypatch.setattr(blobs, "_copy", swapped)
    with pytest.raises(FormatRefusedError, match=r"`tokenizer\.json` can hold a pickle"):
        registry.push(source, "chat", "ann")
    assert registry.tables.versions() == []
    stored = (registry.folder / "blobs" / "sha256").iterdir()
    assert all(pickle.dumps([1, 2]) not in path.read_bytes() for path in stored)


def test_code_of_its_own_links_and_wrong_names_are_refused(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(FormatRefusedError, match="auto_map"):
        registry.push(model(tmp_path / "remote", auto_map={"AutoModel": "x.Y"}), "chat", "ann")
    told = model(tmp_path / "tokens")
    (told / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["x.Y", null]}}')
    with pytest.raises(FormatRefusedError, match=r"`tokenizer_config\.json` names code"):
        registry.push(told, "chat", "ann")
    linked = model(tmp_path / "linked")
    (linked / "more.json").symlink_to("/etc/hostname")
    with pytest.raises(FileError, match="not a plain file"):
        registry.push(linked, "chat", "ann")
    for name in ("", "Chat", "../x", "a b", "7", "sha256", "x" * 65):
        with pytest.raises(ValueRefusedError):
            registry.push(model(tmp_path / f"m{len(name)}{hash(name)}"), name, "ann")


def test_a_changed_byte_is_found_before_anything_is_opened(registry: Registry, tmp_path: Path) -> None:
    stored = registry.push(model(tmp_path / "one"), "chat", "ann").stored
    weights = next(each for each in stored.files if each.path == "model.safetensors")
    path = blobs.blob(registry.folder, weights.sha256)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\x09")
    with pytest.raises(AlteredError, match="safetensors"):
        registry.verify()
    with pytest.raises(AlteredError, match="safetensors"):
        registry.pull("chat", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    registry.evaluated("chat", FOUND, "ann")
    with pytest.raises(AlteredError, match="safetensors"):
        registry.promote("chat", "ann", "", FREE)
    assert registry.tables.aliases("chat") == {}


def test_a_version_that_another_key_sealed_is_not_trusted(registry: Registry, tmp_path: Path) -> None:
    """Somebody who can write the folder, and has no key, puts a model of theirs under our name."""
    registry.push(model(tmp_path / "one"), "chat", "ann")
    theirs = Registry(tmp_path / "theirs", make=True)
    planted = theirs.push(model(tmp_path / "two", 2), "chat", "eve")
    shutil.copytree(theirs.folder / "blobs", registry.folder / "blobs", dirs_exist_ok=True)
    with sqlite3.connect(registry.folder / "registry.sqlite") as file:
        told = ("chat", 2, planted.stored.digest, planted.version.seal, "2026-01-01", "ann")
        file.execute("insert into versions values (?, ?, ?, ?, ?, ?)", told)
    with pytest.raises(AlteredError, match="not sealed"):
        registry.pull("chat:2", tmp_path / "out")
    with pytest.raises(AlteredError):
        registry.approve("chat:2", "bob", "")
    before = registry.tables.log()
    with pytest.raises(AlteredError, match="`push`"):
        registry.promote("chat:2", "ann", "", FREE)
    assert registry.tables.log() == before
    assert "seal" in {each.rule for each in registry.judge("chat:2", "serving", FREE)}


def test_a_swapped_digest_of_our_own_is_not_trusted_either(registry: Registry, tmp_path: Path) -> None:
    registry.push(model(tmp_path / "one"), "chat", "ann")
    other = registry.push(model(tmp_path / "two", 2), "other", "ann")
    with sqlite3.connect(registry.folder / "registry.sqlite") as file:
        file.execute("update versions set digest = ? where name = 'chat'", (other.stored.digest,))
    with pytest.raises(AlteredError, match="not sealed"):
        registry.verify()


@pytest.mark.parametrize(
    ("planted", "table"),
    [
        ("insert into approvals values ('chat', 2, 'bob', '2026-01-01', 'read it')", "approve"),
        ("insert into aliases values (null, 'chat', 'serving', 2, '2026-01-01', 'ann', '')", "move"),
        ("update evaluations set report = replace(report, '5000', '9000') where number = 2", "evaluate"),
        ("update versions set pushed_by = 'eve' where version = 2", "push"),
        ("delete from aliases", "move"),
    ],
)
def test_what_stands_in_a_table_and_not_in_the_log_is_found(
    planted: str, table: str, registry: Registry, tmp_path: Path
) -> None:
    """Somebody who can write the folder, and has no key, vouches for a version, or moves an alias."""
    released(registry, model(tmp_path / "one"))
    registry.push(model(tmp_path / "two", 2), "chat", "ann")
    registry.evaluated("chat:2", FOUND, "ann")
    registry.verify()
    with sqlite3.connect(registry.folder / "registry.sqlite") as file:
        file.execute(planted)
    before = registry.tables.log()
    refusing = replace(FREE, token_count_least=10**9)  # by its rules as well
    for asked in (
        registry.verify,
        lambda: registry.promote("chat:2", "ann", "", FREE),
        lambda: registry.promote("chat:2", "ann", "", refusing),
        lambda: show_version("chat:1", registry.folder),
        lambda: registry.pull("chat@serving", tmp_path / "out"),
    ):
        with pytest.raises(AlteredError, match=f"`{table}`"):
            asked()
    assert not (tmp_path / "out").exists()
    assert registry.tables.log() == before


@pytest.mark.parametrize("change", ["update", "delete", "all"])
def test_a_changed_line_of_the_log_is_found(change: str, registry: Registry, tmp_path: Path) -> None:
    for value in (1, 2, 3):
        registry.push(model(tmp_path / str(value), value), "chat", "ann")
    registry.verify()
    with sqlite3.connect(registry.folder / "registry.sqlite") as file:
        if change == "update":
            file.execute("update log set line = replace(line, 'ann', 'amm') where number = 2")
        elif change == "delete":
            file.execute("delete from log where number = 2")
        else:  # written anew by somebody without the key
            theirs = Registry(tmp_path / "theirs", make=True)
            theirs.push(model(tmp_path / "eve", 9), "chat", "eve")
            rows = [(number, *row) for number, row in enumerate(theirs.tables._store.rows("log"), 1)]
            file.execute("delete from log")
            file.executemany("insert into log values (?, ?, ?, ?)", rows)
    with pytest.raises(AlteredError):
        registry.verify()


def test_r_162_every_release_has_a_report_beside_its_weights_in_which_a_changed_byte_is_found(
    registry: Registry, tmp_path: Path
) -> None:
    registry.push(model(tmp_path / "one"), "chat", "ann")
    with pytest.raises(ReleaseRefusedError) as refused:  # without one nothing is promoted
        registry.promote("chat", "ann", "", FREE)
    assert [rule for rule, _ in refused.value.lines] == ["evaluation"]
    for loss_nats in (2.5, 2.0, 2.5):  # measured again, and once more as before
        registry.evaluated("chat", replace(FOUND, loss_nats=loss_nats), "ann")
        described = registry.describe("chat")
        assert described.evaluation is not None and described.evaluation.loss_nats == loss_nats
        text = registry.attachments.read(described.stored, described.evaluation_digest)
        report = json.loads(text)
        assert (report.pop("model"), report["loss_nats"]) == (described.stored.digest, loss_nats)
        assert report == json.loads(json.dumps(to_data(described.evaluation)))
    registry.promote("chat", "ann", "", FREE)
    assert f"report {described.evaluation_digest[:19]}" in " ".join(shown(described, ()))
    index = json.loads((registry.folder / "index.json").read_text())
    assert described.evaluation_digest in {each["digest"] for each in index["manifests"]}
    manifest = json.loads(blobs.checked_text(registry.folder, described.evaluation_digest))
    path = blobs.blob(registry.folder, manifest["layers"][0]["digest"].partition(":")[2])
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"2.5", b"1.5"))
    with pytest.raises(AlteredError):
        registry.verify()


def test_roll_back_brings_what_served_before_and_keeps_every_move(registry: Registry, tmp_path: Path) -> None:
    one, two = (released(registry, model(tmp_path / str(value), value)) for value in (1, 2))
    assert registry.find("chat@serving").text == two
    back = registry.roll_back("chat", "bob", "")
    assert registry.find("chat@serving").text == one
    assert (back.by, back.why) == ("bob", "back from chat:2")
    assert [each.version for each in registry.tables.moves("chat", "serving")] == [1, 2, 1]
    with pytest.raises(UnknownNameError):
        registry.roll_back("chat", "bob", "", alias="canary")


def test_nothing_goes_back_to_a_version_whose_files_are_missing_or_altered(
    registry: Registry, tmp_path: Path
) -> None:
    one, _ = (released(registry, model(tmp_path / str(value), value)) for value in (1, 2))
    files = registry.describe(one).stored.files
    path = blobs.blob(registry.folder, next(each.sha256 for each in files if each.path.endswith("tensors")))
    good, lines = path.read_bytes(), len(registry.tables.log())
    path.chmod(0o644)
    for spoil in (lambda: path.write_bytes(good[:-1] + b"!"), path.unlink):
        spoil()
        with pytest.raises(AlteredError, match=r"model\.safetensors"):
            registry.roll_back("chat", "bob", "")
        assert registry.tables.aliases("chat") == {"serving": 2} and len(registry.tables.log()) == lines
    path.write_bytes(good)
    assert registry.roll_back("chat", "bob", "").version == 1


def test_a_roll_back_of_what_somebody_moves_meanwhile_is_refused(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read before others are locked out: what is to be undone may be something else by then."""
    for value in (1, 2, 3):
        released(registry, model(tmp_path / str(value), value))
    other = Registry(registry.folder)
    monkeypatch.setattr(blobs, "check_stored", lambda *_: other.tables.move("chat", "serving", 2, "eve", ""))
    with pytest.raises(BusyError, match="moved meanwhile"):
        registry.roll_back("chat", "bob", "")
    assert registry.tables.aliases("chat") == {"serving": 2}


def test_going_back_twice_never_brings_what_was_rolled_back(registry: Registry, tmp_path: Path) -> None:
    for value in (1, 2, 3):
        released(registry, model(tmp_path / str(value), value))
    assert [registry.roll_back("chat", "bob", "").version for _ in range(2)] == [2, 1]
    with pytest.raises(UnknownNameError, match="meant nothing before"):
        registry.roll_back("chat", "bob", "")
    registry.promote("chat:3", "ann", "", FREE)
    assert registry.roll_back("chat", "bob", "").version == 1


def tried(registry: Registry, folder: Path) -> str:
    """The digest of a version that the rules let be tried beside what serves."""
    pushed = registry.push(folder, "chat", "ann").version
    registry.evaluated(pushed.text, FOUND, "ann")
    registry.admit(pushed.text, "ann", "", FREE)
    return pushed.digest


def test_a_decision_is_told_once_and_ends_the_candidacy(registry: Registry, tmp_path: Path) -> None:
    """Whoever tells it may be killed before it knows that it was taken; people go on meanwhile."""
    released(registry, model(tmp_path / "one"))
    digest = tried(registry, model(tmp_path / "two", 2))
    for _ in range(2):
        registry.decided("chat", digest, "gate", True, "no worse", "first")
        assert registry.tables.aliases("chat") == {"serving": 2}
    registry.roll_back("chat", "bob", "clients complain")
    lines = len(registry.tables.log())
    registry.decided("chat", digest, "gate", True, "no worse", "first")
    assert registry.tables.aliases("chat") == {"serving": 1} and len(registry.tables.log()) == lines
    registry.admit("chat:2", "ann", "once more", FREE)
    registry.decided("chat", digest, "gate", True, "no worse", "first")
    assert registry.tables.aliases("chat") == {"serving": 1, "candidate": 2}
    registry.decided("chat", digest, "gate", False, "tpot worse", "second")
    assert registry.tables.aliases("chat") == {"serving": 1}
    assert json.loads(registry.tables.log()[-1])["rules"] == {"gate": "tpot worse"}
    with pytest.raises(UnknownNameError, match="candidate"):
        registry.roll_back("chat", "bob", "", alias="candidate")
    with pytest.raises(UnknownNameError, match="no candidate"):
        registry.decided("chat", registry.find("chat:1").digest, "gate", True, "", "third")
    registry.verify()


def test_what_a_roll_back_called_off_does_not_serve_when_its_trial_is_passed(
    registry: Registry, tmp_path: Path
) -> None:
    for value in (1, 2):
        released(registry, model(tmp_path / str(value), value))
    digest = tried(registry, model(tmp_path / "three", 3))
    registry.roll_back("chat", "bob", "clients complain")
    registry.decided("chat", digest, "gate", True, "no worse", "first")
    assert registry.tables.aliases("chat") == {"serving": 1}
    said = json.loads(registry.tables.log()[-1])
    assert (said["what"], said["on"], said["why"]) == ("decide", "chat:3", "no worse")  # it is kept


def test_what_passed_serves_though_another_one_is_a_candidate_by_now(
    registry: Registry, tmp_path: Path
) -> None:
    released(registry, model(tmp_path / "one"))
    digest = tried(registry, model(tmp_path / "two", 2))
    other = tried(registry, model(tmp_path / "three", 3))
    registry.decided("chat", digest, "gate", True, "no worse", "first")
    assert registry.tables.aliases("chat") == {"serving": 2, "candidate": 3}
    registry.decided("chat", other, "gate", False, "tpot worse", "second")
    assert registry.tables.aliases("chat") == {"serving": 2}


def test_an_unapproved_promotion_is_refused_named_and_logged(registry: Registry, tmp_path: Path) -> None:
    registry.push(model(tmp_path / "one"), "chat", "ann")
    registry.evaluated("chat", FOUND, "ann")
    registry.approve("chat", "ann", "mine")
    with pytest.raises(ReleaseRefusedError) as refused:
        registry.promote("chat", "ann", "", Limits())
    assert [rule for rule, _ in refused.value.lines] == ["approval"]
    assert json.loads(registry.tables.log()[-1])["what"] == "refused promotion to serving"
    registry.approve("chat", "bob", "read it")
    assert registry.promote("chat", "ann", "better", Limits()).version == 1


@pytest.mark.parametrize("name", ["tokenizer.json", "merges.txt", "vocab.json", "chat_template.jinja"])
def test_a_swapped_tokenizer_is_refused(name: str, registry: Registry, tmp_path: Path) -> None:
    one = model(tmp_path / "one")
    (one / name).write_text('{"version": "1.0"}')
    released(registry, one)
    other = model(tmp_path / "two", 2)
    (other / name).write_text('{"version": "2.0"}')
    registry.push(other, "chat", "ann")
    registry.evaluated("chat", FOUND, "ann")
    with pytest.raises(ReleaseRefusedError) as refused:
        registry.promote("chat", "ann", "", FREE)
    assert [rule for rule, _ in refused.value.lines] == ["tokenizer"]


@pytest.mark.parametrize(
    ("rule", "other", "figure", "allowed"),
    [
        ("architecture", {"architectures": ["Mistral"]}, "Mistral", {"same_architecture": False}),
        ("context", {"max_position_embeddings": 32}, "32 tokens", {"as_long_context": False}),
        ("context", {"max_position_embeddings": None}, "no context", {"as_long_context": False}),
    ],
)
def test_another_architecture_or_a_shorter_context_is_refused_unless_it_is_allowed(
    rule: str,
    other: dict[str, object],
    figure: str,
    allowed: dict[str, bool],
    registry: Registry,
    tmp_path: Path,
) -> None:
    released(registry, model(tmp_path / "one"))
    registry.push(model(tmp_path / "other", 2, **other), "chat", "ann")
    registry.evaluated("chat", FOUND, "ann")
    with pytest.raises(ReleaseRefusedError) as refused:
        registry.promote("chat", "ann", "", FREE)
    [(name, words)] = refused.value.lines
    assert name == rule and figure in words
    assert registry.promote("chat", "ann", "", replace(FREE, **allowed)).version == 2


def test_a_key_that_others_can_read_is_refused(registry: Registry) -> None:
    registry.folder.with_name("registry.key").chmod(0o644)
    with pytest.raises(FileError, match="others can read"):
        Registry(registry.folder)


def test_a_key_that_is_gone_is_named_and_no_other_takes_its_place(registry: Registry, tmp_path: Path) -> None:
    registry.push(model(tmp_path / "one"), "chat", "ann")
    key = registry.folder.with_name("registry.key")
    key.rename(tmp_path / "elsewhere")
    for make in (False, True):
        with pytest.raises(FileError, match="is not there"):
            Registry(registry.folder, make=make)
    assert not key.exists()
    (tmp_path / "elsewhere").rename(key)
    Registry(registry.folder).verify()


def test_a_push_puts_right_what_was_altered(registry: Registry, tmp_path: Path) -> None:
    stored = registry.push(model(tmp_path / "one"), "chat", "ann").stored
    for each in stored.files:
        path = blobs.blob(registry.folder, each.sha256)
        path.chmod(0o644)
        path.write_bytes(b"other")
    with pytest.raises(AlteredError):
        registry.verify()
    registry.push(tmp_path / "one", "chat", "ann")
    registry.verify()


def test_a_folder_without_weights_is_no_model(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("text")
    with pytest.raises(FormatRefusedError, match="holds no weights"):
        registry.push(tmp_path / "docs", "chat", "ann")


def test_a_folder_that_holds_something_else_is_no_registry(tmp_path: Path) -> None:
    model(tmp_path / "models")
    with pytest.raises(FileError, match="no registry"):
        Registry(tmp_path / "models", make=True)
    with pytest.raises(FileError, match="no registry"):
        Registry(tmp_path / "nothing")


DYING = """
import os, sys
from pathlib import Path
from twofold.live.registry.registry import Registry
from twofold.policy.release.rules import Limits
FREE = Limits(approvals_least=0, token_count_least=0, drift_most_nats=None)
left = int(sys.argv[4])
def dies(call):
    def counted(*words, **more):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return call(*words, **more)
    return counted
class Dying:  # a connection that ends the process before its n-th statement that writes
    def __init__(self, file):
        self.file, self.writes = file, dies(file.execute)
    def execute(self, statement, *words):
        reads = statement.lstrip().startswith("select")
        return (self.file.execute if reads else self.writes)(statement, *words)
    def __getattr__(self, name):
        return getattr(self.file, name)
os.fsync, os.rename, os.replace = dies(os.fsync), dies(os.rename), dies(os.replace)
count, left = left, left if sys.argv[3] == "push" else 1 << 30
registry = Registry(Path(sys.argv[1]), make=True)
if sys.argv[3] != "push":
    store = registry.tables._store
    left, store._connection = count, Dying(store._connection)
getattr(registry, sys.argv[3])(*eval(sys.argv[2]))
"""


def killed_after(count: int, folder: Path, what: str, words: str) -> bool:
    """Do it in a process that ends at its n-th write to the disk; whether it ended so."""
    command = [sys.executable, "-c", DYING, str(folder), words, what, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 9), done.stderr
    return done.returncode == 9


def test_a_push_that_is_killed_at_any_write_leaves_a_whole_registry(tmp_path: Path) -> None:
    source = model(tmp_path / "source")
    words = f"(Path({str(source)!r}), 'chat', 'ann')"
    count = 0
    while killed_after(count, tmp_path / f"r{count}" / "registry", "push", words):
        left = Registry(tmp_path / f"r{count}" / "registry", make=True)
        left.verify()
        assert left.push(source, "chat", "ann").version.version == 1
        left.verify()
        index = json.loads((left.folder / "index.json").read_text())
        models = [each for each in index["manifests"] if "annotations" in each]
        assert [each["digest"] for each in models] == [left.find("chat").digest]
        assert len(left.describe("chat").attached) == 1  # its bill of materials
        count += 1
    assert count > 8  # at as many places it was killed


@pytest.mark.parametrize(
    ("what", "words", "before", "after"),
    [("promote", "('chat:2', 'ann', 'better', FREE)", 1, 2), ("roll_back", "('chat', 'bob', '')", 2, 1)],
)
def test_a_move_that_is_killed_at_any_write_happened_or_did_not(
    what: str, words: str, before: int, after: int, tmp_path: Path
) -> None:
    """The alias, its history and the log agree, and the same move can be asked for again."""
    first = Registry(tmp_path / "first" / "registry", make=True)
    released(first, model(tmp_path / "one"))
    second = first.push(model(tmp_path / "two", 2), "chat", "ann").version.text
    first.evaluated(second, FOUND, "ann")
    if what == "roll_back":
        first.promote(second, "ann", "", FREE)
    first.close()
    count, died = 0, True
    while died:
        shutil.copytree(tmp_path / "first", tmp_path / f"r{count}")
        folder = tmp_path / f"r{count}" / "registry"
        died = killed_after(count, folder, what, words)
        left = Registry(folder)
        left.verify()
        assert left.tables.aliases("chat") == {"serving": before if died else after}
        if died:
            getattr(left, what)(*eval(words))
            left.verify()
            assert left.tables.aliases("chat") == {"serving": after}
        left.close()
        count += 1
    assert count > 4  # it began, and died before the move, the line of the log, and their commit


def test_whoever_is_approved_while_another_promotes_is_judged_by_one_moment(
    registry: Registry, tmp_path: Path
) -> None:
    """A second process cannot move the alias between the judgement and the move."""
    released(registry, model(tmp_path / "one"))
    registry.push(model(tmp_path / "two", 2), "chat", "ann")
    registry.evaluated("chat:2", FOUND, "ann")
    other = sqlite3.connect(registry.folder / "registry.sqlite", timeout=0.0, isolation_level=None)
    judged = registry.judge

    def disturbed(*words: object) -> object:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("insert into aliases values (null, 'chat', 'serving', 1, '', 'eve', '')")
        return judged(*words)  # type: ignore[arg-type]

    registry.judge = disturbed  # type: ignore[method-assign,assignment]
    assert registry.promote("chat:2", "ann", "", FREE).version == 2
    other.close()


def test_skopeo_reads_the_layout(registry: Registry, tmp_path: Path) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo: `make system`")
    pushed = registry.push(model(tmp_path / "one"), "chat", "ann")
    where = f"oci:{registry.folder}:chat:1"
    raw = subprocess.run(["skopeo", "inspect", "--raw", where], capture_output=True, check=True)
    assert [each["digest"] for each in json.loads(raw.stdout)["layers"]] == [
        f"sha256:{each.sha256}" for each in pushed.stored.files
    ]
    copied = tmp_path / "copy"
    subprocess.run(["skopeo", "copy", "--quiet", where, f"oci:{copied}:chat"], check=True)
    assert blobs.read_stored(copied, pushed.stored.digest).files == pushed.stored.files
