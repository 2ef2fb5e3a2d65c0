"""Text from files to shards: every kind that is read, staged once, pinned, never another file's bytes."""

import gzip
import json
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.slow_files import slow_files
from twofold.core.errors import AlteredError, FileError, MissingExtraError, RunError, ValueRefusedError

pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")
pytest.importorskip("fsspec", reason="needs the extra [train]: `make extras`")

from twofold.live.training.data_preparing import DataWanted, first_order, prepare_data
from twofold.live.training.data_sources import documents, list_files
from twofold.live.training.data_staging import (
    SETTINGS,
    Stager,
    data_digest,
    drop_altered,
    pin_path,
    pins_of,
    read_settings,
    stage,
)
from twofold.live.training.token_shard import TOKENS, open_shard
from twofold.live.training.training_record import append_event

TEXTS = ["one fish", "two fish", "red fish: blå fisk", "blue fish"]
WANTED = DataWanted("", 1000, "text", 1, "", 300, Path("/nowhere"), seed=1)


def write_lines(path: Path, texts: list[str], column: str = "text") -> Path:
    path.write_text("".join(json.dumps({column: text}) + "\n" for text in texts), "utf-8")
    return path


def prepared(tmp_path: Path, **changes: object) -> Path:
    """A run's folder with two files of text."""
    text = tmp_path / "text"
    if not text.exists():
        text.mkdir()
        write_lines(text / "a.jsonl", TEXTS)
        write_lines(text / "b.jsonl", [text + "!" for text in TEXTS])
    run = tmp_path / "run"
    prepare_data(run, tmp_path / "staged", replace(WANTED, data=str(text), **changes), lambda _: None)  # type: ignore[arg-type]
    return run


def test_text_lines_packed_lines_and_tables_are_read_alike(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "a.jsonl", TEXTS)
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    (tmp_path / "a.txt").write_text(TEXTS[2], "utf-8")
    assert list(documents(lines, "a.jsonl", "text")) == TEXTS
    assert list(documents(packed, "s3://b/a.jsonl.gz", "text")) == TEXTS
    assert list(documents(tmp_path / "a.txt", "a.txt", "text")) == [TEXTS[2]]


def test_parquet_is_read_by_its_column(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs the extra [data]: `make extras`")
    from pyarrow.parquet import write_table

    path = tmp_path / "a.parquet"
    write_table(arrow.table({"said": [*TEXTS, None, ""], "length": [1] * 6}), path)
    assert list(documents(path, "a.parquet", "said")) == TEXTS
    with pytest.raises(FileError, match="no column `text`"):
        list(documents(path, "a.parquet", "text"))
    with pytest.raises(FileError, match="holds no text"):
        list(documents(path, "a.parquet", "length"))


def test_parquet_without_its_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.live.training.data_sources.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="pyarrow"):
        list(documents(tmp_path / "a.parquet", "a.parquet", "text"))


@pytest.mark.parametrize(
    ("line", "said"), [("[1]", "no text under `text`"), ("{", "no JSON"), ("[" * 100_000, "no JSON")]
)
def test_a_line_that_holds_no_text_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = write_lines(tmp_path / "a.jsonl", TEXTS)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(FileError, match=said) as caught:
        list(documents(path, "a.jsonl", "text"))
    assert caught.value.place is not None and caught.value.place.line == 5


