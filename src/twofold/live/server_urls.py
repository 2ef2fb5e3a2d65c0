"""A URL that people give for a server, and how it is asked: by TLS, with a key from the environment alone.

A URL ends in logs and on screens: a key in one is refused, and shown nowhere, not in the refusal either.
"""

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from twofold.core.errors import ValueRefusedError

SHOWN_CHARACTERS = 80
PEM_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """Where a server is. `prefix` is the path before `/v1`."""

    host: str
    port: int
    tls: bool = False
    prefix: str = ""

    @property
    def base(self) -> str:
        """What paths go behind."""
        return base_of(self.host, self.port, tls=self.tls, prefix=self.prefix)


def base_of(host: str, port: int, *, tls: bool = False, prefix: str = "") -> str:
    """The same of its parts."""
    named, scheme = f"[{host}]" if ":" in host else host, "https" if tls else "http"
    return f"{scheme}://{named}{'' if port == PORTS[scheme] else f':{port}'}{prefix}"


def server_url(text: str) -> ServerUrl:
    """The server behind a URL, which may end in `/v1`. Raises ValueRefusedError, which shows no key."""
    try:
        parts = urlsplit(text)
        port = PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    except ValueError:
        parts, port = urlsplit(""), 0
    if not port or not parts.hostname or any(each <= " " for each in text):
        hint = "write for example `http://127.0.0.1:8000` or `https://example.com/v1`"
        raise ValueRefusedError(f"`{shown_url(text)}` is no URL of a server", hint=hint)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        what = f"`{shown_url(text)}` is to be a host, a port and a path: a key does not belong into a URL"
        raise ValueRefusedError(what, hint="put it in an environment variable, and name that")
    prefix = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return ServerUrl(parts.hostname, port, parts.scheme == "https", prefix)


def shown_url(text: str) -> str:
    """A URL as it may be shown: without what stands before its host, its query and its fragment.

    A password may hold what ends a host: so all before the last `@` is left out, and where a query may have
    begun before it, all of it.
    """
    scheme, mark, rest = text.partition("://")
    if not mark:
        scheme, rest = "", text
    before, _, plain = rest.rpartition("@")
    shown = "…" if re.search("[?#]", before) else re.split("[?#]", plain, maxsplit=1)[0]
    return f"{scheme}{mark}{shown}"[:SHOWN_CHARACTERS]


def key_in(variable: str, environment: Mapping[str, str] = os.environ) -> str:
    """The key that a variable of the environment holds; "" for no variable. Raises ValueRefusedError."""
    if not variable:
        return ""
    key = environment.get(variable, "").strip()
    if not key or not key.isascii() or any(each <= " " for each in key):
        what = f"`{variable}` holds no key" if not key else f"what `{variable}` holds is no key"
        raise ValueRefusedError(what, hint=f"export {variable}=… where `twofold` is called")
    return key


@lru_cache(maxsize=64)
def trust(authorities: str, *, own: bool = False) -> ssl.SSLContext:
    """Checks certificates by those that this machine trusts, and by a file of more in PEM form.

    With `own` the file holds a server's own certificate: that one is taken, under whatever name it is asked
    for, and no other. Raises ValueRefusedError for a file that holds none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if own else ssl.create_default_context()
    if own:
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # without those that it is by
    try:
        if own and authorities:  # the first in the file: what signed it may have signed others
            pem = PEM_CERTIFICATE.search(Path(authorities).read_text("ascii"))
            context.load_verify_locations(cadata=ssl.PEM_cert_to_DER_cert(pem[0] if pem else ""))
        elif authorities:
            context.load_verify_locations(cafile=authorities)
        return context
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", "") or "no certificate is in it"
        what = f"`{Path(authorities)}` holds no certificates that can be read: {said}"
        raise ValueRefusedError(what, hint="a file of certificates in PEM form") from error


def asking(key_variable: str, authorities: str, *, tls: bool) -> dict[str, Any]:
    """What every request to a server is sent with, as aiohttp takes it. Raises ValueRefusedError."""
    options: dict[str, Any] = {"ssl": trust(authorities)} if tls else {}
    if key := key_in(key_variable):
        options["headers"] = {"authorization": f"Bearer {key}"}
    return options
