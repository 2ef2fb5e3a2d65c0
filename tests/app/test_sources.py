"""What a spec's digest stands for: the spec, and every file that it names."""

import os
import stat
import threading
from pathlib import Path

import pytest

from twofold.app.sources import load, whole_file
from twofold.core.errors import FileError

EXAMPLE = Path(__file__).parents[2] / "examples" / "laptop"


def test_another_model_file_is_another_digest(tmp_path: Path) -> None:
    for name in ("twofold.yaml", "config.json"):
        (tmp_path / name).write_text((EXAMPLE / name).read_text("utf-8"), "utf-8")
    before = load(tmp_path).digest
    assert load(tmp_path).digest == before
    config = tmp_path / "config.json"
    config.write_text(config.read_text("utf-8").replace('"num_hidden_layers": 6', '"num_hidden_layers": 7'))
    assert load(tmp_path).digest != before


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


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    with whole_file(tmp_path / "link.txt") as handle:
        handle.write("all")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "all"


def test_a_device_or_a_pipe_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with whole_file(pipe) as handle:
        handle.write("all")
    reader.join(10.0)
    assert read == ["all"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_pipe_that_is_closed_early_is_told_by_its_name(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_RDONLY)))
    reader.start()
    with pytest.raises(FileError, match="pipe"), whole_file(pipe) as handle:
        reader.join(10.0)
        handle.write("all" * 100_000)
