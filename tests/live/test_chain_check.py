"""Whatever is done to a sealed log is found, and nothing that a crash leaves of an honest one."""

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twofold.live.chain import digest_of_line, hung
from twofold.live.chain_check import check_chained
from twofold.live.chain_head import head_path
from twofold.live.chained_file import LINES, ChainedFile
from twofold.live.line_file import LineFile, note_line, written_files
from twofold.live.seals import sealed

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
LIMIT_BYTES = 1500  # of a file: five lines or six
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 4))  # files that are kept, lines at once


def said(number: int) -> str:
    return json.dumps({"request_id": f"r{number}", "outcome": "finished"}, separators=(",", ":"))


def written(path: Path, count: int = 25, key: bytes | None = KEY, file_count: int = 4) -> Path:
    log = ChainedFile(path, LIMIT_BYTES, file_count, key)
    for number in range(count):
        log.append(said(number))
        if number % 3 == 2:
            log.flush()
    log.stop()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of four files, of which the oldest lines are deleted, with a line that tells of lost ones."""
    path = tmp_path_factory.mktemp("whole") / "r.jsonl"
    log = ChainedFile(path, LIMIT_BYTES, 4, KEY)
    for number in range(46):
        log.append(said(number))
        if number == 20:
            log.lost_lines, log._number = 2, log._number + 2  # as if two had been dropped
        if number % 3 == 2:  # the last of three carries their seal
            log.flush()
    log.stop()
    found = check_chained(path, KEY)
    assert not found.broken and found.lost_count == 2 and len(written_files(path)) == 4 and found.first > 1
    assert path.stat().st_size > 0
    return path


@pytest.fixture(scope="module")
def log(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Another copy of it each time."""
    return lambda: (
        shutil.copytree(whole.parent, tmp_path_factory.mktemp("copy"), dirs_exist_ok=True) / whole.name
    )


def lines_of(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


def is_found(path: Path) -> bool:
    found = check_chained(path, KEY)
    return bool(found.broken) or found.unended_bytes > 0


def drawn_file(path: Path, data: st.DataObject) -> Path:
    return data.draw(st.sampled_from(written_files(path)))


@given(data=st.data())
def test_a_changed_byte_is_found(log: Callable[[], Path], data: st.DataObject) -> None:  # INV-38
    file = data.draw(st.sampled_from([*written_files(path := log()), head_path(path)]))
    whole = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    file.write_bytes(whole)
    assert check_chained(path, KEY).broken


@pytest.mark.parametrize("bits", [1, ord(" ") ^ ord("\t")])
def test_each_byte_of_the_head_counts(log: Callable[[], Path], bits: int) -> None:  # INV-38
    head = head_path(path := log())
    whole = head.read_bytes()
    for at in range(len(whole)):
        head.write_bytes(whole[:at] + bytes([whole[at] ^ bits]) + whole[at + 1 :])
        assert check_chained(path, KEY).broken, whole[:at]


@given(data=st.data())
def test_a_file_that_is_cut_anywhere_is_found(log: Callable[[], Path], data: st.DataObject) -> None:  # INV-38
    file = data.draw(st.sampled_from([*written_files(path := log()), head_path(path)]))
    file.write_bytes(file.read_bytes()[: data.draw(st.integers(0, file.stat().st_size - 1))])
    assert check_chained(path, KEY).broken


@given(data=st.data())
def test_bytes_that_are_put_in_or_taken_out_are_found(log: Callable[[], Path], data: st.DataObject) -> None:
    """INV-38. Behind the last line they are told as no line yet: what a kill left there looks the same."""
    whole = (file := drawn_file(path := log(), data)).read_bytes()
    begin = data.draw(st.integers(0, len(whole)))
    end = begin if begin == len(whole) else data.draw(st.integers(begin, len(whole)))
    put = data.draw(st.binary(min_size=0 if end > begin else 1, max_size=40))
    edited = whole[:begin] + put + whole[end:]
    file.write_bytes(edited)
    assert edited == whole or is_found(path)


@given(data=st.data())
def test_lines_that_are_dropped_repeated_or_swapped_are_found(
    log: Callable[[], Path], data: st.DataObject
) -> None:  # INV-38
    files = written_files(path := log())
    lines = [line for file in files for line in lines_of(file)]
    ends = [0, *(len(lines_of(file)) for file in files)]
    one, other = sorted(
        data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=2, max_size=2, unique=True))
    )
    match data.draw(st.sampled_from(["drop", "drop all between", "repeat", "swap", "move"])):
        case "drop":
            del lines[one]
        case "drop all between":
            del lines[one:other]
        case "repeat":
            lines.insert(other, lines[one])
        case "swap":
            lines[one], lines[other] = lines[other], lines[one]
        case "move":
            lines.insert(other, lines.pop(one))
    begin = 0
    for file, count in zip(files[:-1], ends[1:], strict=False):
        file.write_bytes(b"".join(lines[begin : begin + count]))
        begin += count
    files[-1].write_bytes(b"".join(lines[begin:]))
    assert check_chained(path, KEY).broken