def test_patterns_folders_and_lists_name_files_in_one_order(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.txt"):
        (tmp_path / name).write_text("")
    names = [file.rsplit("/", 1)[-1] for file in list_files(f"{tmp_path}/*.jsonl,{tmp_path}/c.txt")]
    assert names == ["a.jsonl", "b.jsonl", "c.txt"]
    assert [file.rsplit("/", 1)[-1] for file in list_files(str(tmp_path))] == names
    with pytest.raises(FileError, match="names no file"):
        list_files(str(tmp_path / "*.parquet"))
    with pytest.raises(ValueRefusedError, match="named twice"):
        list_files(f"{tmp_path},{tmp_path}/c.txt")
    with pytest.raises(MissingExtraError, match="nowhere"):
        list_files("nowhere://bucket/a")


def test_a_staged_shard_says_the_text_again_and_is_staged_once(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    run = prepared(tmp_path)
    settings = read_settings(run)
    pin = stage(run, settings, 0)
    folder = tmp_path / "staged" / pin.key
    shard = open_shard(folder)
    tokenizer = Tokenizer.from_file(str(Path(settings.tokenizer) / "tokenizer.json"))
    said = [tokenizer.decode(shard.tokens[start:end].tolist())
            for start, end in zip(shard.starts, shard.ends, strict=True)]  # fmt: skip
    assert said == TEXTS and pin.document_count == len(TEXTS) and pin.token_count == len(shard.tokens)
    written_ns = (folder / TOKENS).stat().st_mtime_ns
    other = tmp_path / "other"  # a run of the same data finds what was staged
    (other).mkdir()
    (other / "data.json").write_text((run / "data.json").read_text())
    assert stage(other, settings, 0).key == pin.key
    assert (folder / TOKENS).stat().st_mtime_ns == written_ns


def test_a_file_that_changed_since_it_was_read_is_refused(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    settings = read_settings(run)
    pin = stage(run, settings, 0)
    write_lines(tmp_path / "text" / "a.jsonl", [*TEXTS, "a new line"])
    assert stage(run, settings, 0) == pin  # what was staged stays what the run reads
    shard = tmp_path / "staged" / pin.key
    (shard / TOKENS).chmod(0o644)
    (shard / TOKENS).write_bytes(b"")
    assert drop_altered(run, settings) == [settings.files[0]]
    with pytest.raises(AlteredError, match="is not what this run has read"):
        stage(run, settings, 0)


def test_the_digest_is_of_the_bytes_and_another_one_is_refused(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    pins = [stage(run, read_settings(run), number) for number in (0, 1)]
    digest = data_digest(pins)
    os.utime(tmp_path / "text" / "a.jsonl")  # the same bytes of another time
    assert prepared(tmp_path, digest=digest) == run
    with pytest.raises(AlteredError, match="as asked for"):
        prepared(tmp_path, digest="0" * 64)


def test_a_leader_stages_ahead_and_the_others_find_it(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    settings, told = read_settings(run), []
    pin_path(run, 0).unlink(missing_ok=True)
    pin_path(run, 1).unlink(missing_ok=True)
    order = first_order(2, seed=1)
    leader = Stager(run, settings, order, is_leader=True, tell=told.append)
    follower = Stager(run, settings, order, is_leader=False, tell=told.append)
    try:
        first = leader.open(order[0])
        assert follower.open(order[0]).tokens.tolist() == first.tokens.tolist()
        follower.open(order[1])  # nobody asked the leader for it yet
        leader.open(order[1])
    finally:
        leader.close()
    assert {pin.file for pin in pins_of(run)} == set(settings.files)
    assert len(told) == 1 and all(each["fetch_s"] >= 0 for each in told)


def test_a_file_that_never_ends_is_named_in_an_event_and_in_the_error_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    psutil = pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
    from twofold.live.training import data_staging, train_job
    from twofold.live.training.run_watch import RunWatch

    run = prepared(tmp_path)
    monkeypatch.setattr(data_staging, "TELL_AFTER_S", 0.2)
    monkeypatch.setattr(train_job, "SILENCE_LIMIT_S", 0.3)
    with slow_files(1, 600.0) as address:
        settings = replace(read_settings(run), files=(address,))
        (run / SETTINGS).write_text(json.dumps(asdict(settings)), "utf-8")
        pin_path(run, 0).unlink(missing_ok=True)
        named = threading.Event()

        def waiting(file: str) -> None:
            append_event(run, train_job.WAITING, file=file)
            named.set()

        stager = Stager(run, settings, (0,), is_leader=True, tell=print, tell_waiting=waiting)
        opening = ThreadPoolExecutor(1)
        begun = opening.submit(stager.open, 0)
        idle = subprocess.Popen(["sleep", "600"])
        try:
            assert named.wait(60.0), "nothing was said"
            job = train_job.TrainJob("stalled", run, tmp_path / "config.json", 1, 1, 8, 1)
            watch = RunWatch(run, 1)
            series = train_job.run_series(job, watch)
            with pytest.raises(RunError, match=f"did nothing .* it waits for `{address}`"):
                train_job._watch(job, tmp_path, psutil.Process(idle.pid), watch, series, print)
            assert not begun.done()
        finally:
            idle.kill()
            idle.wait()
            pin_path(run, 0).unlink(missing_ok=True)
            stager.close()
            begun.cancel()


def test_a_full_disk_is_said_so_and_leaves_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    number = next(number for number in (0, 1) if not pin_path(run, number).exists())
    monkeypatch.setattr("twofold.live.training.data_staging.write_shard", full)
    with pytest.raises(FileError, match="No space left"):
        stage(run, read_settings(run), number)
    assert not [
        path for path in (tmp_path / "staged").iterdir() if path.name.startswith((".partial", ".fetched"))
    ]
