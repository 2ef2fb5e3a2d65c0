"""From files to shards of tokens on this machine's disk: fetched, digested, tokenised, kept.

Each file is staged once, by a process of its own, so that neither a slow source nor tokenising holds up a
step for longer than it must: the shards that are read next are staged ahead. A shard is found again by what
its file was and how it was tokenised. A run pins what it has read: the digests of its files stand in its
folder, and a file that has changed since is refused.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from twofold.core.data import from_data
from twofold.core.errors import AlteredError, FileError, RunError, TwofoldError
from twofold.live.processes import python_module
from twofold.live.training.artefact import check_files, seal, write_manifest, write_whole
from twofold.live.training.data_sources import documents, fetch, fingerprint
from twofold.live.training.token_shard import Shard, open_shard, write_shard

RECIPE = 1  # raised when the same text would become other tokens
SETTINGS, PINS = "data.json", "pins"
LOOK_S = 0.02  # at what another process stages
TELL_AFTER_S = 10.0  # a file that is waited for this long is named
BATCH_DOCUMENTS = 512
NICENESS = 5  # staging yields to training where both want a core


@dataclass(frozen=True, slots=True)
class DataSettings:
    """What the data of a run is and where it is staged, as its folder keeps it."""

    files: tuple[str, ...]
    column: str  # of JSON lines and Parquet tables: holds the text
    tokenizer: str  # the folder of its files
    vocabulary_tokens: int
    cache: str  # of staged shards; runs share it
    worker_count: int  # files that are staged at once


@dataclass(frozen=True, slots=True)
class Pin:
    """One file as the run read it, and what staging it took."""

    file: str
    sha256: str
    size_bytes: int
    key: str  # of the staged shard
    token_count: int
    document_count: int
    fetch_s: float  # until all its bytes had come
    tokenise_s: float


def read_settings(run: Path) -> DataSettings:
    """The settings in a run's folder."""
    return from_data(DataSettings, json.loads((run / SETTINGS).read_text("utf-8")))


def read_pin(run: Path, number: int) -> Pin | None:
    """What is known of a file; None before it was first read."""
    try:
        return from_data(Pin, json.loads(pin_path(run, number).read_text("utf-8")))
    except FileNotFoundError:
        return None


def pin_path(run: Path, number: int) -> Path:
    """Where the pin of a file stands."""
    return run / PINS / f"{number}.json"


def pins_of(run: Path) -> list[Pin]:
    """All files that were read, in their order."""
    names = sorted(int(path.stem) for path in (run / PINS).glob("*.json"))
    return [pin for number in names if (pin := read_pin(run, number))]


def data_digest(pins: Sequence[Pin]) -> str:
    """One digest of what was read: of the files' bytes in their order, wherever they lay."""
    return hashlib.sha256("".join(f"{pin.sha256}\n" for pin in pins).encode()).hexdigest()


def stage(run: Path, settings: DataSettings, number: int) -> Pin:
    """Stage one file unless it is staged, and pin it. Safe to ask for from several processes at once.

    Raises FileError for a file that cannot be read, AlteredError for one that is not what was pinned.
    """
    file, cache, before = settings.files[number], Path(settings.cache), read_pin(run, number)
    if before and (cache / before.key).is_dir():
        return before
    key = _key_of(settings, file)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pin = _staged(cache / key) or _stage_now(settings, file, cache, key)
    return _pinned(run, number, before, pin)


def found_staged(run: Path, settings: DataSettings, number: int) -> bool:
    """Whether a file was staged before, by this run or another; then it is pinned. Stages nothing."""
    before = read_pin(run, number)
    if before and (Path(settings.cache) / before.key).is_dir():
        return True
    pin = _staged(Path(settings.cache) / _key_of(settings, settings.files[number]))
    if pin:
        _pinned(run, number, before, pin)
    return pin is not None


def _pinned(run: Path, number: int, before: Pin | None, pin: Pin) -> Pin:
    if before and before.sha256 != pin.sha256:
        what = f"`{pin.file}` is not what this run has read before"
        raise AlteredError(what, hint="give it back its old bytes, or train under another name")
    write_whole(pin_path(run, number), json.dumps(asdict(pin), indent=1) + "\n")
    return pin


def drop_altered(run: Path, settings: DataSettings) -> list[str]:
    """Delete staged shards of this run whose bytes are not as written; returns their files."""
    dropped = []
    for pin in pins_of(run):
        folder = Path(settings.cache) / pin.key
        try:
            if folder.is_dir():
                check_files(folder)
        except TwofoldError:
            shutil.rmtree(folder)
            dropped.append(pin.file)
    return dropped


def main(words: Sequence[str]) -> None:
    """Stage file NUMBER of the run in FOLDER: a process of its own, beside the training."""
    os.nice(NICENESS)
    run, number = Path(words[0]), int(words[1])
    pin = stage(run, read_settings(run), number)
    sys.stdout.write(json.dumps(asdict(pin)) + "\n")


