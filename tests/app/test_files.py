from pathlib import Path

import pytest

from twofold.app import whole_file


def test_a_file_is_there_when_all_is_written(tmp_path: Path) -> None:
    with whole_file(tmp_path / "out.txt") as handle:
        handle.write("all")
        assert not (tmp_path / "out.txt").exists()
    assert (tmp_path / "out.txt").read_text() == "all"


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as handle:
        handle.write("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