@given(data=st.data())
def test_files_that_are_gone_exchanged_or_anothers_are_found(
    log: Callable[[], Path], data: st.DataObject
) -> None:
    """INV-38. A file that is renamed and stays in its order changes nothing that the log says."""
    files = written_files(path := log())
    one, other = data.draw(st.lists(st.sampled_from(files), min_size=2, max_size=2, unique=True))
    match data.draw(st.sampled_from(["gone", "over another", "exchanged", "head gone", "head of another"])):
        case "gone":
            one.rename(one.with_name("elsewhere"))
        case "over another":
            one.replace(other)
        case "exchanged":
            kept = one.read_bytes()
            other.replace(one)
            other.write_bytes(kept)
        case "head gone":
            head_path(path).unlink()
        case "head of another":
            shutil.copyfile(head_path(written(path.with_name("other") / path.name)), head_path(path))
    assert check_chained(path, KEY).broken


@given(data=st.data(), key=st.sampled_from([None, OTHER_KEY]), kind=st.sampled_from(["", "lost", "torn"]))
@example(data=None, key=None, kind="lost")
def test_a_line_that_who_has_no_key_puts_in_is_found_though_all_behind_it_is_hung_anew(
    log: Callable[[], Path], data: st.DataObject | None, key: bytes | None, kind: str
) -> None:  # INV-38
    files = written_files(path := log())
    file = files[1] if data is None else data.draw(st.sampled_from(files))
    lines = [line[:-1] for line in lines_of(file)]
    at = 2 if data is None else data.draw(st.integers(1, len(lines)))
    before = json.loads(lines[at - 1])
    number, hangs_on = before["number"], digest_of_line(lines[at - 1])
    forged = [note_line(kind, lines=3) if kind else said(99)]
    if data is not None and data.draw(st.booleans()):
        forged += [_without_place(line) for line in lines[at:]]  # the others are made to follow
        lines = lines[:at]
    made = []
    for text in forged:
        number += 1
        line = hung(f'{text[:-1]},"number":{number}}}', hangs_on).encode()
        if key is not None:
            line = line[:-1] + f',"seal":"{sealed(key, LINES, digest_of_line(line))}"}}'.encode()
        hangs_on = digest_of_line(line)
        made.append(line)
    lines[at:at] = made
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    assert is_found(path)


