"""The day that a command runs on, and the files that it may write."""

import os
from datetime import UTC, date, datetime
from pathlib import Path

from twofold.core import FileError

STDOUT = Path("-")
STATE = Path(".twofold")  # made when something is written there


def today() -> date:
    """The day that prices are judged by; SOURCE_DATE_EPOCH fixes it where output must be repeatable."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), UTC).date() if epoch.isdigit() else date.today()


def check_free(path: Path, force: bool) -> None:
    """Raises FileError if `path` is there and may not be replaced. Asked before the work, not after it."""
    if path.is_dir():
        raise FileError(f"`{path}` is a folder", hint="name a file in it")
    if path.exists() and not force:
        raise FileError(f"`{path}` exists", hint="write elsewhere, or add `--force` to replace it")
    if not path.parent.is_dir() and path != STATE / "calibration.json":  # `calibrate` makes that folder
        raise FileError(f"`{path.parent}` does not exist", hint="make the folder first")


def write_text(path: Path, text: str) -> None:
    """All of the text or nothing."""
    from twofold.app import whole_file

    with whole_file(path) as handle:
        handle.write(text)
