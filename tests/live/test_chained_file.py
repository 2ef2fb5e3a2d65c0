"""The log of decisions: what its writer leaves is whole, and what anybody does to it afterwards is found."""

import errno
import hashlib
import json
import os
import resource
import shutil
import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.live.outcomes import outcome_of
from twofold.app.operating import verify_log
from twofold.core.errors import AlteredError, FileError, UsageError
from twofold.live.chain_check import Checked, check_chained
from twofold.live.chain_head import head_path, head_text, read_head
from twofold.live.chained_file import ChainedFile
from twofold.live.gateway.request_log import key_beside
from twofold.live.line_file import written_files
from twofold.live.seals import key_of

KEY = b"k" * 32
LONG = 1 << 20


def writer(path: Path, limit_bytes: int = LONG, file_count: int = 4, key: bytes | None = KEY) -> ChainedFile:
    return ChainedFile(path, limit_bytes, file_count, key)


def write(log: ChainedFile, count: int, at_once: int = 3) -> None:
    for number in range(count):
        log.append(json.dumps({"request_id": f"r{number}", "outcome": "finished"}, separators=(",", ":")))
        if number % at_once == at_once - 1:
            log.flush()
    log.flush()


def written(path: Path, count: int = 10, key: bytes | None = KEY) -> Path:
    log = writer(path, key=key)
    write(log, count)
    log.stop()
    return path


def whys(path: Path, key: bytes | None = KEY) -> list[tuple[str, int, str]]:
    return [(place.file.name, place.line, place.why) for place in check_chained(path, key).broken]


