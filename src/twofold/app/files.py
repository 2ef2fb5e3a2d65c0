"""Writing files whole or not at all: a file half written is worse than none."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A text file to write to, which takes its name when all is written; after an error nothing is left."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8", newline="") as handle:
            yield handle
        unfinished.replace(path)
    except OSError as error:
        if error.filename == str(unfinished):  # people know the file by the name they gave it
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        unfinished.unlink(missing_ok=True)
