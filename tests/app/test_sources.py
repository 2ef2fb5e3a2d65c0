from pathlib import Path

import pytest

from twofold.app import load
from twofold.core import FileError, InputErrors

TEXT = """\
name: small
model: llama-3.1-8b
training: {kind: finetune, tokens: 1 Gtok, deadline: 10 d}
"""
MAPPING = {
    "name": "small",
    "model": "llama-3.1-8b",
    "training": {"kind": "finetune", "tokens": "1 Gtok", "deadline": "10 d"},
}


def test_a_file_a_folder_a_text_and_a_mapping_give_the_same_spec(tmp_path: Path) -> None:
    path = tmp_path / "twofold.yaml"
    path.write_text(TEXT)
    spec = load(TEXT).spec
    assert load(path).spec == load(str(path)).spec == load(tmp_path).spec == load(MAPPING).spec == spec
    assert load(spec).spec == spec


def test_the_digest_follows_the_bytes(tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{name}.yaml" for name in "abc")
    first.write_text(TEXT)
    second.write_text(TEXT)
    third.write_text(TEXT + "# more\n")
    assert load(first).digest == load(second).digest != load(third).digest


def test_rows_beside_the_spec_override_the_catalogue(tmp_path: Path) -> None:
    (tmp_path / "twofold.yaml").write_text(TEXT)
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "accelerators.csv").write_text("name,tdp_w\nH100-SXM5-80GB,650\n")
    assert load(tmp_path).catalog.accelerator("H100-SXM5-80GB").tdp_w == 650
    assert load(TEXT).catalog.accelerator("H100-SXM5-80GB").tdp_w == 700


def test_a_folder_without_a_spec_and_a_wrong_mapping_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        load(tmp_path)
    with pytest.raises(InputErrors):
        load({**MAPPING, "modle": "x"})
