"""The registry: models by digest in an OCI layout, versions of them in tables, the rules that releases pass.

Every reader checks before it trusts: the seal of a version, the digest of its manifest, then of each file
as it is copied. A release is refused with all the rules that it breaks, and the refusal is logged.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from twofold.core.data import from_data, to_data
from twofold.core.errors import AlteredError, BusyError, FileError, InfeasibleError, UnknownNameError
from twofold.live.registry import blobs, signatures
from twofold.live.registry.attachments import Attachments
from twofold.live.registry.formats import check_file, model_facts, with_digests
from twofold.live.registry.referrers import EVALUATION, SIGNATURE
from twofold.live.registry.stores import check_address, keep_address, open_store, tables_exist
from twofold.live.registry.tables import NOTHING, AliasMove, Change, Tables, Version, check_name
from twofold.live.seals import check_seal, key_of, sealed
from twofold.live.training.artefact import describe_files, sha256_of, write_whole
from twofold.policy.release import quality
from twofold.policy.release.rules import Evaluation, Limits, Refusal, Release, refusals

SERVING, CANDIDATE = "serving", "candidate"  # what serves; what is tried beside it
VERSION, COPY = "version", "copy"  # what seals are for: a version, a copy of its files in another format
MADE_FROM = ("data", "code", "run", "checkpoint", "parent", "quantised", "spec")
MARKED = "made_from"
MAKES_ONE = "`twofold registry push FOLDER NAME` makes one"
LOG_MOST = 10  # lines of a version's log


class ReleaseRefusedError(InfeasibleError):
    """A release that breaks rules: every rule, what was found, and what would pass."""

    code = "E-release"


@dataclass(frozen=True, slots=True)
class Described:
    """A version with all that is known of it."""

    version: Version
    stored: blobs.Stored
    aliases: tuple[str, ...]
    approved_by: tuple[str, ...]
    evaluation: Evaluation | None
    sealed: bool
    attached: tuple[tuple[str, str], ...]  # type and digest of signatures, bills of materials, evaluations
    before_quantised: Evaluation | None  # of the model that it is a smaller copy of
    log: tuple[Change, ...] | None = None  # the last lines of its name, the newest last; None: nobody asked
    log_count: int = 0  # of all lines of its name
    off: str = ""  # why nothing is known of it but its row, in a list

    @property
    def signature_count(self) -> int:
        """How often it was signed."""
        return sum(kind == SIGNATURE for kind, _ in self.attached)

    @property
    def evaluation_digest(self) -> str:
        """Of the file that holds its last evaluation; "" of none, and of one from before there were files."""
        return next((digest for kind, digest in reversed(self.attached) if kind == EVALUATION), "")

    @property
    def quantised_from(self) -> str:
        """The digest of the model that it is a smaller copy of; "" of none."""
        return str(self.stored.facts.get(MARKED, {}).get("quantised", ""))


class Registry:
    """An open registry. Mutable: it holds a connection."""

    def __init__(self, folder: Path, *, make: bool = False, tables: str = "") -> None:
        """`tables` is the address of a new one's, where they are not to be in its folder.

        Raises FileError where there is none and none is to be made, TablesError for tables not reached,
        AlteredError for tables that are gone, emptied, or older than the index that other clients read.
        """
        if tables:
            check_address(tables)
        blobs.check_place(folder)
        if make:
            blobs.make_layout(folder)
        elif not (folder / blobs.LAYOUT).exists():
            raise FileError(f"no registry in `{folder}`", hint=MAKES_ONE)
        self.folder = folder
        named = folder if folder.name not in ("", "..") else folder.resolve()  # the key is called after it
        # In this order, since whoever makes it meanwhile makes the tables before anything is stored.
        is_stored, is_new = blobs.holds_any(folder), not tables_exist(folder)
        if is_new and is_stored:  # what is there was sealed: a new key would know nothing of it
            what = f"the tables of the registry `{folder}` are gone or empty: its models have neither names"
            raise AlteredError(f"{what} nor seals", hint="restore them from a copy")
        if is_new and not make:  # one that was killed while it was made
            raise FileError(f"no registry in `{folder}`", hint=MAKES_ONE)
        self._key = key_of(named.with_name(f"{named.name}.key"), make=is_new)
        listed = blobs.listed_names(folder)  # before the tables: whoever pushes meanwhile writes it last
        self.tables = Tables(open_store(folder, tables), self._key)
        self._check_known(listed)
        self.attachments = Attachments(folder, self.tables)
        # By model, key, and how many signatures there were.
        self._signed: dict[tuple[str, str, int], bool] = {}
        if is_new and tables:
            self.tables.check_log()  # which may be another registry's
            keep_address(folder, tables)

    def _check_known(self, listed: Iterable[str]) -> None:
        """Raise AlteredError where the index names what tables do not: the next push would leave that out.

        What is no name of a version is another client's, and `verify` tells of it.
        """
        ours = {each for each in listed if ":" in each and each.rpartition(":")[2].isdecimal()}
        unknown = sorted(ours - set(self._named())) if ours else []
        if not unknown:
            return
        try:
            self.tables.check()  # a row that somebody deleted is named by the log
        finally:
            self.tables.close()
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        what = f"`{blobs.INDEX}` names `{unknown[0][:99]}`{more}, which the tables do not have"
        hint = "restore the tables from a copy; where the index alone was changed, remove it"
        raise AlteredError(
            f"{what}: they are older or emptied, or the index was changed",
            hint=f"{hint}: the next push writes it anew",
        )

    def close(self) -> None:
        """Let go of its files."""
        self.tables.close()

    def push(
        self,
        source: Path,
        name: str,
        by: str,
        made_from: Mapping[str, str] | None = None,
        signature: str = "",
        public_key: Path | None = None,
    ) -> Described:
        """Store a folder as the next version of a name; the same bytes and facts are the same version.

        With a public key it has to come with a signature by that key. Raises FormatRefusedError for
        pickles and code, FileError for a folder that holds no model, SignatureRefusedError for a
        signature that does not hold.
        """
        if public_key is not None:
            signatures.check_signature(source, signature, public_key)
        check_name(name)  # before anything is stored
        facts, origin = model_facts(source), {MARKED: dict(sorted((made_from or {}).items()))}
        with self._writing():
            stored = blobs.put_folder(
                self.folder,
                source,
                lambda entries: {**asdict(with_digests(facts, entries)), **origin},
                check_file,
            )
            if public_key is not None:
                signatures.check_names(signature, {each.path: each.sha256 for each in stored.files})
            version = self.tables.add(name, stored.digest, self._seal(name, stored.digest), by)
            self.attachments.put_bill(stored, version, by)
            if public_key is not None:
                self.attachments.put(stored, version, SIGNATURE, signature, by)
        return self.describe(version.text)

    def sign(self, reference: str, key: str, by: str) -> Described:
        """Sign a version's files by somebody's own key, for others to check; the signature is kept beside it.

        Raises SignatureRefusedError for a key that does not sign.
        """
        described = self.trusted(reference)
        with tempfile.TemporaryDirectory() as beside:
            files = Path(beside) / described.version.name
            blobs.take_out(self.folder, described.stored, files)
            signature = signatures.sign(files, key)
        with self._writing():
            self.attachments.put(described.stored, described.version, SIGNATURE, signature, by)
        return self.describe(described.version.text)

    check_key = staticmethod(signatures.check_key)

    @staticmethod
    def weights_of(folder: Path) -> str:
        """What `weights_sha256` would be of a folder that is not pushed."""
        return with_digests(model_facts(folder), describe_files(folder)).weights_sha256

    def branch(self, reference: str, name: str, by: str) -> Described:
        """The same bytes as the first version of another name: what is made from there goes its own way."""
        source = self.trusted(reference)
        with self._writing():
            digest = source.stored.digest
            version = self.tables.add(name, digest, self._seal(name, digest), by)
        return self.describe(version.text)

    def find(self, reference: str) -> Version:
        """`name` (its newest), `name:3`, `name@serving`, or the first digits of a digest.

        Raises UnknownNameError for what is not there, and for digits that fit two models.
        """
        name, at, alias = reference.partition("@")
        name, colon, number = name.partition(":")
        if name == "sha256":
            return self._by_digest(reference)
        known = self.tables.versions(name) if name else []
        if at:
            wanted = self.tables.aliases(name).get(alias, 0)
        elif colon:
            wanted = int(number) if number.isdecimal() else 0
        else:
            wanted = known[-1].version if known else 0
        for each in known:
            if each.version == wanted:
                return each
        raise UnknownNameError(f"the registry has no `{reference}`", hint=self.tables.held(name))

    def describe(self, reference: str) -> Described:
        """A version with its facts; its files are not read. Raises AlteredError where facts were changed."""
        version = self.find(reference)
        with _about(version):
            return self._described(version, blobs.read_stored(self.folder, version.digest))

    def listed(self, name: str = "") -> list[Described]:
        """All versions, or those of one name, the oldest first; what is off with a manifest stands with its
        own. Raises UnknownNameError for a name that is not there."""
        found = []
        for version in self.tables.versions(self.find(name).name if name else ""):
            try:
                found.append(self.describe(version.text))
            except AlteredError as error:
                row = self._described(version, blobs.Stored(version.digest, (), {}))
                found.append(replace(row, off=error.message.removeprefix(f"{version.text}: ")))
        return found

    def _described(self, version: Version, stored: blobs.Stored) -> Described:
        aliases = self.tables.aliases(version.name)
        return Described(
            version,
            stored,
            tuple(sorted(name for name, number in aliases.items() if number == version.version)),
            self.tables.approvals(version),
            self._evaluation(version.digest),
            self._is_sealed(version),
            self.attachments.of(version.digest),
            self._evaluation(str(stored.facts.get(MARKED, {}).get("quantised", ""))),
        )

    def with_log(self, described: Described) -> Described:
        """The same with what was done to its name last, or refused.

        A bill of materials and a report come with a push and an evaluation: they are no lines of their own.
        Raises AlteredError where the log is not as this registry wrote it, or a table says otherwise.
        """
        self.tables.check()
        changes = self.tables.changes(described.version.name)
        told = [each for each in changes if each.kind in ("", SIGNATURE)]
        return replace(described, log=tuple(told[-LOG_MOST:]), log_count=len(told))

    def _evaluation(self, digest: str) -> Evaluation | None:
        report = self.tables.evaluation(digest)
        return None if report is None else from_data(Evaluation, report, finite=False)

    def trusted(self, reference: str) -> Described:
        """The same of one that this registry sealed. Raises AlteredError for any other, or a moved alias."""
        if "@" in reference:
            self.tables.check()
        described = self.describe(reference)
        version = described.version
        check_seal(self._key, VERSION, _sealed_text(version.name, version.digest), version.seal)
        return described

    def config_of(self, reference: str) -> Path:
        """Where a version's config.json lies, checked. Raises FileError for one without."""
        described = self.trusted(reference)
        entry = next((each for each in described.stored.files if each.path == "config.json"), None)
        if entry is None:
            what = f"{described.version.text} has no `config.json`"
            raise FileError(what, hint="push it with the model's configuration")
        path = blobs.blob(self.folder, entry.sha256)
        if not path.exists() or sha256_of(path) != entry.sha256:
            hint = "restore it from a copy, or push that version anew"
            raise AlteredError(f"`config.json` of {described.version.text} was altered", hint=hint)
        return path

    def pull(self, reference: str, target: Path, public_key: Path | None = None) -> Described:
        """Write a version's files into a new folder, checked while they are copied.

        With a public key one of its signatures must be by that key; it is written beside the folder, as
        `FOLDER.sig`. Raises SignatureRefusedError otherwise, and leaves nothing.
        """
        described = self.trusted(reference)
        if public_key is None:
            blobs.take_out(self.folder, described.stored, target)
            return described
        signature = target.with_name(f"{target.name}.sig")
        if signature.exists():
            raise FileError(f"`{signature}` exists", hint="name another folder")
        held: list[str] = []
        blobs.take_out(
            self.folder,
            described.stored,
            target,
            lambda files: held.append(self._signature(described, files, public_key)),
        )
        write_whole(signature, held[0])
        return described

    def verify(self, reference: str = "", public_key: Path | None = None) -> list[Described]:
        """Read seals, manifests, files, what is attached, the log and tables; with a key signatures as well.

        Raises AlteredError for the first that is off, SignatureRefusedError for a version without a signature
        by that key.
        """
        self.tables.check_log()
        versions = [self.find(reference)] if reference else self.tables.versions()
        found = [self.trusted(each.text) for each in versions]
        for stored in {each.stored.digest: each.stored for each in found}.values():
            blobs.check_stored(self.folder, stored)
        for each in found:
            for kind, digest in each.attached:
                with _about(each.version, f" {kind}"):
                    self.attachments.read(each.stored, digest)
            if public_key is not None:
                with tempfile.TemporaryDirectory() as beside:
                    blobs.take_out(self.folder, each.stored, Path(beside) / "files")
                    self._signature(each, Path(beside) / "files", public_key)
        self.tables.check()
        if not reference:
            self._check_index()
        return found

    def _check_index(self) -> None:
        def check() -> None:
            last, attached = self.attachments.added_last(), self.attachments.types()
            blobs.check_index(self.folder, self._named(), attached, last)

        try:
            check()
        except AlteredError:
            if not os.access(self.folder, os.W_OK):
                raise
            with blobs.writing(self.folder):  # somebody may have been about to write it
                check()

    def approve(self, reference: str, by: str, why: str) -> Described:
        """Vouch for a version. Raises AlteredError for one that was not sealed here."""
        described = self.trusted(reference)
        self.tables.approve(described.version, by, why)
        return self.describe(described.version.text)

    def evaluated(self, reference: str, found: Evaluation, by: str) -> Described:
        """Keep what was measured of a version, as a file beside it as well."""
        described, report = self.trusted(reference), dict(to_data(found))
        with self._writing(), self.tables.whole():
            self.attachments.put_evaluation(described.stored, described.version, report, by)
            self.tables.evaluated(described.version, report, by)
        return self.describe(described.version.text)

    def judge(self, reference: str, alias: str, limits: Limits) -> tuple[Refusal, ...]:
        """Which rules a version breaks, beside what the alias means now."""
        new = self.describe(reference)
        now = self.tables.aliases(new.version.name).get(alias)
        serving = self.describe(f"{new.version.name}:{now}") if now else None
        same = serving is not None and serving.version.digest == new.version.digest
        release = replace(_release(new), signed=self._is_signed(new, limits.signed_by))
        return refusals(release, None if serving is None or same else _release(serving), limits)

    def promote(
        self, reference: str, by: str, why: str, limits: Limits, alias: str = SERVING, beside: str = ""
    ) -> AliasMove:
        """Let the alias mean this version, judged beside what `beside` means now, by default that alias.

        Raises ReleaseRefusedError with every rule that it breaks.
        """
        version = self.find(reference)
        described = self.describe(version.text)
        blobs.check_stored(self.folder, described.stored)
        self._is_signed(described, limits.signed_by)  # takes its time, which nobody is to wait for below
        with self.tables.whole():  # what is judged is what moves, whoever else approves or promotes meanwhile
            self.tables.check()  # approvals and figures that nobody logged pass no rule, and are no reason
            broken = self.judge(version.text, beside or alias, limits)
            if not broken:
                told = "; ".join(filter(None, (why, limits.unusual)))
                return self.tables.move(version.name, alias, version.version, by, told)
            found = {each.rule: each.figure for each in broken}
            self.tables.refused(f"promotion to {alias}", version, by, found)
        raise ReleaseRefusedError(
            f"{version.text} may not be `{alias}`",
            lines=tuple((each.rule, f"{each.figure}; passes: {each.passes}") for each in broken),
            hint="do what would pass, then ask again",
        )

    def admit(self, reference: str, by: str, why: str, limits: Limits) -> AliasMove:
        """Let a version be the candidate, judged beside what serves: a gate may try it from now on. Raises
        ReleaseRefusedError."""
        return self.promote(reference, by, why, limits, CANDIDATE, SERVING)

    def wanted(self, text: str) -> quality.Wanted:
        """What answers of a version are held against while it is tried beside what serves."""
        new = self.describe(text)
        serving = self.tables.aliases(new.version.name).get(SERVING)
        now = self.describe(f"{new.version.name}:{serving}") if serving else None
        return quality.wanted_of(_release(new), None if now is None else _release(now))

    def decided(self, name: str, digest: str, by: str, passed: bool, why: str, decision: str) -> None:
        """How the trial of a version ended: a candidate serves from now on, or the log says why one does not.

        Either way it is no candidate any more; what was called off by then, by a roll-back, does not serve.
        `decision` names it: told again nothing happens, whatever people did since. Raises AlteredError, and
        UnknownNameError for what no rule let be tried.
        """
        with self.tables.whole():
            self.tables.check()
            version = next((each for each in self.tables.versions(name) if each.digest == digest), None)
            admitted = self.tables.moves(name, CANDIDATE)
            if version is None or (passed and all(move.version != version.version for move in admitted)):
                what = f"{digest[:19]} is no candidate of `{name}`"
                raise UnknownNameError(what, hint="`registry promote` asks the rules first")
            if self.tables.is_decided(decision):
                return
            aliases = self.tables.aliases(name)
            self.tables.decided(version, by, decision, why)
            if aliases.get(CANDIDATE) == version.version:  # else another one is by now
                self.tables.clear(name, CANDIDATE, by, why)
            if not passed:
                self.tables.refused("release", version, by, {"gate": why})
            elif version.version in _candidates(admitted) and aliases.get(SERVING) != version.version:
                self.tables.move(name, SERVING, version.version, by, why)

    def meant(self, name: str, alias: str) -> str:
        """The digest of what an alias means, "" of nothing. Raises AlteredError where the log says other."""
        self.tables.check()
        number = self.tables.aliases(name).get(alias)
        return self.find(f"{name}:{number}").digest if number else ""

    def before(self, name: str, alias: str = SERVING) -> Version:
        """What the alias meant before what it means now. Raises UnknownNameError where that was nothing.

        What was rolled back does not come again.
        """
        stack: list[int] = []
        for move in self.tables.moves(name, alias):
            if move.version == NOTHING:
                stack.clear()
            elif move.version in stack:
                del stack[stack.index(move.version) + 1 :]
            else:
                stack.append(move.version)
        if len(stack) < 2:
            self.find(name)
            what = f"`{name}@{alias}` meant nothing {'before what it means now' if stack else 'so far'}"
            raise UnknownNameError(what, hint=f"`twofold registry list {name}` says what each is called")
        return self.find(f"{name}:{stack[-2]}")

    def roll_back(self, name: str, by: str, why: str, alias: str = SERVING) -> AliasMove:
        """Let the alias mean what it meant before what it means now; twice goes back twice.

        What is tried beside what serves is called off: whatever its trial says later, it is no candidate any
        more. Raises UnknownNameError where it meant nothing before, AlteredError where that is not sealed or
        its files are not whole, BusyError where somebody moves the alias meanwhile.
        """
        version = self.before(name, alias)
        blobs.check_stored(self.folder, self.trusted(version.text).stored)
        with self.tables.whole():
            self.tables.check()
            if self.before(name, alias) != version:
                what = f"`{name}@{alias}` was moved meanwhile"
                raise BusyError(what, hint="see what it means now, and ask again")
            why = why or f"back from {name}:{self.tables.aliases(name)[alias]}"
            if alias == SERVING:
                self.tables.clear(name, CANDIDATE, by, why)
            return self.tables.move(name, alias, version.version, by, why)

    def trace(self, reference: str) -> list[tuple[str, str]]:
        """Where a version comes from, back to the first: (what, digest), then the aliases that it has."""
        described, found = self.describe(reference), []
        seen: set[str] = set()
        while described.stored.digest not in seen:
            seen.add(described.stored.digest)
            found.append((described.version.text, described.stored.digest))
            made_from = dict(described.stored.facts.get(MARKED, {}))
            found += [(kind, made_from[kind]) for kind in MADE_FROM if kind in made_from]
            parent = made_from.get("parent") or made_from.get("quantised")
            if not parent or all(each.digest != parent for each in self.tables.versions()):
                break
            described = self.describe(parent)
        return found

    def seal_copy(self, digest: str, copy: str) -> str:
        """What says that we made the bytes of one digest of the model of another, in another format."""
        return sealed(self._key, COPY, f"{copy} of {digest}")

    def check_copy(self, digest: str, copy: str, seal: str) -> None:
        """Raise AlteredError unless it was said so by our key."""
        check_seal(self._key, COPY, f"{copy} of {digest}", seal)

    def _by_digest(self, digits: str) -> Version:
        known = [each for each in self.tables.versions() if each.digest.startswith(digits)]
        if len({each.digest for each in known}) != 1:
            what = "fits two models" if known else "is of no model here"
            raise UnknownNameError(f"`{digits[:24]}` {what}", hint="write more of its digits")
        return known[0]

    def _seal(self, name: str, digest: str) -> str:
        return sealed(self._key, VERSION, _sealed_text(name, digest))

    def _is_sealed(self, version: Version) -> bool:
        try:
            check_seal(self._key, VERSION, _sealed_text(version.name, version.digest), version.seal)
        except AlteredError:
            return False
        return True

    def _is_signed(self, described: Described, public_key: str) -> bool:
        """Whether a signature of it is by a key; each is checked once. Raises FileError without that key."""
        asked = (described.stored.digest, public_key, described.signature_count)
        if public_key and described.signature_count and asked not in self._signed:
            with tempfile.TemporaryDirectory() as beside:
                blobs.take_out(self.folder, described.stored, Path(beside) / "files")
                try:
                    self._signature(described, Path(beside) / "files", Path(public_key))
                except signatures.SignatureRefusedError:
                    self._signed[asked] = False
                else:
                    self._signed[asked] = True
        return self._signed.get(asked, False)

    def _signature(self, described: Described, files: Path, public_key: Path) -> str:
        return self.attachments.signature_by(described.stored, described.version, files, public_key)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Nobody else writes meanwhile. The index is written behind what was added, and before it as well: a
        kill may have left it before what was added last, and `verify` lets no more than that be missing."""
        with blobs.writing(self.folder):
            self._write_index()
            yield
            self._write_index()

    def _write_index(self) -> None:
        blobs.write_index(self.folder, self._named(), self.attachments.types())

    def _named(self) -> dict[str, str]:
        return {each.text: each.digest for each in self.tables.versions()}


@contextmanager
def _about(version: Version, what: str = "") -> Iterator[None]:
    """What is found altered meanwhile is told with the version that it is of."""
    try:
        yield
    except AlteredError as error:
        raise AlteredError(f"{version.text}{what}: {error.message}", hint=error.hint) from error


def _candidates(moves: Iterable[AliasMove]) -> set[int]:
    """Versions that were let be tried since the alias last meant nothing."""
    found: set[int] = set()
    for move in moves:
        if move.version == NOTHING:
            found.clear()
        else:
            found.add(move.version)
    return found


def _sealed_text(name: str, digest: str) -> str:
    return f"{digest} as {name}"


def _release(described: Described) -> Release:
    """A version as the rules see it."""
    facts: Mapping[str, Any] = described.stored.facts
    return Release(
        digest=described.stored.digest,
        sealed=described.sealed,
        tokenizer_sha256=str(facts.get("tokenizer_sha256", "")),
        formats=_formats(facts),
        pushed_by=described.version.pushed_by,
        approved_by=described.approved_by,
        evaluation=described.evaluation,
        quantised_from=described.quantised_from,
        before_quantised=described.before_quantised,
        parent=str(facts.get(MARKED, {}).get("parent", "")),
        run=str(facts.get(MARKED, {}).get("run", "")),
        weights_sha256=str(facts.get("weights_sha256", "")),
        architecture=str(facts.get("architecture", "")),
        context_tokens=int(facts.get("context_tokens", 0)),
    )


def _formats(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """What its weights are stored in; of copies that were quantised when facts did not tell that as well."""
    found = tuple(facts.get("formats", ()))
    if "quantised" not in facts.get(MARKED, {}):
        return found
    return tuple("compressed-tensors" if each == "safetensors" else each for each in found)
