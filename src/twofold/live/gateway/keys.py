"""The keys of a service: a file beside its state that holds digests, never a key itself.

The gateway reads it again when it changes, so that a key that is revoked opens nothing a second later. The
file's lock stays beside it from the first key on: a lock without its file says that the keys are lost, and
then nobody is served, by a gateway that starts anew either.
"""

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from twofold.core.data import from_data
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.gateway.gateway_config import SHA256, GatewayKey

LOOK_EVERY_S = 1.0
OWN_TENANT = "twofold"  # whose loads `up` sends
NEW_TENANT = re.compile(r"[\w.@-]{1,64}")  # those that a file has already stay as they are
LOST = (0, 0, 0)  # a file that was there and is not, or cannot be read
ANEW = "restore it from a copy, or remove it, and add keys anew by `twofold keys add`"
AGAIN = "restore it from a copy, or add keys anew by `twofold keys add`"
SHORT = 8  # digits of a digest by which people name a key


@dataclass(frozen=True, slots=True)
class KeptKey:
    """One key: whose it is, its digest, and since when."""

    tenant: str
    sha256: str
    made: str


@dataclass(frozen=True, slots=True)
class Keys:
    """All of a service."""

    keys: tuple[KeptKey, ...] = ()


def keys_beside(state: Path) -> Path:
    """The file of a service's keys: beside its state, which `down` removes, so that no key is forgotten."""
    return state.with_name(f"{state.name}-keys.json")


def read_keys(path: Path) -> Keys:
    """The keys in a file; none without the file. Raises FileError where it is lost, or no such file."""
    if _are_lost(path):
        raise FileError(f"the file of keys `{path}` is lost", hint=AGAIN)
    return _read(path)


def _read(path: Path) -> Keys:
    try:
        kept = from_data(Keys, json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return Keys()
    except OSError as error:
        why = f"`{path}` cannot be read: {(error.strerror or 'no such name').lower()}"
        raise FileError(why, hint="it is a file that only who runs the service reads") from error
    except json.JSONDecodeError as error:
        why = f"it is no JSON from line {error.lineno}, column {error.colno} on"
        raise FileError(f"`{path}` holds no keys: {why}", hint=ANEW) from error
    except (ValueError, RecursionError) as error:
        why = "`twofold keys add` writes another form"
        raise FileError(f"`{path}` holds no keys: {why}", hint=ANEW) from error
    if not all(SHA256.fullmatch(each.sha256) for each in kept.keys):
        raise FileError(f"`{path}` holds no keys: a digest is no SHA-256", hint=ANEW)
    return kept


def _are_lost(path: Path) -> bool:
    """Whether there were keys, and their file is gone."""
    return not path.exists() and _lock_of(path).exists()


def make_key(path: Path, tenant: str) -> str:
    """A new key for a tenant; it stands nowhere else. Raises ValueRefusedError on a bad name."""
    if not NEW_TENANT.fullmatch(tenant):
        hint = "write 1 to 64 letters, digits and `.`, `_`, `-` or `@`, as in `team-blue`"
        raise ValueRefusedError(f"`{tenant[:32]}` is no name of a tenant", hint=hint)
    secret = f"tf-{secrets.token_urlsafe(32)}"
    made = datetime.now(UTC).isoformat(timespec="seconds")
    kept = KeptKey(tenant, sha256(secret.encode()).hexdigest(), made)
    with _alone(path):
        _write(path, Keys((*_read(path).keys, kept)))
    return secret


def remove_keys(path: Path, name: str) -> tuple[KeptKey, ...]:
    """Remove a tenant's keys, or the one of a digest. Raises ValueRefusedError if there is none."""
    with _alone(path) if path.exists() else nullcontext():
        there = read_keys(path).keys
        gone = [each for each in there if name in (each.tenant, each.sha256[:SHORT], each.sha256)]
        if not gone:
            hint = "`twofold keys list` shows whose there are"
            raise ValueRefusedError(f"no key of `{name[:64]}`", hint=hint)
        _write(path, Keys(tuple(each for each in there if each not in gone)))
    return tuple(gone)


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two who write at once do so one after the other: no key is lost, and none comes back."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        had_lock = _lock_of(path).exists()
        lock = os.open(_lock_of(path), os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise FileError(f"`{path}` cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        was_lost = had_lock and not path.exists()
        try:
            yield
        finally:
            if not was_lost and not path.exists():  # the first key could not be written: nothing is lost
                _lock_of(path).unlink(missing_ok=True)
    finally:
        os.close(lock)


def _write(path: Path, keys: Keys) -> None:
    """All of it or nothing; nobody else may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as handle:
            handle.write(json.dumps(asdict(keys), indent=1))
            handle.flush()
            os.fsync(handle.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise FileError(f"`{path}` cannot be written: {error.strerror}") from error


class KeyRing:
    """Who has which key, as configuration and file say by now. Mutable: it looks at the file again."""

    def __init__(self, configured: tuple[GatewayKey, ...], path: str, own: str = "") -> None:
        """`own` is a key of whoever runs the service: it opens, and asks nobody else for one."""
        self._has_configured = bool(configured)
        self._configured = {key.sha256: key.tenant for key in configured}
        if own:
            self._configured[sha256(own.encode()).hexdigest()] = OWN_TENANT
        self._path = Path(path) if path else None
        self._looked_at_s = -LOOK_EVERY_S
        self._changed: tuple[int, int, int] | None = None  # None: there never was a file
        self._tenants = dict(self._configured)
        self.tenants()  # a file that is lost between the start and the first request is known to be

    def tenants(self) -> dict[str, str] | None:
        """Tenants by the digests of their keys; None: nobody needs one.

        Where there was a file of keys an empty or broken one opens nothing.
        """
        if self._path is None:
            return self._tenants if self._has_configured else None
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = now_s
            self._look(self._path)
        return None if self._changed is None and not self._has_configured else self._tenants

    def _look(self, path: Path) -> None:
        try:
            seen = path.stat()
            changed = seen.st_mtime_ns, seen.st_ino, seen.st_size
            if changed == self._changed:
                return
            kept = read_keys(path).keys
        except FileNotFoundError:
            if self._changed is None and not _are_lost(path):
                return  # there never was one
            kept, changed = (), LOST
        except (OSError, FileError):
            kept, changed = (), LOST  # it may be read the next time
        self._changed = changed
        self._tenants = {**self._configured, **{each.sha256: each.tenant for each in kept}}
