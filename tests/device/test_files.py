"""A measured device is written whole, read back equal, and refused when it was altered."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from twofold.core.errors import AlteredError, FileError
from twofold.device.files import (
    DeviceRecord,
    FitError,
    Identity,
    digest_of,
    notes_about,
    read_device,
    this_identity,
    write_device,
)

TABLES = {"accelerators.csv": "name\nx\n", "nodes.csv": "name\ny\n", "constants.csv": "# version 1\n"}
HERE = Identity("a processor", 4, 16 * 2**30)
DAY = date(2026, 1, 2)


def record(identity: Identity = HERE) -> DeviceRecord:
    fit = (FitError("gemm", 12, 0.05, 0.2),)
    return DeviceRecord("this-machine", DAY, identity, "torch 9", 2, 20.5, fit, digest_of(TABLES))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "device"
    write_device(folder, TABLES, record())
    assert read_device(folder) == (record(), TABLES["constants.csv"])


def test_writing_again_replaces_everything_and_leaves_nothing_beside(tmp_path: Path) -> None:
    folder = tmp_path / "device"
    write_device(folder, TABLES, record())
    (folder / "stray.csv").write_text("left from before")
    write_device(folder, TABLES, record())
    assert sorted(path.name for path in folder.iterdir()) == sorted([*TABLES, "device.json"])
    assert list(tmp_path.iterdir()) == [folder]


def test_remains_of_an_interrupted_writing_are_cleared(tmp_path: Path) -> None:
    (tmp_path / ".device.unfinished").mkdir()
    (tmp_path / ".device.unfinished" / "nodes.csv").write_text("half")
    write_device(tmp_path / "device", TABLES, record())
    assert read_device(tmp_path / "device")[0] == record()


@pytest.mark.parametrize("name", TABLES)
def test_an_altered_table_is_refused(tmp_path: Path, name: str) -> None:
    write_device(tmp_path / "device", TABLES, record())
    (tmp_path / "device" / name).write_text(TABLES[name] + "more")
    with pytest.raises(AlteredError):
        read_device(tmp_path / "device")


def test_a_missing_table_or_a_torn_record_is_a_file_error(tmp_path: Path) -> None:
    write_device(tmp_path / "device", TABLES, record())
    (tmp_path / "device" / "nodes.csv").unlink()
    with pytest.raises(FileError):
        read_device(tmp_path / "device")
    write_device(tmp_path / "device", TABLES, record())
    (tmp_path / "device" / "device.json").write_text('{"schema": ')
    with pytest.raises(FileError):
        read_device(tmp_path / "device")


def test_a_fresh_device_of_this_machine_needs_no_note() -> None:
    assert notes_about(record(), DAY, HERE) == ()
    assert notes_about(record(), None, HERE) == ()


def test_another_machine_and_old_age_are_said() -> None:
    elsewhere = Identity("another processor", 4, 16 * 2**30)
    assert len(notes_about(record(elsewhere), DAY, HERE)) == 1
    assert len(notes_about(record(), DAY + timedelta(days=90), HERE)) == 0
    (old,) = notes_about(record(), DAY + timedelta(days=91), HERE)
    assert "91 days" in old


def test_a_little_less_memory_is_the_same_machine() -> None:
    assert HERE.is_same(Identity("a processor", 4, int(15.8 * 2**30)))
    assert not HERE.is_same(Identity("a processor", 4, 8 * 2**30))
    assert not HERE.is_same(Identity("a processor", 8, 16 * 2**30))


def test_this_machine_is_itself() -> None:
    here = this_identity()
    assert here.processor and here.core_count >= 1 and here.memory_bytes > 2**28
    assert here.is_same(this_identity())
