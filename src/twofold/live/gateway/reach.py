"""Where a gateway is reached, and by which certificate; what cannot be is refused before anything starts."""

import ssl
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path

from twofold.core.errors import ValueRefusedError
from twofold.live.server_urls import base_of

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # addresses to listen at, and what this machine asks there


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Reach:
    """The address that a gateway listens at, and the files by which it speaks TLS, where it does."""

    host: str = "127.0.0.1"
    certificate: str = ""  # path of a PEM file
    private_key: str = ""  # path of its key
    digest: str = ""  # of both files: a renewed certificate wants another gateway

    @staticmethod
    def checked(host: str, certificate: Path | None, private_key: Path | None, keys_file: Path) -> "Reach":
        """What `up` was told. Raises ValueRefusedError where strangers could ask without a key, and for files
        by which no TLS is spoken."""
        if not is_loopback(host) and not keys_file.is_file():
            raise ValueRefusedError(
                f"`--host {host}` is reached from elsewhere, and whoever reaches it may ask",
                hint="make a key with `twofold keys add SPEC TENANT`, then call `up` again",
            )
        if certificate is None and private_key is None:
            return Reach(host)
        if certificate is None or private_key is None:
            raise ValueRefusedError(
                "a certificate without its key, or a key without its certificate",
                hint="write `--certificate FILE --private-key FILE`",
            )
        data = b"".join(_read(path) for path in (certificate, private_key))
        _refuse_certificate(certificate, private_key)
        return Reach(host, str(certificate.resolve()), str(private_key.resolve()), sha256(data).hexdigest())

    @property
    def is_clear(self) -> bool:
        """Whether keys of others come in clear text."""
        return not (self.certificate or is_loopback(self.host))

    def url(self, port: int) -> str:
        """Where this machine asks the gateway."""
        return base_of(self.own_host, port, tls=bool(self.certificate))

    @property
    def own_host(self) -> str:
        """By what address this machine asks it."""
        return ANYWHERE.get(self.host, self.host)


PEM = "two files in PEM form: the certificate, with those between it and its authority, and its plain key"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = (error.strerror or "").lower()
        raise ValueRefusedError(f"`{path}` cannot be read: {why}", hint=PEM) from error


def _refuse_certificate(certificate: Path, private_key: Path) -> None:
    try:
        # A password would be asked for at a terminal that no gateway has.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, private_key, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", "") or ""
        said = f": {reason.lower().replace('_', ' ')}" if reason else ""
        what = f"no TLS is spoken with `{certificate}` and `{private_key}`{said}"
        raise ValueRefusedError(what, hint=PEM) from error
