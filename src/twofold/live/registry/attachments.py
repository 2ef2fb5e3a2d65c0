"""What is kept beside versions: bills of materials, reports of evaluations, and signatures that others can
check without our key.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twofold.core.errors import AlteredError
from twofold.live.registry.bill import bill_of, installed
from twofold.live.registry.blobs import Stored, to_json
from twofold.live.registry.referrers import BILL, EVALUATION, SIGNATURE, put_referrer, read_referrer
from twofold.live.registry.signatures import SignatureRefusedError, check_signature
from twofold.live.registry.tables import Tables, Version

BY_A_PUSH = ("", BILL, SIGNATURE)  # kinds of what a push adds, in this order; "" is the version itself


class Attachments:
    """Those of one registry; the log tells of each, so that none can be put beside a version unseen."""

    def __init__(self, folder: Path, tables: Tables) -> None:
        self._folder, self._tables = folder, tables

    def of(self, digest: str) -> tuple[tuple[str, str], ...]:
        """Type and digest of what is kept beside a model, the oldest first."""
        return tuple(self._tables.attachments().get(digest, ()))

    def types(self) -> dict[str, str]:
        """The digest of everything that is kept beside any version, and its type."""
        return {digest: kind for each in self._tables.attachments().values() for kind, digest in each}

    def added_last(self) -> list[str]:
        """What one call may have added to the index last, the newest first: names, and digests attached."""
        found, about, earlier = list[str](), "", tuple[str, ...](BY_A_PUSH)
        for what, (on, kind) in reversed(self._tables.added().items()):
            if found and (on != about or kind not in earlier):
                break
            found.append(what)
            about, earlier = on, BY_A_PUSH[: BY_A_PUSH.index(kind)] if kind in BY_A_PUSH else ()
        return found

    def put(self, stored: Stored, version: Version, kind: str, text: str, by: str) -> None:
        """Keep a text beside a version, inside of `writing`; twice is once."""
        digest = put_referrer(self._folder, stored, kind, text)
        if (kind, digest) not in self.of(stored.digest):
            self._tables.attached(version, kind, digest, by)

    def put_bill(self, stored: Stored, version: Version, by: str) -> None:
        """Its bill of materials, unless it has one that can be read."""
        if not any(
            kind == BILL and self._is_whole(stored, digest) for kind, digest in self.of(stored.digest)
        ):
            bill = bill_of(stored, version.text, version.pushed_at, installed())
            self.put(stored, version, BILL, to_json(bill), by)

    def _is_whole(self, stored: Stored, digest: str) -> bool:
        try:
            self.read(stored, digest)
        except AlteredError:
            return False
        return True

    def put_evaluation(self, stored: Stored, version: Version, report: Mapping[str, Any], by: str) -> None:
        """What was measured of a version, inside of `writing`: the last one put is what holds."""
        text = to_json({"model": stored.digest, **report})
        self._tables.attached(version, EVALUATION, put_referrer(self._folder, stored, EVALUATION, text), by)

    def read(self, stored: Stored, digest: str) -> str:
        """One text. Raises AlteredError for other bytes, or for what is said of another model."""
        about, text = read_referrer(self._folder, digest)
        if about != stored.digest:
            raise AlteredError(f"{digest[:19]} is of another model", hint="restore it from a copy")
        return text

    def signature_by(self, stored: Stored, version: Version, files: Path, public_key: Path) -> str:
        """The newest of a version's signatures that is by a key and of these files.

        Raises SignatureRefusedError where there is none.
        """
        refused = SignatureRefusedError(
            f"{version.text} is not signed", hint=f"`twofold registry sign {version.text}`"
        )
        for kind, digest in reversed(self.of(stored.digest)):
            if kind != SIGNATURE:
                continue
            text = self.read(stored, digest)
            try:
                check_signature(files, text, public_key)
            except SignatureRefusedError as error:
                refused = error
            else:
                return text
        raise refused
