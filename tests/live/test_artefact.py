"""Folders with a manifest: nothing half appears, nothing altered passes, a digest names just one content."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.core.errors import AlteredError, FileError
from twofold.live.training.artefact import (
    MANIFEST,
    check_files,
    check_model,
    describe_files,
    manifest_text,
    write_manifest,
    write_whole,
)

FILES = {"config.json": b"{}\n", "model.safetensors": b"\x00" * 1000, "deep/vocabulary.txt": b"a\nb\n"}


def folder_of(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def model_of(path: Path) -> tuple[Path, str]:
    """A folder with its manifest, and the digest that names it."""
    write_manifest(folder_of(path, FILES))
    return path, f"sha256:{hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()}"


def test_a_file_that_cannot_take_its_name_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "page.json" / "in_the_way").mkdir(parents=True)
    with pytest.raises(OSError, match="page"):
        write_whole(tmp_path / "page.json", "{}")
    assert [each.name for each in tmp_path.iterdir()] == ["page.json"]


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


@pytest.mark.parametrize("name", FILES)
def test_any_altered_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder, digest = model_of(tmp_path / "model")
    check_model(folder, digest)
    content = bytearray((folder / name).read_bytes())
    content[0] ^= 1
    (folder / name).write_bytes(content)
    for check in (lambda: check_files(folder), lambda: check_model(folder, digest)):
        with pytest.raises(AlteredError, match=name):
            check()


def test_a_missing_an_added_and_a_shortened_file_are_each_refused(tmp_path: Path) -> None:
    folder, digest = model_of(tmp_path / "model")
    (folder / "added.bin").write_bytes(b"")
    with pytest.raises(AlteredError, match=r"added\.bin.* was added"):
        check_model(folder, digest)
    (folder / "added.bin").unlink()
    os.truncate(folder / "model.safetensors", 999)
    with pytest.raises(AlteredError, match="has 999 bytes"):
        check_model(folder, digest)
    (folder / "model.safetensors").unlink()
    with pytest.raises(AlteredError, match="is missing"):
        check_model(folder, digest)


def test_a_manifest_rewritten_to_fit_altered_files_does_not_fit_the_digest(tmp_path: Path) -> None:
    folder, digest = model_of(tmp_path / "model")
    (folder / "config.json").write_bytes(b'{"trust": "me"}')
    (folder / MANIFEST).write_text(manifest_text(describe_files(folder)), "utf-8")
    check_files(folder)
    with pytest.raises(AlteredError, match=f"is not that of {digest[:19]}"):
        check_model(folder, digest)


@pytest.mark.parametrize(
    "manifest",
    ["[" * 100_000, "{}", '{"layers": [{}]}', '{"layers": 3}', "[3]", '[{"path": "a"}]', "null", "\x00"],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, manifest: str) -> None:
    folder, _ = model_of(tmp_path / "model")
    (folder / MANIFEST).write_text(manifest, "utf-8")
    with pytest.raises(AlteredError, match="cannot be read"):
        check_files(folder)


def test_a_folder_of_the_registry_is_checked_by_the_registrys_own_manifest(tmp_path: Path) -> None:
    folder, _ = model_of(tmp_path / "model")
    layers = [
        {
            "annotations": {"org.opencontainers.image.title": each.path},
            "digest": f"sha256:{each.sha256}",
            "size": each.size_bytes,
        }
        for each in describe_files(folder)
    ]
    text = json.dumps({"layers": layers})
    (folder / MANIFEST).write_text(text)
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    check_model(folder, digest)
    (folder / "config.json").write_bytes(b"[]\n")
    with pytest.raises(AlteredError, match="config"):
        check_model(folder, digest)


def test_links_are_no_part_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(FileError, match="not a plain file"):
        write_manifest(tmp_path)
