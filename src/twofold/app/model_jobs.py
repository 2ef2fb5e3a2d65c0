"""Evaluation and quantisation of a registry's versions, as jobs of a queue: the registry's own verbs."""

from dataclasses import dataclass
from pathlib import Path

from twofold.app.registering import REGISTRY, who_of
from twofold.core.errors import FileError, UsageError
from twofold.core.extras import require_extra
from twofold.live.jobs.orders import OF_REGISTRY
from twofold.live.processes import python_module
from twofold.live.registry import task_sets
from twofold.live.registry.registry import Registry

SAID = "`twofold jobs submit SPEC --kind evaluate --version NAME:3 --on held-out.jsonl`"


@dataclass(frozen=True, slots=True)
class ModelWanted:
    """What a job does with a version of a registry; empty where the job is none of these."""

    version: str = ""
    texts: Path | None = None  # what it is evaluated on
    tasks: tuple[str, ...] = ()
    bits: str | None = None  # of the weights of the smaller copy; None: 8
    registry: Path = REGISTRY


def command_of(kind: str, wanted: ModelWanted) -> tuple[str, ...]:
    """The command line of the job, every path from the root, and the version that the name means now.

    Raises UsageError for what does not belong together, FileError, UnknownNameError, MissingExtraError.
    """
    if kind not in OF_REGISTRY:
        raise UsageError("a version is evaluated or quantised", hint=SAID)
    require_extra("train", *(["tasks"] if set(wanted.tasks) - {task_sets.OWN} else []))
    foreign = (
        {"--bits": wanted.bits} if kind == "evaluate" else {"--on": wanted.texts, "--tasks": wanted.tasks}
    )
    for name, said in foreign.items():
        if said:
            raise UsageError(f"`{name}` says nothing to `--kind {kind}`", hint="leave it out")
    registry = wanted.registry.resolve()
    version = Registry(registry).trusted(wanted.version).version.text
    told = [version, "--registry", str(registry), "--by", who_of("")]
    if kind == "quantise":
        return tuple(python_module("twofold", "registry", kind, *told, "--bits", wanted.bits or "8"))
    if wanted.texts is None:
        raise UsageError("nothing says what it is evaluated on", hint=SAID)
    if not wanted.texts.is_file():
        raise FileError(f"`{wanted.texts}` does not exist", hint="name the file of the set by `--on`")
    told += ["--on", str(wanted.texts.resolve())]
    for each in wanted.tasks:
        told += ["--tasks", each if each == task_sets.OWN else str(Path(each).resolve())]
    return tuple(python_module("twofold", "registry", kind, *told))
