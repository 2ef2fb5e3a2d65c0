"""Gets the data of a run ready to be read: which files, by which tokenizer, the first of them staged."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from twofold.core.errors import AlteredError, FileError, TwofoldError
from twofold.live.training.artefact import check_files, write_whole
from twofold.live.training.corpus import TOKENIZER_FILES, prepare_text, prepare_tokenizer
from twofold.live.training.data_order import TokenStream
from twofold.live.training.data_sources import documents, fetch, list_files
from twofold.live.training.data_staging import (
    SETTINGS,
    DataSettings,
    data_digest,
    drop_altered,
    read_settings,
    stage,
)
from twofold.live.training.token_shard import Shard

TOKENIZER_BYTES = 4_000_000  # of a run's text: a tokenizer is trained on no more


@dataclass(frozen=True, slots=True)
class DataWanted:
    """What a job says of its data."""

    data: str  # as `list_files` reads it; "": the standard library's sources …
    corpus_bytes: int  # … up to so many
    column: str
    worker_count: int
    digest: str  # of all files; "": whatever they hold
    vocabulary_tokens: int
    model_folder: Path  # may hold the model's own tokenizer
    seed: int


def prepare_data(run: Path, cache: Path, wanted: DataWanted, say: Callable[[str], None]) -> Path:
    """Write a run's `data.json`, stage what is read first; returns the tokenizer's folder.

    A run reads the files that it began with, whatever a pattern finds later. Raises FileError for files that
    cannot be read, AlteredError for others than the digest that is asked for.
    """
    settings = _kept(run) or _made(run, cache, wanted)
    for file in drop_altered(run, settings):
        say(f"what was staged of `{file}` was altered: it is staged again")
    write_whole(run / SETTINGS, json.dumps(asdict(settings), indent=1) + "\n")
    if wanted.digest:
        pins = [stage(run, settings, number) for number in range(len(settings.files))]
        if (found := data_digest(pins)) != wanted.digest:
            what = f"the data is `{found[:16]}…`, not `{wanted.digest[:16]}…` as asked for"
            raise AlteredError(what, hint="give the very same files, in the same order")
    else:
        stage(run, settings, first_order(len(settings.files), wanted.seed)[0])
    return Path(settings.tokenizer)


def first_order(file_count: int, seed: int) -> list[int]:
    """The order in which the first epoch reads the files."""
    stream = TokenStream(_unread, file_count, seed)
    return [stream.shard_at(place) for place in range(file_count)]


def _unread(number: int) -> Shard:
    raise AssertionError(number)


def _kept(run: Path) -> DataSettings | None:
    """The settings of a run that began before, whose tokenizer is as it was."""
    try:
        settings = read_settings(run)
        check_files(Path(settings.tokenizer))
    except (OSError, ValueError, TwofoldError):
        return None
    return settings


def _made(run: Path, cache: Path, wanted: DataWanted) -> DataSettings:
    corpora = run / "corpus"
    files = list_files(wanted.data) if wanted.data else (str(prepare_text(corpora, wanted.corpus_bytes)),)
    own = (wanted.model_folder / TOKENIZER_FILES[0]).is_file()
    texts = [] if own else list(_first_texts(files, wanted.column))
    tokenizer = prepare_tokenizer(corpora, wanted.vocabulary_tokens, texts, wanted.model_folder)
    return DataSettings(
        files=files,
        column=wanted.column,
        tokenizer=str(tokenizer.resolve()),
        vocabulary_tokens=wanted.vocabulary_tokens,
        cache=str(cache.resolve()),
        worker_count=wanted.worker_count,
    )


def _first_texts(files: tuple[str, ...], column: str) -> Iterator[str]:
    """Documents from the first files on, until a tokenizer has enough of them."""
    taken_bytes = 0
    folder = Path(tempfile.mkdtemp())
    try:
        for file in files:
            fetch(file, folder / "copy")
            for text in documents(folder / "copy", file, column):
                yield text
                taken_bytes += len(text.encode())
                if taken_bytes >= TOKENIZER_BYTES:
                    return
    finally:
        shutil.rmtree(folder)
    if not taken_bytes:
        raise FileError("the data holds no text", hint="give files with text in them")
