"""Keys are of a spec that is there."""

from pathlib import Path

import pytest

from twofold.app.keys import add_key, list_keys, revoke_keys
from twofold.core.errors import FileError


def test_a_name_that_is_no_spec_has_no_keys_and_makes_nothing(tmp_path: Path) -> None:
    for asked in (lambda spec: add_key(spec, "blue"), list_keys, lambda spec: revoke_keys(spec, "blue")):
        with pytest.raises(FileError, match="does not exist"):
            asked(tmp_path / "absent" / "x.yaml")
    assert not list(tmp_path.iterdir())


def test_keys_outlive_the_state_that_down_removes(tmp_path: Path) -> None:
    (tmp_path / "twofold.yaml").write_text("name: a\n")
    assert len(add_key(tmp_path, "blue").lines) == 2
    assert not (tmp_path / ".twofold").exists()
    assert [each.tenant for each in list_keys(tmp_path).keys] == ["blue"]


def test_a_second_key_of_a_tenant_says_that_the_first_one_opens_too(tmp_path: Path) -> None:
    (tmp_path / "twofold.yaml").write_text("name: a\n")
    add_key(tmp_path, "blue")
    add_key(tmp_path, "red")
    added = add_key(tmp_path, "blue")
    assert added.key_count == 2 and "`blue` has 2 keys now, and each of them opens" in str(added)