def test_what_is_written_is_whole_and_its_newest_digest_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl")
    found = check_chained(path, KEY)
    assert found == Checked(1, 10, 10, 0, 0, 0, 0, found.digest, sealed=True)
    again = writer(path)  # the next process goes on where this one ended
    write(again, 5)
    again.stop()
    assert check_chained(path, KEY).number == 15 and not whys(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(1, 16))
    assert lines[0]["request_id"] == "r0"
    # The last of each three that were written together is sealed, and the last of each writer.
    assert [line["number"] for line in lines if len(line.get("seal", "")) == 64] == [3, 6, 9, 10, 13, 15]


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7), is_sealed=st.booleans())
@example(at=0, bit=0, is_sealed=True)
@example(at=10**6, bit=0, is_sealed=True)
def test_any_one_changed_bit_is_found_and_its_line_named(
    at: int, bit: int, is_sealed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    key = KEY if is_sealed else None
    path = written(tmp_path_factory.mktemp("log") / "r.jsonl", key=key)
    data = bytearray(path.read_bytes())
    at = min(at % len(data), len(data) - 1)
    line = data[:at].count(b"\n") + 1
    data[at] ^= 1 << bit
    path.write_bytes(data)
    places = whys(path, key)
    assert places
    _, found, why = places[0]
    end = "missing at its end" in why or "missing before it" in why  # a line break that was changed
    assert found in (line, line + 1) or end or f"number {line}" in why, (line, places)


@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize(
    ("change", "line", "why"),
    [
        (lambda lines: lines.pop(4), 5, "number 5 is missing before it"),
        (lambda lines: [lines.pop(4), lines.pop(4)], 5, "numbers 5 to 6 are missing before it"),
        (lambda lines: lines.pop(0), 0, "numbers 1 to 1 are missing at its beginning"),
        (lambda lines: lines.pop(), 0, "numbers 10 to 10 are missing at its end"),
        (lambda lines: lines.insert(4, lines.pop(5)), 5, "number 5 is missing before it"),
        (lambda lines: lines.insert(4, lines[3]), 5, "number 4 stands behind 4"),
        (lambda lines: lines.insert(4, b"{}"), 5, "it was changed: no line of a log ends so"),
        (lambda lines: lines.clear(), 0, "numbers 1 to 10 are missing at its end"),
    ],
)
def test_dropped_moved_and_added_lines_are_found_and_named(change, line, why, key, tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", key=key)
    lines = path.read_bytes().splitlines()
    change(lines)
    path.write_bytes(b"".join(each + b"\n" for each in lines))
    file, found, said = whys(path, key)[0]
    assert (file, found) == ("r.jsonl", line) and said.partition("; ")[0] == why


@pytest.mark.parametrize("key", [KEY, None])
def test_a_byte_in_the_place_of_its_escape_is_a_change(key: bytes | None, tmp_path: Path) -> None:
    """Digests are of bytes: what both look like as text is the same."""
    path = tmp_path / "r.jsonl"
    log = writer(path, key=key)
    log.append(json.dumps({"request_id": "\\xff"}))
    write(log, 3)
    log.stop()
    assert b"\\xff" in path.read_bytes() and not whys(path, key)
    path.write_bytes(path.read_bytes().replace(b"\\xff", b"\xff"))
    assert whys(path, key)


def test_a_log_that_somebody_else_wrote_whole_has_no_seals_of_ours(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", key=b"o" * 32)
    assert whys(path)[0] == (
        *("r.jsonl", 3),
        "it was changed: its seal does not fit; nothing vouches for number 1 and those behind it",
    )
    bare = written(tmp_path / "bare.jsonl", key=None)
    assert whys(bare)[0][1] == 1 and whys(bare)[0][2].startswith("it has no seal; ")


def test_lines_that_vanish_while_nobody_writes_are_found_after_the_next_start(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    for removed in (b"".join(lines[:-1]), b"".join(lines[:-3])):
        path.write_bytes(removed)
        log = writer(path)
        write(log, 2)
        log.stop()
        assert any("the writer began here" in why for _, _, why in whys(path))
    head_path(path).unlink()
    assert "lines may be missing" in whys(path)[-1][2]
    log = writer(path)  # without a head nobody knows what was there
    log.stop()
    assert sum("the writer began here" in why for _, _, why in whys(path)) >= 2


def test_a_kill_between_a_line_and_the_head_breaks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    log = writer(path)
    write(log, 3)
    head = head_path(path).read_bytes()
    write(log, 3)
    head_path(path).write_bytes(head)  # as if killed before it was written
    with path.open("ab") as file:
        file.write(b'{"request_id":"torn')
    assert not whys(path)
    log = writer(path)
    write(log, 3)
    log.stop()
    found = check_chained(path, KEY)
    assert not found.broken and (found.number, found.torn_count) == (10, 1)


def test_rotation_keeps_the_chain_and_a_file_that_is_gone_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    log = writer(path, limit_bytes=1500, file_count=3)
    write(log, 100)
    found = check_chained(path, KEY)
    assert not found.broken and found.number == 100 and 1 < found.first < 95
    log.stop()
    log = writer(path, limit_bytes=1500, file_count=3)
    write(log, 30)
    assert not whys(path) and check_chained(path, KEY).number == 130
    oldest, middle = (path.with_name(f"r.jsonl.{number}") for number in (2, 1))
    kept = oldest.read_bytes()
    oldest.unlink()
    assert "missing at its beginning" in whys(path)[0][2]
    oldest.write_bytes(kept)
    middle.unlink()
    assert "missing" in whys(path)[0][2]  # before the next line, or at the end where there is none yet


def test_lines_that_a_full_disk_lost_are_told_and_break_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.live.line_file.LOST_LIMIT_BYTES", 2000)
    path = tmp_path / "r.jsonl"
    log = writer(path)
    write(log, 3)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 70, hard))
    try:
        write(log, 60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    write(log, 3)
    log.stop()
    found = check_chained(path, KEY)
    assert not found.broken and 40 < found.lost_count <= 61
    assert found.line_count + found.lost_count == found.number


def lost_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three lines, then one that tells of lost ones, and three more."""
    monkeypatch.setattr("twofold.live.line_file.LOST_LIMIT_BYTES", 1)
    log = writer(path)
    write(log, 3)
    real = os.write
    with monkeypatch.context() as full:
        full.setattr("twofold.live.line_file.os.write", lambda file, data: real(file, data[:9]))
        write(log, 4, at_once=4)
    write(log, 3)
    log.stop()
    return path


def test_a_line_that_tells_of_lost_ones_hides_none_that_was_put_in_or_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lost_log(tmp_path / "r.jsonl", monkeypatch)
    whole = path.read_bytes().splitlines(keepends=True)
    [at] = [place for place, line in enumerate(whole) if line.startswith(b'{"log":"lost"')]
    before = hashlib.sha256(whole[at - 1][:-1]).hexdigest()
    forged = {"request_id": "forged", "number": json.loads(whole[at - 1])["number"] + 1, "before": before}
    for changed in (
        [*whole[: at - 1], *whole[at:]],
        [*whole[:at], f"{json.dumps(forged, separators=(',', ':'))}\n".encode(), *whole[at:]],
        [*whole[: at - 1], whole[at - 1].replace(b"finished", b"refused "), *whole[at:]],
        [*whole[:at], *whole[at + 1 :]],
    ):
        path.write_bytes(b"".join(changed))
        assert whys(path), changed
    path.write_bytes(b"".join(whole))
    assert not whys(path) and check_chained(path, KEY).lost_count == 3


@pytest.mark.parametrize("key", [KEY, None])
def test_a_kill_or_a_full_disk_in_the_middle_of_a_line_is_named_once_and_the_log_goes_on(
    key: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "r.jsonl", os.write
    log = writer(path, key=key)
    write(log, 3)
    size = path.stat().st_size
    with monkeypatch.context() as full:  # of the next five two and a half are written, whatever is tried
        left = [size * 5 // 6]

        def taken(file: int, data: bytes) -> int:
            count = min(left[0], len(data))
            left[0] -= count
            if not count:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(file, data[:count])

        full.setattr("twofold.live.line_file.os.write", taken)
        write(log, 5, at_once=5)
        log.close()
    torn = check_chained(path, key).unended_bytes
    assert torn > 0 and not whys(path, key)
    for _ in range(2):
        log = writer(path, key=key)
        write(log, 2)
        log.stop()
        found = check_chained(path, key)
        assert not found.broken and (found.torn_count, found.unended_bytes) == (1, 0)
    whole = 0 if key else 2  # lines that nothing vouches for without the last one's seal are cut off with it
    assert found.number == found.line_count == 3 + whole + 1 + 4
    [note] = [json.loads(line) for line in path.read_text().splitlines() if '"torn"' in line]
    assert note["bytes"] == torn and note["number"] == 4 + whole


def test_a_kill_before_the_first_head_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is there before any line is; where the disk refuses it the lines wait."""
    path = tmp_path / "r.jsonl"
    with monkeypatch.context() as full:
        full.setattr("twofold.live.chained_file.put_in_place", refused)
        log = writer(path)
        write(log, 3)
        assert path.read_bytes() == b"" and log.refusal is not None and log.lost_lines == 0
    write(log, 3)
    log.close()
    found = check_chained(path, KEY)
    assert (found.line_count, found.broken, log.refusal) == (6, (), None)


def refused(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_is_not_rotated_while_the_head_cannot_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.jsonl"
    log = writer(path, limit_bytes=1000, file_count=2)
    write(log, 12)
    with monkeypatch.context() as full:
        full.setattr("twofold.live.chained_file.put_in_place", refused)
        write(log, 12)
        assert not whys(path)
    write(log, 12)
    assert not whys(path) and check_chained(path, KEY).number == 36
    log.stop()


def test_nothing_is_open_once_it_is_closed(tmp_path: Path) -> None:
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        log = writer(tmp_path / "r.jsonl")
        write(log, 3)
        log.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


def test_a_log_goes_on_upon_the_disk_that_comes_to_its_disks_place(tmp_path: Path) -> None:
    path = tmp_path / "disk" / "r.jsonl"
    log = writer(path)
    write(log, 3)
    assert log._file is not None
    os.dup2(os.open(path, os.O_RDONLY), log._file)  # it takes nothing any more
    write(log, 3)
    path.parent.rename(tmp_path / "old")
    write(log, 1)
    path.parent.mkdir()
    write(log, 3)
    write(log, 3)
    found, old = check_chained(path, KEY), check_chained(tmp_path / "old" / "r.jsonl", KEY)
    assert (found.first, found.number, found.broken) == (4, 13, ())
    assert (old.first, old.number, old.broken) == (1, 3, ())
    log.stop()


def test_a_line_longer_than_what_is_read_of_an_end_is_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for _ in range(2):
        log = writer(path)
        log.append(json.dumps({"request_id": "r" * 200_000}))
        log.stop()
    assert not whys(path) and check_chained(path, KEY).number == 2


def test_a_link_of_the_chain_costs_less_than_the_line_itself(tmp_path: Path) -> None:
    """Processor time of both in the same turns: a fifth where it was measured, 1 µs of a request."""
    from twofold.live.gateway.request_log import line_of

    outcome, log, ratios = outcome_of(at_s=1.8e9), writer(tmp_path / "r.jsonl"), []
    for _ in range(15):
        began_s = time.process_time()
        lines = [line_of(outcome, None, "sha256-1") for _ in range(1000)]
        encoded_s = time.process_time()
        log.encoded(lines)
        ratios.append((time.process_time() - encoded_s) / (encoded_s - began_s))
    assert statistics.median(ratios) < 0.6


def test_a_key_that_others_read_or_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state" / "gateway" / "requests.jsonl"
    with pytest.raises(FileError, match="is not there"):
        verify_log(path)
    key = key_of(key_beside(path), make=True)
    assert key_beside(path) == tmp_path / "state-log.key"
    written(path, key=key)
    assert verify_log(path).lines[:2] == [
        "10 decisions, numbers 1 to 10",
        "each hangs on the one before, and seals by the key hold: none was changed, moved or dropped",
    ]
    path.write_bytes(path.read_bytes().replace(b'"r4"', b'"r9"'))
    with pytest.raises(
        AlteredError,
        match="number 5, the line before it, was changed; nothing vouches for number 4 and those behind it",
    ) as caught:
        verify_log(path)
    assert str(caught.value).startswith("requests.jsonl:6:1")
    key_beside(path).chmod(0o644)
    with pytest.raises(FileError, match="others can read"):
        verify_log(path)


def test_without_a_key_the_chain_alone_is_said_to_be_checked(tmp_path: Path) -> None:
    """Whoever has no key can write a chain anew: that it holds says nothing of who wrote it."""
    log = tmp_path / "requests.jsonl"
    written(log, key=KEY)
    text = "\n".join(verify_log(log).lines)
    assert "no key is here: no seal was checked, and anybody could have written all of it anew" in text
    assert "as written" not in text and "sealed" not in text and not verify_log(log).checked.sealed
    head_path(log).unlink()
    log.unlink()
    written(log, 4, key=None)
    assert "anybody could have written all of it anew" in "\n".join(verify_log(log).lines)


def test_a_copy_without_its_head_says_what_was_checked_and_never_passes_as_whole(tmp_path: Path) -> None:
    """An intact one was told as altered; a cut one looks the same, and must not be told as whole."""
    log = written(tmp_path / "requests.jsonl", 4, key=None)
    head_path(log).unlink()
    with pytest.raises(FileError, match="whether lines are missing at its beginning or end") as caught:
        verify_log(log)
    assert "Of its 4 lines, numbers 1 to 4, each fits the one before" in caught.value.message
    assert caught.value.exit_code == 2 and "`requests.jsonl.head`" in caught.value.hint
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[1:3]))
    with pytest.raises(FileError, match="Of its 2 lines, numbers 2 to 3"):
        verify_log(log)
    log.write_bytes(b"".join([*lines[:2], lines[3]]))
    with pytest.raises(AlteredError, match="number 3 is missing before it"):
        verify_log(log)


@pytest.mark.parametrize("what", ["head", "file", "newest file", "oldest file", "all files"])
def test_a_head_without_its_files_or_files_without_their_head_are_found(what: str, tmp_path: Path) -> None:
    path = tmp_path / "state" / "gateway" / "requests.jsonl"
    log = writer(path, limit_bytes=10**6 if what == "file" else 1500, key=key_of(key_beside(path), make=True))
    write(log, 10 if what == "file" else 20)
    log.stop()
    assert path.stat().st_size > 0
    assert not verify_log(path).checked.broken
    files = written_files(path)
    gone = {"head": [head_path(path)], "oldest file": files[:1], "newest file": files[-1:]}.get(what, files)
    for each in gone:
        each.unlink()
    with pytest.raises(
        AlteredError, match="is not there: lines may be missing" if what == "head" else "are missing"
    ):
        verify_log(path)


def test_a_log_whose_first_line_is_not_that_of_its_head_is_found(tmp_path: Path) -> None:
    """Another log by the same key, with the head of this one; and a head that says it begins later."""
    one, other = written(tmp_path / "a" / "r.jsonl", 3), written(tmp_path / "b" / "r.jsonl", 3)
    told = read_head(one)
    assert told is not None
    shutil.copyfile(other, one)
    assert whys(one)[0] == ("r.jsonl", 1, "its head tells of a log that began otherwise")
    later = replace(told, first=2).by(None)
    head_path(one).write_text(head_text(later))
    assert whys(one)[-1] == ("r.jsonl.head", 1, "it was changed: its seal does not fit")


def test_a_path_at_the_root_is_no_traceback() -> None:
    with pytest.raises(FileError, match="is not there"):
        verify_log(Path("/requests.jsonl"))


def test_verify_reads_a_whole_log_of_no_program() -> None:
    from twofold.app.operating import logs_or_check

    with pytest.raises(UsageError, match="to its end"):
        logs_or_check(Path("x"), lambda _: True, "gateway", verify=True)


def test_r_117_each_decision_has_its_request_model_and_time_and_a_changed_byte_is_found(
    tmp_path: Path,
) -> None:
    """The log that the row's command reads, which a gateway wrote; here one byte of a copy is changed."""
    sample, log = Path(__file__).parent / "decisions", tmp_path / "gateway" / "requests.jsonl"
    shutil.copytree(sample, log.parent)
    for line in map(json.loads, log.read_text().splitlines()):
        assert line["request_id"] and line["at"].endswith("+00:00")
        assert not line["replica"] or line["model"].startswith("sha256-")
        assert line["outcome"] in ("finished", "refused", "failed") and "reason" in line and "replica" in line
    assert not verify_log(log).checked.broken
    log.write_bytes(log.read_bytes().replace(b'"replica-1"', b'"replica-0"', 1))
    with pytest.raises(AlteredError, match="was changed"):
        verify_log(log)


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def left_by_a_kill(path: Path) -> None:
    """Three lines under the head, then two whole ones of a batch whose third, with the seal, is missing."""
    written(path, 3)
    head = head_path(path).read_bytes()
    log = writer(path)
    write(log, 3)
    log.close()
    path.write_bytes(b"".join(lines_of(path)[:5]))
    head_path(path).write_bytes(head)


def test_lines_without_their_seal_say_nothing_and_are_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    left_by_a_kill(path)
    loose = len(b"".join(lines_of(path)[3:]))
    found = check_chained(path, KEY)
    assert (found.number, found.line_count, found.unended_bytes, found.broken) == (3, 3, loose, ())
    written(path, 1)
    found = check_chained(path, KEY)
    assert (found.number, found.torn_count, found.unended_bytes, found.broken) == (5, 1, 0, ())


def test_lines_without_their_seal_are_cut_off_once_a_disk_that_refused_takes_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # INV-39
    path = tmp_path / "r.jsonl"
    left_by_a_kill(path)
    with monkeypatch.context() as read_only:
        read_only.setattr("twofold.live.line_file._opened", refused)
        log = writer(path)
        write(log, 2)
    write(log, 1)
    log.stop()
    found = check_chained(path, KEY)
    assert (found.number, found.torn_count, found.unended_bytes, found.broken) == (7, 1, 0, ())


FOREIGN = b'{"request_id":"evil","number":99,"before":"x"%b}\n'


@pytest.mark.parametrize("forged", [FOREIGN % b"", FOREIGN % b',"seal":"00"', None])
def test_what_a_writer_finds_that_no_kill_left_stays_and_is_named(
    forged: bytes | None, tmp_path: Path
) -> None:
    """Lines that hang on nothing, one with a wrong seal, one that was changed ahead of the head."""
    path = written(tmp_path / "r.jsonl", 3)
    head = head_path(path).read_bytes()
    written(path, 3)
    if forged is None:
        path.write_bytes(path.read_bytes().replace(b'"r2"', b'"r9"'))
        head_path(path).write_bytes(head)
    else:
        path.write_bytes(path.read_bytes() + forged)
    assert whys(path)
    size = path.stat().st_size
    written(path, 2)
    assert path.stat().st_size > size and any("the writer began here" in why for _, _, why in whys(path))


def test_lines_that_were_written_anew_without_the_key_are_named_from_the_first_that_no_seal_is_for(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "r.jsonl", 9)
    forged, before = [], "0" * 64
    for number, line in enumerate(lines_of(path), 1):
        said = {**json.loads(line), "before": json.loads(line)["before"] if number == 1 else before}
        said.pop("seal", None)
        forged.append(json.dumps(said, separators=(",", ":")).encode())
        before = hashlib.sha256(forged[-1]).hexdigest()
    path.write_bytes(b"".join(line + b"\n" for line in forged))
    unsure = "; nothing vouches for number 1 and those behind it"
    assert whys(path)[0][2] == f"it was changed: the head knows another{unsure}"
    written(path, 1)  # a writer that finds them says so for good
    found = [why for _, _, why in whys(path)]
    assert found[0] == f"number 9, the line before it, was changed{unsure}"
    assert found[1].endswith(unsure)


def test_an_end_that_the_disk_will_not_cut_off_is_cut_off_before_anything_is_written_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # INV-39
    path = written(tmp_path / "r.jsonl", 3)
    whole, head = path.read_bytes(), head_path(path).read_bytes()
    log = ChainedFile(path, 1 << 20, 2, KEY)
    for number in (3, 4):
        log.append(json.dumps({"request_id": f"r{number}"}))
    log.write_lines()
    log.close()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))  # a kill: the seal is missing
    assert path.read_bytes().startswith(whole)
    head_path(path).write_bytes(head)
    truncate, refused = os.truncate, [OSError(errno.ENOSPC, "full")]

    def once(file: int, size: int) -> None:
        if refused:
            raise refused.pop()
        truncate(file, size)

    monkeypatch.setattr(os, "truncate", once)
    log = ChainedFile(path, 1 << 20, 2, KEY)
    assert not refused and log.refusal is not None
    for number in (5, 6):
        log.append(json.dumps({"request_id": f"r{number}"}))
    log.flush()
    log.stop()
    assert not whys(path)
    assert [json.loads(line)["number"] for line in lines_of(path)] == [1, 2, 3, 4, 5, 6]


def test_a_start_reads_the_end_of_a_long_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    log = writer(path, limit_bytes=1 << 30)
    for _ in range(40):
        write(log, 1000, at_once=1000)
    log.stop()
    took = []
    for _ in range(3):
        began_s = time.process_time()
        writer(path, limit_bytes=1 << 30).close()
        took.append(time.process_time() - began_s)
    began_s = time.process_time()
    path.read_bytes().splitlines()
    assert min(took) < (time.process_time() - began_s) / 2
