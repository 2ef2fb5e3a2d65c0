"""`registry`: models by digest, who released which when, and what refuses a release."""

import getpass
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twofold.app.model_workers import asked_worker
from twofold.core.data import from_data
from twofold.core.errors import (
    AlteredError,
    FileError,
    InputError,
    InputErrors,
    UsageError,
    ValueRefusedError,
)
from twofold.core.extras import require_extra
from twofold.live.registry import task_sets
from twofold.live.registry.registry import MADE_FROM, SERVING, Described, Registry
from twofold.live.training.artefact import check_model
from twofold.policy.release.rules import Evaluation, Limits, Refusal
from twofold.report.answers import Shown
from twofold.report.lines import field
from twofold.report.registry import listed, shown, verified

REGISTRY = Path(".twofold-registry")
EVALUATED_BY = (
    "it takes a model that transformers reads, and by `--on` a text, or JSON lines with `text` and `slice`"
)


@dataclass(frozen=True, slots=True)
class ShownVersions(Shown):
    """Versions, one line each."""

    schema = "twofold/versions/1"
    versions: tuple[Described, ...]

    @property
    def lines(self) -> list[str]:
        """A table, the oldest first."""
        return listed(self.versions)

    @property
    def as_data(self) -> dict[str, Any]:
        return {"versions": [_data(each) for each in self.versions]}


@dataclass(frozen=True, slots=True)
class ShownVersion(Shown):
    """One version with all that is known of it, and which rules it breaks."""

    schema = "twofold/version/1"
    version: Described
    refused: tuple[Refusal, ...] = ()
    note: str = ""  # what a push left out, and why

    @property
    def lines(self) -> list[str]:
        """One screen."""
        return [*shown(self.version, self.refused), *field("note", self.note)]

    @property
    def as_data(self) -> dict[str, Any]:
        rules = [{"rule": each.rule, "found": each.figure, "passes": each.passes} for each in self.refused]
        note = {"note": self.note} if self.note else {}
        return {**_data(self.version), "refused": rules, **note}


@dataclass(frozen=True, slots=True)
class Verified(Shown):
    """What was read and found whole."""

    schema = "twofold/verified/1"
    versions: tuple[Described, ...]
    log_lines: int
    copies: tuple[Path, ...] = ()

    @property
    def lines(self) -> list[str]:
        """In one line, then one for each copy."""
        return verified(self.versions, self.log_lines, self.copies)

    @property
    def as_data(self) -> dict[str, Any]:
        named = {"versions": [each.version.text for each in self.versions], "log_lines": self.log_lines}
        return {**named, "copies": [str(each) for each in self.copies]}


def push_version(
    source: Path,
    name: str,
    registry: Path,
    by: str,
    made_from: Sequence[str],
    tables: str,
    signature: Path | None,
    public_key: Path | None,
) -> ShownVersion:
    """Store a folder as the next version of a name; with a signature only where it holds.

    What a run exported and sealed tells itself what it was made from, where nobody says that.
    """
    with_digests = dict(_origin(each) for each in made_from)
    if len(with_digests) < len(made_from):
        raise ValueRefusedError("`--from` names a kind twice", hint="write each kind once")
    if (signature is None) != (public_key is None):
        raise ValueRefusedError(
            "a signature is checked by a key", hint="write both `--signature` and `--public-key`"
        )
    Registry.check_key(public_key)
    signed = _text(signature) if signature else ""
    if not source.is_dir():  # before a registry is made for it
        raise FileError(f"`{source}` is no folder", hint="push a folder with safetensors in it")
    note = ""
    if not with_digests:
        from twofold.live.training.origins import told_origins  # numpy, which nothing else here needs

        with_digests, why = told_origins(source)
        note = f"{why}; nothing says what it was made from: write `--from`" if why else ""
    opened = Registry(registry, make=True, tables=tables)
    return ShownVersion(opened.push(source, name, who_of(by), with_digests, signed, public_key), note=note)


def sign_version(reference: str, registry: Path, by: str, key: str) -> ShownVersion:
    """Sign a version for others, by a key that they know. Raises MissingExtraError without `sign`."""
    require_extra("sign")
    return ShownVersion(Registry(registry).sign(reference, key, who_of(by)))


def list_versions(name: str, registry: Path) -> ShownVersions:
    """All versions, or those of one name. Raises UsageError for one of its versions."""
    if ":" in name or "@" in name:
        raise UsageError(f"`{name}` is one version, and no name", hint=f"`registry show {name}`")
    return ShownVersions(tuple(Registry(registry).listed(name)))


def show_version(reference: str, registry: Path) -> ShownVersion:
    """One version, what would refuse its release by the usual limits, and what was done to its name last."""
    opened = Registry(registry)
    described = opened.with_log(opened.describe(reference))
    return ShownVersion(described, opened.judge(described.version.text, SERVING, Limits()))


