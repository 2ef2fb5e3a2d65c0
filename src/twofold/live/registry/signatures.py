"""Signatures that others can check without our key, over a version's files: OpenSSF model signing.

A signature is a bundle with the SHA-256 of every file, signed by an elliptic-curve key in a file, or in a
security module by PKCS#11 (RFC 7512). Source: `model-signing` 1.1, github.com/sigstore/model-transparency.
"""

import base64
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from twofold.core.errors import FileError, InputError, unread
from twofold.core.extras import require_extra
from twofold.live.training.artefact import MANIFEST, plain_files

LEFT_OUT = (".git/", ".gitattributes", ".github/", ".gitignore")  # of every signature, whoever signs
MODULE = "pkcs11:"  # how the name of a key begins that never leaves its module
PUBLIC = re.compile(rb"-----BEGIN PUBLIC KEY-----\s([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----")
ELLIPTIC = bytes.fromhex("06072a8648ce3d0201")  # id-ecPublicKey, in DER (RFC 5480)


class SignatureRefusedError(InputError):
    """A key that cannot sign, or a signature that does not fit the files or the key."""

    code = "E-signature"


def sign(folder: Path, key: str) -> str:
    """The signature of a folder's files as text, by a private key: a PEM file, or a `pkcs11:` address.

    Raises MissingExtraError without `sign`, SignatureRefusedError for a key that cannot be used.
    """
    require_extra("sign")
    from model_signing import hashing, signing

    if not key.startswith(MODULE):
        _bytes_of(Path(key), "private")

    told = signing.Config().set_hashing_config(hashing.Config().set_ignored_paths(paths=[MANIFEST]))
    with tempfile.TemporaryDirectory() as beside:
        written = Path(beside) / "model.sig"
        try:
            if key.startswith(MODULE):
                told.use_pkcs11_signer(pkcs11_uri=key)
            else:
                told.use_elliptic_key_signer(private_key=key)
            told.sign(folder, written)
        except InputError:
            raise
        except Exception as error:  # of half a dozen libraries, PKCS#11's among them, without a common root
            what = f"the key does not sign: {_first_line(error)}"
            hint = "name a PEM file with a private key of P-256, P-384 or P-521, or pkcs11:token=…;object=…"
            raise SignatureRefusedError(what, hint=hint) from error
        return written.read_text("utf-8")


def check_key(public_key: Path | None) -> None:
    """Raise FileError for a file without a public key of ours: that is no signature which does not hold."""
    if public_key is None:
        return
    found = PUBLIC.search(_bytes_of(public_key, "public"))
    if found is None or ELLIPTIC not in base64.b64decode(found[1]):
        hint = "name a PEM file, `-----BEGIN PUBLIC KEY-----` …, of a key of P-256, P-384 or P-521"
        raise FileError(f"`{public_key}` holds no public key of an elliptic curve", hint=hint)


def _bytes_of(key: Path, kind: str) -> bytes:
    try:
        return key.read_bytes()
    except OSError as error:
        raise unread(key, error, f"name a PEM file with a {kind} key") from error


def check_signature(folder: Path, signature: str, public_key: Path) -> None:
    """Raise SignatureRefusedError unless it is of exactly these files and by that key."""
    require_extra("sign")
    from model_signing import verifying

    check_key(public_key)
    with tempfile.TemporaryDirectory() as beside:
        written = Path(beside) / "model.sig"
        written.write_text(signature, "utf-8")
        try:
            told = verifying.Config().set_ignore_unsigned_files(True)  # told of below, ours apart
            told.use_elliptic_key_verifier(public_key=public_key).verify(folder, written)
        except Exception as error:  # as above
            what = f"the signature does not hold: {_first_line(error)}"
            hint = "name the key of who signed it, or get the files and their signature anew"
            raise SignatureRefusedError(what, hint=hint) from error
    names = _signed(signature)
    for name, _ in plain_files(folder):
        if name not in names and not name.startswith(LEFT_OUT):  # verifying leaves out what the signer did
            raise SignatureRefusedError(f"`{name}` is not signed", hint="have all files signed")


def check_names(signature: str, files: Mapping[str, str]) -> None:
    """Raise SignatureRefusedError unless a signature that holds is of these files: their SHA-256 by name."""
    if _signed(signature) != {
        name: digest for name, digest in files.items() if not name.startswith(LEFT_OUT)
    }:
        raise SignatureRefusedError(
            "what is signed are other files, or other digests than SHA-256", hint="have these files signed"
        )


def _signed(signature: str) -> dict[str, str]:
    """The files that a signature is of, and their digests."""
    payload = json.loads(base64.b64decode(json.loads(signature)["dsseEnvelope"]["payload"]))
    return {each["name"]: each["digest"] for each in payload["predicate"]["resources"]}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
