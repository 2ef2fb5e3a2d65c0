"""Who asks: the tenant that a request counts for, and how often its client says that it asked before.

With keys configured a request carries one, and counts for the tenant whose key it is, whatever else it says:
nobody asks in another's name. Without keys nobody is known, and clients are taken at their word.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from twofold.live.gateway_config import GatewayKey
from twofold.live.openai_requests import Problem

RETRIES_HEADER = b"x-stainless-retry-count"  # the usual clients of this interface say by it what they repeat
TENANT_HEADER = b"x-tenant"
KEY_HEADER, KEY_SCHEME = b"authorization", b"bearer "
TENANT_LIMIT = 128  # bytes of a name
NO_KEY = Problem(401, "The key is missing or unknown", code="invalid_api_key")
LONG_TENANT = Problem(400, f"`x-tenant` is at most {TENANT_LIMIT} bytes of text", "x-tenant")


@dataclass(frozen=True, slots=True)
class Asker:
    """What the gate is told of who asks."""

    tenant: str  # "": nobody said
    retry_count: int  # that the client says; 0: new, or it says no such number


class Askers:
    """The tenants by their keys; only digests of keys are kept."""

    def __init__(self, keys: Sequence[GatewayKey]) -> None:
        self._tenants = {bytes.fromhex(key.sha256): key.tenant for key in keys}

    def of(self, headers: Iterable[tuple[bytes, bytes]]) -> Asker | Problem:
        """Who asks, or why the request is refused; of a header given twice the first one counts."""
        key = said_tenant = said_count = None
        for name, value in headers:
            if name == RETRIES_HEADER:
                said_count = value if said_count is None else said_count
            elif name == KEY_HEADER:
                key = value if key is None else key
            elif name == TENANT_HEADER:
                said_tenant = value if said_tenant is None else said_tenant
        retry_count = int(said_count) if said_count and said_count.isdigit() and len(said_count) < 4 else 0
        if self._tenants:
            tenant = self._tenants.get(_digest(key or b""))
            return NO_KEY if tenant is None else Asker(tenant, retry_count)
        name = (said_tenant or b"").strip()
        if len(name) > TENANT_LIMIT:
            return LONG_TENANT
        return Asker(name.decode("latin-1"), retry_count)


def _digest(header: bytes) -> bytes:
    """Of the key in an `authorization` header; of another scheme nothing that any key has."""
    if header[: len(KEY_SCHEME)].lower() != KEY_SCHEME:
        return b""
    return hashlib.sha256(header[len(KEY_SCHEME) :].strip()).digest()