def pull_version(reference: str, out: Path, registry: Path, public_key: Path | None) -> ShownVersion:
    """Write a version's files into a new folder; with a key only where it is signed by that."""
    Registry.check_key(public_key)
    return ShownVersion(Registry(registry).pull(reference, out, public_key))


def approve_version(reference: str, registry: Path, by: str, why: str) -> ShownVersion:
    """Vouch for a version; what still refuses its release is shown, and whether this approval counts."""
    opened = Registry(registry)
    described = opened.approve(reference, who_of(by), why)
    return ShownVersion(described, opened.judge(described.version.text, SERVING, Limits()))


def verify_versions(
    reference: str, registry: Path, public_key: Path | None, copies: tuple[Path, ...]
) -> Verified:
    """Read everything, and say whether it is what was pushed; with a key also whether that signed it.

    `copies` are folders that one version was pulled into, wherever they stand now. Raises InputErrors with
    every copy that has other bytes, UsageError where no version is named.
    """
    if copies and not reference:
        raise UsageError("copies are of one version", hint="name it: `registry verify NAME:3 --copy FOLDER`")
    Registry.check_key(public_key)
    opened = Registry(registry)
    found = tuple(opened.verify(reference, public_key))
    _check_copies(copies, found[0].version.digest if copies else "")
    return Verified(found, len(opened.tables.log()), copies)


def _check_copies(copies: Sequence[Path], digest: str) -> None:
    broken: list[InputError] = []
    for folder in copies:
        try:
            check_model(folder, digest)
        except (AlteredError, FileError) as error:
            broken.append(AlteredError(error.message, hint=f"pull {digest[:19]} anew in its place"))
    if broken:
        raise InputErrors(broken)


def branch_version(reference: str, name: str, registry: Path, by: str) -> ShownVersion:
    """The same bytes as the first version of another name."""
    return ShownVersion(Registry(registry).branch(reference, name, who_of(by)))


def evaluate_version(
    reference: str,
    texts: Path,
    registry: Path,
    by: str,
    alias: str,
    tasks: Sequence[str],
    tell: Callable[[str], None],
) -> ShownVersion:
    """Measure a version on held-out text, beside what the alias means now, and keep the figures.

    `tasks` are sets that it is asked as well: `own`, or folders of lm-evaluation-harness's.

    Raises MissingExtraError without `train`, ValueRefusedError for a set that cannot be read.
    """
    require_extra("train", *(["tasks"] if set(tasks) - {task_sets.OWN} else []))
    if not texts.is_file():
        raise FileError(f"`{texts}` is no file", hint="name a text or JSON lines that were held out: `--on`")
    opened = Registry(registry)
    described = measured(opened, reference, texts, who_of(by), alias, tell, tasks=tasks)
    return ShownVersion(described, opened.judge(described.version.text, alias, Limits()))


def measured(
    opened: Registry,
    reference: str,
    texts: Path,
    by: str,
    alias: str,
    tell: Callable[[str], None],
    also: Callable[[Evaluation], Evaluation] = lambda found: found,
    tasks: Sequence[str] = (),
) -> Described:
    """A version that was measured on text, beside what the alias means now; `also` adds what else is measured
    of it before it is kept. Raises ValueRefusedError for a set that cannot be read."""
    described = opened.trusted(reference)
    version = described.version
    now = opened.tables.aliases(version.name).get(alias)
    old = opened.describe(f"{version.name}:{now}") if now else None
    if old is not None and _has_own(old.evaluation) and _gives_questions(texts):
        tasks = sorted({task_sets.OWN, *tasks})  # what serves was asked is asked of what is to come after it
    with tempfile.TemporaryDirectory() as folder:
        tell(f"evaluate {version.text}")
        model, before = Path(folder) / "new", Path(folder) / "now"
        opened.pull(version.text, model)
        if old is None or now == version.version:
            found = _evaluated(model, texts, None, tasks)
        else:
            opened.pull(old.version.text, before)
            found = replace(_evaluated(model, texts, before, tasks), beside=old.version.digest)
            if _lacks(old.evaluation, found):  # what serves now is asked the same
                tell(f"evaluate {old.version.text}")
                opened.evaluated(
                    old.version.text, _with_tasks(_evaluated(before, texts, None, tasks), old.evaluation), by
                )
    _evaluate_origin(opened, version.text, found.set_sha256, texts, by, tell)
    return opened.evaluated(version.text, also(_with_tasks(found, described.evaluation)), by)


def _lacks(before: Evaluation | None, found: Evaluation) -> bool:
    """Whether a model was not measured on what another one was."""
    if before is None or before.set_sha256 != found.set_sha256:
        return True
    return not _task_sets(found) <= _task_sets(before)


def _with_tasks(found: Evaluation, before: Evaluation | None) -> Evaluation:
    """With scores of the same model on tasks that it was not asked again."""
    kept = before.tasks if before is not None else ()
    others = [each for each in kept if each.name not in {new.name for new in found.tasks}]
    return replace(found, tasks=(*found.tasks, *others))


