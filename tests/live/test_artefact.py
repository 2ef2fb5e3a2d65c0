"""Published folders: the name is the content, nothing half appears, nothing altered passes."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.core.errors import AlteredError, FileError
from twofold.live.training.artefact import (
    MANIFEST,
    describe_files,
    manifest_text,
    publish,
    verify,
    write_whole,
)

FILES = {"config.json": b"{}\n", "model.safetensors": b"\x00" * 1000, "deep/vocabulary.txt": b"a\nb\n"}


def folder_of(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def test_what_is_published_is_named_by_its_bytes_and_passes(tmp_path: Path) -> None:
    path = publish(folder_of(tmp_path / "hf", FILES), tmp_path / "artefacts")
    assert path.name.startswith("sha256-") and len(path.name) == len("sha256-") + 64
    assert {name: (path / name).read_bytes() for name in FILES} == FILES
    verify(path)


def test_a_file_that_cannot_take_its_name_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "page.json" / "in_the_way").mkdir(parents=True)
    with pytest.raises(OSError, match="page"):
        write_whole(tmp_path / "page.json", "{}")
    assert [each.name for each in tmp_path.iterdir()] == ["page.json"]


def test_published_files_are_read_only(tmp_path: Path) -> None:
    path = publish(folder_of(tmp_path / "hf", FILES), tmp_path / "artefacts")
    modes = {file.stat().st_mode & 0o222 for file in path.rglob("*") if file.is_file()}
    assert modes == {0}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(files=st.dictionaries(st.sampled_from(["a", "b", "c.json"]), st.binary(max_size=20), min_size=1))
def test_equal_content_has_one_digest_and_other_content_another(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    here = tmp_path_factory.mktemp("digests")
    one = describe_files(folder_of(here / "one", files))
    backwards = describe_files(folder_of(here / "two", dict(reversed(files.items()))))
    assert manifest_text(one) == manifest_text(backwards)
    first = next(iter(files))
    other = describe_files(folder_of(here / "other", {**files, first: files[first] + b"!"}))
    assert manifest_text(one) != manifest_text(other)


def test_publishing_twice_gives_the_folder_that_is_there(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "hf", FILES)
    first = publish(source, tmp_path / "artefacts")
    written_ns = (first / MANIFEST).stat().st_mtime_ns
    again = publish(folder_of(tmp_path / "elsewhere", FILES), tmp_path / "artefacts")
    assert again == first
    assert (again / MANIFEST).stat().st_mtime_ns == written_ns
    assert [path.name for path in (tmp_path / "artefacts").iterdir()] == [first.name]


def test_a_copy_that_was_cut_is_not_used_and_does_not_stay(tmp_path: Path) -> None:
    source, artefacts = folder_of(tmp_path / "hf", FILES), tmp_path / "artefacts"
    path = publish(source, artefacts)
    cut = artefacts / f".partial-{path.name.removeprefix('sha256-')}"
    path.rename(cut)  # as a kill just before the last rename leaves it
    (cut / "config.json").unlink()
    (cut / "of an older try").write_bytes(b"x")
    assert publish(source, artefacts) == path
    verify(path)
    assert not cut.exists()


@pytest.mark.parametrize("name", FILES)
def test_any_altered_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = publish(folder_of(tmp_path / "hf", FILES), tmp_path / "artefacts")
    content = bytearray((path / name).read_bytes())
    content[0] ^= 1
    (path / name).chmod(0o644)
    (path / name).write_bytes(content)
    with pytest.raises(AlteredError, match=name):
        verify(path)
    with pytest.raises(AlteredError, match=name):
        publish(tmp_path / "hf", tmp_path / "artefacts")


def test_a_missing_an_added_and_a_shortened_file_are_each_refused(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "hf", FILES)
    path = publish(source, tmp_path / "artefacts")
    (path / "added.bin").write_bytes(b"")
    with pytest.raises(AlteredError, match=r"added\.bin.* was added"):
        verify(path)
    (path / "added.bin").unlink()
    os.truncate(path / "model.safetensors", 999)
    with pytest.raises(AlteredError, match="has 999 bytes"):
        verify(path)
    (path / "model.safetensors").unlink()
    with pytest.raises(AlteredError, match="is missing"):
        verify(path)


def test_a_manifest_rewritten_to_fit_altered_files_does_not_fit_the_name(tmp_path: Path) -> None:
    path = publish(folder_of(tmp_path / "hf", FILES), tmp_path / "artefacts")
    (path / "config.json").chmod(0o644)
    (path / "config.json").write_bytes(b'{"trust": "me"}')
    (path / MANIFEST).chmod(0o644)
    (path / MANIFEST).write_text(manifest_text(describe_files(path)), "utf-8")
    with pytest.raises(AlteredError, match="named after"):
        verify(path)


def test_links_and_empty_folders_are_not_published(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileError, match="holds no files"):
        publish(empty, tmp_path / "artefacts")
    (empty / "link").symlink_to(tmp_path)
    with pytest.raises(FileError, match="not a plain file"):
        publish(empty, tmp_path / "artefacts")
