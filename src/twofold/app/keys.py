"""`keys`: who may ask a service, beyond this machine or on it."""

from dataclasses import dataclass
from pathlib import Path

from twofold.app.looping import known_state
from twofold.live.gateway.keys import SHORT, KeptKey, keys_beside, make_key, read_keys, remove_keys
from twofold.report.answers import Shown


@dataclass(frozen=True, slots=True)
class KeyAdded(Shown):
    """A new key, shown once."""

    schema = "twofold/key/1"
    tenant: str
    key: str
    key_count: int = 1  # of this tenant, with this one

    @property
    def lines(self) -> list[str]:
        """The key, how to send it, and that those before it go on opening."""
        lines = [self.key, "kept nowhere: only its digest is. Send it as `Authorization: Bearer KEY`"]
        if self.key_count > 1:
            many = f"`{self.tenant}` has {self.key_count} keys now, and each of them opens"
            lines.append(f"{many}: `twofold keys revoke` removes one by its digest")
        return lines


@dataclass(frozen=True, slots=True)
class KeysListed(Shown):
    """Whose keys there are."""

    schema = "twofold/keys/1"
    keys: tuple[KeptKey, ...]
    gone: bool = False
    is_open: bool = False  # there never was a key

    @property
    def lines(self) -> list[str]:
        """A line each: the beginning of its digest, whose it is, since when."""
        if not self.keys:
            who = "whoever reaches the gateway may ask" if self.is_open else "nobody is served"
            return [f"no keys: {who}"]
        rows = [f"{each.sha256[:SHORT]}  {each.made}  {each.tenant}" for each in self.keys]
        return [*rows, *(["revoked"] if self.gone else [])]


def keys_file(spec: Path) -> Path:
    """Where a spec's keys are."""
    return keys_beside(known_state(spec))


def add_key(spec: Path, tenant: str) -> KeyAdded:
    """Make a key for a tenant. A gateway that runs takes it within a second."""
    path = keys_file(spec)
    key = make_key(path, tenant)
    return KeyAdded(tenant, key, sum(each.tenant == tenant for each in read_keys(path).keys))


def list_keys(spec: Path) -> KeysListed:
    """All keys of a spec's service."""
    path = keys_file(spec)
    return KeysListed(read_keys(path).keys, is_open=not path.exists())


def revoke_keys(spec: Path, name: str) -> KeysListed:
    """Remove a tenant's keys, or one by the beginning of its digest."""
    return KeysListed(remove_keys(keys_file(spec), name), gone=True)