def _has_own(found: Evaluation | None) -> bool:
    return found is not None and any(each.name in task_sets.OWN_TASKS for each in found.tasks)


def _gives_questions(texts: Path) -> bool:
    """Whether a set is long enough to be made questions of."""
    from twofold.live.registry import evaluate_worker

    try:
        found = [each.text for each in evaluate_worker.read_texts(texts)]
    except (OSError, ValueError):
        return True  # its worker says what is wrong
    try:
        task_sets.own_questions(found)
    except ValueError:
        return False
    return True


def _task_sets(found: Evaluation) -> set[tuple[str, str]]:
    return {(each.name, each.set_sha256) for each in found.tasks}


def _evaluate_origin(
    opened: Registry, reference: str, set_sha256: str, texts: Path, by: str, tell: Callable[[str], None]
) -> None:
    """Measure what a version was quantised from, unless it was on this set."""
    origin = opened.describe(reference).quantised_from
    if all(each.digest != origin for each in opened.tables.versions()):
        return
    before = opened.describe(origin)
    if before.evaluation is None or before.evaluation.set_sha256 != set_sha256:
        tell(f"evaluate {before.version.text}")
        with tempfile.TemporaryDirectory() as kept:
            opened.pull(before.version.text, Path(kept) / "before")
            found = _evaluated(Path(kept) / "before", texts, None)
        opened.evaluated(before.version.text, found, by)


def quantise_version(reference: str, registry: Path, by: str, bits: str = "8") -> ShownVersion:
    """Keep a copy of a version with weights of 8 or 4 bits as the next version of its name.

    Raises MissingExtraError without `train`, ValueRefusedError for a model that cannot be made smaller so.
    """
    require_extra("train")
    opened = Registry(registry)
    source = opened.trusted(reference)
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        opened.pull(source.version.text, folder / "model")
        told = {"model": str(folder / "model"), "out": str(folder / "smaller"), "bits": int(bits)}
        asked = json.dumps(told)
        worker = "twofold.live.registry.quantise_worker"
        asked_worker(worker, asked, "quantised", "push it as it was before")
        made_from = {"quantised": source.version.digest}
        described = opened.push(folder / "smaller", source.version.name, who_of(by), made_from)
    return ShownVersion(described, opened.judge(described.version.text, SERVING, Limits()))


def _evaluated(model: Path, texts: Path, before: Path | None, tasks: Sequence[str] = ()) -> Evaluation:
    from twofold.live.registry import evaluate_worker

    sets = tuple(each if each == task_sets.OWN else str(Path(each).resolve()) for each in tasks)
    asked = evaluate_worker.Asked(str(model), str(texts.resolve()), str(before) if before else "", tasks=sets)
    worker = "twofold.live.registry.evaluate_worker"
    said = asked_worker(worker, evaluate_worker.request_of(asked), "evaluated", EVALUATED_BY)
    return from_data(Evaluation, said, finite=False)


def _origin(said: str) -> tuple[str, str]:
    """`data=sha256:…` as the two."""
    kind, equals, digest = said.partition("=")
    if kind not in MADE_FROM or not equals or not digest or not digest.isprintable():
        hint = f"write KIND=DIGEST; kinds: {', '.join(MADE_FROM)}"
        raise ValueRefusedError(f"`{said}` does not say what it was made from", hint=hint)
    return kind, digest


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise FileError(f"`{path}` cannot be read", hint="name the signature's file") from error


def who_of(by: str) -> str:
    """Who does it: as told, or whoever runs this. Raises ValueRefusedError for a name of several lines."""
    who = by.strip() or getpass.getuser()
    if not who.isprintable():
        raise ValueRefusedError(
            "`--by` is no name", hint="write a name in one line, without control characters"
        )
    return who


def _data(described: Described) -> dict[str, Any]:
    from twofold.core.data import to_data

    version = described.version
    told = described.log
    log = {} if told is None else {"log": [_line_data(each) for each in told]}
    return {
        "name": version.name,
        "version": version.version,
        "digest": version.digest,
        "pushed_at": version.pushed_at,
        "pushed_by": version.pushed_by,
        "size_bytes": described.stored.size_bytes,
        "file_count": len(described.stored.files),
        "facts": dict(described.stored.facts),
        "aliases": list(described.aliases),
        "approved_by": list(described.approved_by),
        "evaluation": None if described.evaluation is None else to_data(described.evaluation),
        "sealed": described.sealed,
        "attached": [{"type": kind, "digest": digest} for kind, digest in described.attached],
        **log,
        **({"off": described.off} if described.off else {}),
    }


def _line_data(change: Any) -> dict[str, Any]:
    rules = [{"rule": rule, "found": found} for rule, found in change.rules]
    return {
        **{key: getattr(change, key) for key in ("at", "what", "on", "by", "alias", "why")},
        "rules": rules,
    }
