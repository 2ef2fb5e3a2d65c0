"""Whether a folder's disk takes a line, found out by writing one: flags of a mount may hide that.

And files that are put in their place as a whole.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from twofold.live.processes import private_opener

REFUSALS = {
    errno.EROFS: "read-only",
    errno.ENOSPC: "full",
    errno.EDQUOT: "full (a quota)",
    errno.EIO: "failing",
}


def refuses(error: OSError) -> bool:
    """Whether it is the disk's: it may pass, and what is asked of it is asked again."""
    return error.errno in REFUSALS


def put_in_place(path: Path, text: str) -> None:
    """Write a file of our own user's so that a kill leaves the old one or the new one; nothing is flushed to
    the medium. Raises OSError, and leaves the old one."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(text)
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def disk_trouble(folder: Path) -> str:
    """Why its disk takes no line, in a word; "" where it takes one, or another user's may not be asked."""
    path = folder / f".written-{os.getpid()}"
    try:
        with open(path, "wb", buffering=0, opener=private_opener) as file:
            file.write(b"\0" * 512)
    except OSError as error:
        return REFUSALS.get(error.errno or 0, "")
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return ""