@given(data=st.data(), behind=st.sampled_from(["kept", "dropped", "garbled", "cut off"]))
def test_what_is_named_begins_no_later_than_what_was_written_anew_without_the_key(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, behind: str
) -> None:
    """INV-38. What stands before the first place, and before the numbers that it names, is as it was."""
    path = tmp_path_factory.mktemp("anew") / "r.jsonl"
    log = ChainedFile(path, 1 << 20, 1, KEY)
    for number in range(24):
        log.append(said(number))
        if number % 3 == 2:
            log.write_lines()
    log.stop()
    lines = [line[:-1] for line in lines_of(path)]
    begin = data.draw(st.integers(0, 22))
    end = data.draw(st.integers(begin + 1, 23))
    for at in range(begin, end):
        before = digest_of_line(lines[at - 1]) if at else json.loads(lines[0])["before"]
        lines[at] = hung(f'{said(99)[:-1]},"number":{at + 1}}}', before).encode()
    match behind:
        case "dropped":
            del lines[end]
        case "garbled":
            lines[end] = b"garbage"
        case "cut off":
            del lines[end:]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    found = check_chained(path, KEY)
    places = [[each.line or len(lines) + 1, *map(int, re.findall(r"\d+", each.why))] for each in found.broken]
    assert places and min(places[0]) <= begin + 1, found.broken


def _without_place(line: bytes) -> str:
    told = {
        name: value for name, value in json.loads(line).items() if name not in ("number", "before", "seal")
    }
    return json.dumps(told, separators=(",", ":"))


class Killed(BaseException):
    """The process is no more."""


class Machine:
    """What a process does to its disk until it is killed, behind so many bytes of lines and steps."""

    def __init__(self, left: int, patched: pytest.MonkeyPatch) -> None:
        self.left = left
        self._steps = {name: getattr(Path, name) for name in ("replace", "rename", "unlink")}
        patched.setattr("twofold.live.line_file.os", SimpleNamespace(**{**vars(os), "write": self.write}))
        for name in self._steps:
            patched.setattr(Path, name, self.step(name))

    def write(self, file: int, data: bytes) -> int:
        count = min(self.left, len(data))
        self.left -= count
        os.write(file, data[:count])
        if count < len(data):
            raise Killed
        return count

    def step(self, name: str) -> Callable[..., object]:
        def done(path: Path, *more: object, **named: object) -> object:
            if self.left <= 0:
                raise Killed
            self.left -= 1
            return self._steps[name](path, *more, **named)

        return done


def run_until_killed(path: Path, left: int, file_count: int, at_once: int, first: int) -> int:
    """A gateway's life; how many of its lines are surely written."""
    sure = first
    with pytest.MonkeyPatch.context() as patched, suppress(Killed):
        Machine(left, patched)
        log: LineFile | None = None
        try:
            log = ChainedFile(path, LIMIT_BYTES, file_count, KEY)
            for number in range(first, first + 24):
                log.append(said(number))
                if number % at_once == 0:
                    log.flush()
                    sure = number + 1
        finally:
            if log is not None:
                log.close()
    return sure


@given(
    shape=SHAPES,
    kills=st.lists(st.integers(0, 9000), min_size=1, max_size=4),
)
@example(shape=(1, 1), kills=[0, 0, 1, 1, 2])
def test_whatever_a_kill_leaves_of_an_honest_log_is_gone_on_with(
    shape: tuple[int, int], kills: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:  # INV-39
    path, (file_count, at_once) = tmp_path_factory.mktemp("log") / "r.jsonl", shape
    sure, torn = 0, 0
    for left in kills:
        sure = run_until_killed(path, left, file_count, at_once, sure)
        if head_path(path).exists():  # before that there is no log
            assert not check_chained(path, KEY).broken, "as it lies there"
    torn = check_chained(path, KEY).unended_bytes
    log = ChainedFile(path, LIMIT_BYTES, file_count, KEY)
    log.append(said(sure))
    log.stop()
    found = check_chained(path, KEY)
    assert not found.broken and found.unended_bytes == 0
    lines = [json.loads(line) for file in written_files(path) for line in lines_of(file)]
    if torn and file_count > 1:
        assert {"log": "torn", "bytes": torn}.items() <= lines[-2].items(), "it is named"
    told = [int(line["request_id"][1:]) for line in lines if "request_id" in line]
    assert found.first != 1 or set(range(sure)) <= set(told), "nothing sure is lost"
    assert told[-1:] == [sure] or file_count == 1
    assert all(one["number"] + 1 == other["number"] for one, other in pairwise(lines))