@dataclass(slots=True)
class Stager:
    """Opens the shards of a run for a rank, and stages those that come next. Mutable.

    One rank of a machine stages (`is_leader`), the others wait for what it does.
    """

    run: Path
    settings: DataSettings
    order: Sequence[int]  # in which the first epoch reads them
    is_leader: bool
    tell: Any  # hears of each pin
    tell_waiting: Callable[[str], None] = lambda _: None  # hears of each file that takes long, once
    _open: dict[int, Shard] = field(default_factory=dict)
    _pending: dict[int, Future[None]] = field(default_factory=dict)
    _children: set[Any] = field(default_factory=set)
    _pool: ThreadPoolExecutor | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_closed: bool = False

    def open(self, number: int) -> Shard:
        """A shard, once it is staged."""
        if number not in self._open:
            if self.is_leader:
                at = self.order.index(number)
                for each in self.order[at : at + 1 + self.settings.worker_count]:
                    self._begin(each)
                if wait([self._pending[number]], TELL_AFTER_S).not_done:
                    self.tell_waiting(self.settings.files[number])
                self._pending[number].result()
            folder = self._wait_for(number)
            self._open[number] = open_shard(folder)
        return self._open[number]

    def close(self) -> None:
        """End what is still being staged: nobody will read it."""
        with self._lock:
            self._is_closed = True
            for child in self._children:
                with suppress(OSError):
                    child.terminate()
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def _begin(self, number: int) -> None:
        if number not in self._pending:
            self._pool = self._pool or ThreadPoolExecutor(1 + self.settings.worker_count)
            self._pending[number] = self._pool.submit(self._stage_beside, number)

    def _stage_beside(self, number: int) -> None:
        if found_staged(self.run, self.settings, number):  # another process would take longer to start
            return
        command = python_module("twofold.live.training.data_staging", str(self.run), str(number))
        with self._lock:
            if self._is_closed:
                return
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            self._children.add(child)
        said, _ = child.communicate()
        self._children.discard(child)
        if child.returncode == 0:
            self.tell(json.loads(said.splitlines()[-1]))
        elif not self._is_closed:
            raise RunError(f"`{self.settings.files[number]}` could not be staged", hint="its log says why")

    def _wait_for(self, number: int) -> Path:
        while True:
            pin = read_pin(self.run, number)
            if pin and (folder := Path(self.settings.cache) / pin.key).is_dir():
                return folder
            if self._is_closed:
                what = f"`{self.settings.files[number]}` is not read any more"
                raise RunError(what, hint="the run has ended")
            time.sleep(LOOK_S)


def _key_of(settings: DataSettings, file: str) -> str:
    """What a shard is found by: its file's version and the way it is tokenised."""
    tokenizer = (Path(settings.tokenizer) / "tokenizer.json").read_bytes()
    told = (RECIPE, file, fingerprint(file), settings.column, settings.vocabulary_tokens)
    return hashlib.sha256(json.dumps(told).encode() + hashlib.sha256(tokenizer).digest()).hexdigest()[:32]


def _staged(folder: Path) -> Pin | None:
    """The pin of a staged shard whose bytes are as written; anything else there is deleted."""
    if not folder.is_dir():
        return None
    try:
        check_files(folder)
        pin = from_data(Pin, json.loads((folder / "pin.json").read_text("utf-8")))
        return replace(pin, fetch_s=0.0, tokenise_s=0.0)  # another run waited for it, not this one
    except (TwofoldError, OSError, ValueError):
        shutil.rmtree(folder)
        return None


def _stage_now(settings: DataSettings, file: str, cache: Path, key: str) -> Pin:
    partial, copy = cache / f".partial-{key}", cache / f".fetched-{key}"
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    partial.mkdir()
    try:
        fetched = fetch(file, copy)
        began_s = time.perf_counter()
        counts = _tokenised(partial, settings, file, copy)
        pin = Pin(
            file=file,
            sha256=fetched.sha256,
            size_bytes=fetched.size_bytes,
            key=key,
            **counts,
            fetch_s=fetched.fetch_s,
            tokenise_s=time.perf_counter() - began_s,
        )
        (partial / "pin.json").write_text(json.dumps(asdict(pin), indent=1) + "\n", "utf-8")
        write_manifest(partial)
        seal(partial, cache / key)
    except OSError as error:
        why = f"`{file}` cannot be staged below `{cache}`: {error}"
        raise FileError(why, hint="make room there") from error
    finally:
        copy.unlink(missing_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
    return pin


def _tokenised(partial: Path, settings: DataSettings, file: str, copy: Path) -> dict[str, int]:
    """Tokens of a fetched file, a batch of documents at a time; how many there are of both."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(settings.tokenizer) / "tokenizer.json"))
    end, count = end_token(Path(settings.tokenizer), tokenizer), 0

    def encoded() -> Iterator[list[int]]:
        nonlocal count
        texts = documents(copy, file, settings.column)
        while batch := list(islice(texts, BATCH_DOCUMENTS)):
            count += len(batch)
            for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                yield [*encoding.ids, end]

    token_count = write_shard(partial, encoded(), settings.vocabulary_tokens)
    return {"token_count": token_count, "document_count": count}


def end_token(folder: Path, tokenizer: Any) -> int:
    """The token that ends a document, as the tokenizer's own configuration names it."""
    said = json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get("eos_token")
    name = said.get("content") if isinstance(said, dict) else said
    token = tokenizer.token_to_id(name) if isinstance(name, str) else None
    if token is None:
        what = f"`{folder / 'tokenizer_config.json'}` names no `eos_token` that the tokenizer has"
        raise FileError(what, hint="documents are told apart by it")
    return int(token)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except TwofoldError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error
