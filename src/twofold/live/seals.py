"""What a key of our own vouches for: HMAC-SHA256 of digests. A file that we did not seal is not opened.

The key stands in a file of its own that only its owner reads, outside the folder that is copied around.
Source: RFC 2104.
"""

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from twofold.core.errors import AlteredError, FileError
from twofold.live.processes import private_opener

KEY_BYTES = 32


def key_of(path: Path, *, make: bool) -> bytes:
    """The key in a file; made whole when there is none and `make`.

    Raises FileError for one that is not there, is no key, or that others can read.
    """
    if not path.exists():
        if not make:
            hint = "put it back: without it nothing that it sealed can be told from what somebody else wrote"
            raise FileError(f"the key `{path}` is not there", hint=hint)
        partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
        with open(partial, "wb", opener=private_opener) as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first: its key is the one
            os.link(partial, path)
        partial.unlink()
    if path.stat().st_mode & 0o077:
        raise FileError(f"others can read the key `{path}`", hint=f"`chmod 600 {path}`, or make another key")
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise FileError(f"`{path}` holds no key of {KEY_BYTES} bytes", hint="restore it from a copy")
    return key


def sealed(key: bytes, purpose: str, text: str) -> str:
    """The seal of a text under a purpose, so that one of another purpose does not fit."""
    # HOT: per line of the log of requests; `hmac.new` took three times as long
    return hmac.digest(key, f"{purpose}\0{text}".encode(), "sha256").hex()


def check_seal(key: bytes, purpose: str, text: str, seal: str) -> None:
    """Raise AlteredError unless this key made the seal."""
    if not hmac.compare_digest(sealed(key, purpose, text).encode(), seal.encode()):
        raise AlteredError(
            f"{text[:40]} is not sealed by this registry's key", hint="push it anew from where it was made"
        )
