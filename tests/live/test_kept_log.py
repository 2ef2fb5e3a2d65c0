"""What the controller keeps of the log of requests: an older copy, another log, and none are found by it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from twofold.app.operating import verify_log
from twofold.core.errors import AlteredError, FileError
from twofold.live.chain_head import Head, head_path
from twofold.live.chained_file import ChainedFile
from twofold.live.control.kept_log import KEPT, check_log, keep_head
from twofold.live.control.store import FILE, Store
from twofold.live.gateway.request_log import key_beside, requests_log
from twofold.live.kept_heads import RUNS_MAX, KeptHeads
from twofold.live.line_file import written_files
from twofold.live.seals import key_of


class Kept:
    """A state with a gateway's log and the controller's store."""

    def __init__(self, state: Path) -> None:
        self.log, self.store, self.state = requests_log(state), Store(state), state
        self.key, self.count = key_of(key_beside(self.log), make=True), 0

    def serve(self, count: int, limit_bytes: int = 1 << 20) -> None:
        """A gateway's life, with a look of the controller at its end."""
        file = ChainedFile(self.log, limit_bytes, 3, self.key)
        for _ in range(count):
            self.count += 1
            file.append(json.dumps({"request_id": f"r{self.count}"}))
            file.flush()
        file.stop()

    @property
    def heads(self) -> tuple[Head, ...]:
        return KeptHeads.of(self.store.kept(KEPT)).heads

    def copy(self, to: Path) -> Path:
        return shutil.copytree(self.log.parent, to)

    def put_back(self, copy: Path) -> None:
        shutil.rmtree(self.log.parent)
        shutil.copytree(copy, self.log.parent)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    found = Kept(tmp_path / "state")
    yield found
    found.store.close()


def test_what_was_kept_is_said_and_goes_on_through_restarts_and_rotation(kept: Kept) -> None:
    assert keep_head(kept.store, kept.log) == "", "nothing was begun"
    kept.serve(3)
    assert "an older copy of all of it would look the same" in "\n".join(verify_log(kept.log).lines)
    assert keep_head(kept.store, kept.log) == ""
    assert "number 3 is as the controller kept it" in "\n".join(verify_log(kept.log).lines)
    kept.serve(2)
    assert verify_log(kept.log).checked.kept_number == 3, "what came later is not kept yet"
    for _ in range(4):
        kept.serve(20, limit_bytes=2000)
        assert keep_head(kept.store, kept.log) == ""
    found = verify_log(kept.log).checked
    assert found.number == found.kept_number == 85 and found.first > 20
    assert all(each.number >= found.first for each in kept.heads)


def test_an_older_copy_in_its_place_is_found_also_after_it_was_gone_on_with(
    kept: Kept, tmp_path: Path
) -> None:
    kept.serve(3)
    older = kept.copy(tmp_path / "older")
    kept.serve(3)
    keep_head(kept.store, kept.log)
    kept.put_back(older)
    with pytest.raises(AlteredError, match="number 6 is missing at its end: it was kept elsewhere"):
        verify_log(kept.log)
    kept.serve(5)
    keep_head(kept.store, kept.log)
    with pytest.raises(AlteredError, match="another number 6 was kept elsewhere") as caught:
        verify_log(kept.log)
    assert str(caught.value).startswith("requests.jsonl:6:1")


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_log_that_was_deleted_is_missed_and_another_in_its_place_is_found(
    kept: Kept, is_begun: bool
) -> None:
    kept.serve(3)
    keep_head(kept.store, kept.log)
    for each in (*written_files(kept.log), head_path(kept.log)):
        each.unlink()
    if is_begun:
        kept.serve(9)
    said = "another log is in the place" if is_begun else "the log of requests is gone, up to number 3"
    assert said in keep_head(kept.store, kept.log)
    said = (
        "another log is in its place: of that one number 3 was kept" if is_begun else "lines may be missing"
    )
    with pytest.raises(AlteredError, match=said):
        verify_log(kept.log)


def test_a_log_that_is_taken_from_under_its_writer_is_missed(kept: Kept) -> None:
    """Its lines go on where the file went, and its head comes back in the old place."""
    kept.serve(3)
    keep_head(kept.store, kept.log)
    file = ChainedFile(kept.log, 1 << 20, 3, kept.key)
    kept.log.rename(kept.log.with_name("taken"))
    head_path(kept.log).unlink()
    file.append('{"request_id":"r4"}')
    file.stop()
    assert head_path(kept.log).exists()
    assert "the log of requests is gone, up to number 3" in keep_head(kept.store, kept.log)


def test_a_head_that_another_wrote_is_not_kept(kept: Kept) -> None:
    kept.serve(3)
    text = head_path(kept.log).read_text()
    head_path(kept.log).write_text(text.replace('"number": 3', '"number": 4'))
    assert keep_head(kept.store, kept.log) == "the head of the log of requests was changed"
    assert kept.heads == ()
    head_path(kept.log).write_text(text)
    key_beside(kept.log).unlink()
    assert "is not there" in keep_head(kept.store, kept.log)
    assert "no key is here" in "\n".join(verify_log(kept.log).lines), "as of a copy"
    with pytest.raises(FileError, match=r"the key .* is not there"):
        check_log(kept.log, is_copy=False)  # a service's log has one


def test_a_store_that_cannot_be_read_is_said(kept: Kept) -> None:
    kept.serve(3)
    kept.store.close()
    (kept.state / FILE).write_bytes(b"x" * 4096)
    with pytest.raises(FileError, match="cannot be read"):
        verify_log(kept.log)


def test_of_each_run_the_newest_is_kept_and_of_the_newest_runs_alone() -> None:
    one, two = Head(1, 5, "a", "o", "run 1"), Head(1, 7, "b", "o", "run 1")
    kept = KeptHeads().after(one).after(two)
    assert kept.heads == (two,) and kept.after(one) is kept, "a writer never goes back"
    for number in range(RUNS_MAX + 9):
        kept = kept.after(Head(1, number, "a", "o", f"run {number}"))
    assert len(kept.heads) == RUNS_MAX and kept.heads[-1].number == RUNS_MAX + 8
    assert KeptHeads.of(kept.text) == kept
