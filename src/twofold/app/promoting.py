"""`registry promote`, `rollback` and `trace`: an alias moves, and so does a service that serves it.

Where a service beside the registry serves the name, a promotion is a candidate first: its gate tries it, and
what comes of that moves the alias. A roll-back moves the alias at once, and the service with it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twofold.app.loop_settings import STATE_FOLDER
from twofold.app.registering import who_of
from twofold.app.releasing import (
    OF_ENGINE,
    OF_OTHERS,
    engine_with,
    formats_of,
    is_of_engine,
    on_engine,
    questions_for,
    taken,
)
from twofold.core.errors import BusyError, RunError, ValueRefusedError
from twofold.core.quantity import Dimension, parse_quantity
from twofold.live.control import moving, trials
from twofold.live.control.service import ServiceSettings
from twofold.live.registry.registry import CANDIDATE, SERVING, Registry
from twofold.live.registry.tables import AliasMove
from twofold.policy.release.rules import Limits
from twofold.report.answers import Shown
from twofold.report.registry import moved, traced


@dataclass(frozen=True, slots=True)
class Moved(Shown):
    """An alias means another version now; what a service that serves it does about that."""

    schema = "twofold/alias/1"
    move: AliasMove
    service: str = ""  # in words; "": none serves it
    serves_again_s: float | None = None  # until every replica ran it

    @property
    def lines(self) -> list[str]:
        """A line each."""
        return [*moved(self.move), *filter(None, [self.service])]

    @property
    def as_data(self) -> dict[str, Any]:
        move = {name: getattr(self.move, name) for name in ("name", "alias", "version", "at", "by", "why")}
        return {"move": move, "service": self.service, "serves_again_s": self.serves_again_s}


@dataclass(frozen=True, slots=True)
class Traced(Shown):
    """Where a version comes from, and where it is served."""

    schema = "twofold/trace/1"
    steps: tuple[tuple[str, str], ...]
    aliases: tuple[str, ...]
    served_at: str = ""  # the address of the service beside the registry, and which replicas run it

    @property
    def lines(self) -> list[str]:
        """A line each, the newest first."""
        return traced(self.steps, self.aliases, self.served_at)

    @property
    def as_data(self) -> dict[str, Any]:
        steps = [{"what": what, "digest": digest} for what, digest in self.steps]
        return {"steps": steps, "aliases": list(self.aliases), "served_at": self.served_at}


def promote_version(
    reference: str,
    registry: Path,
    by: str,
    why: str,
    alias: str,
    loss_rise: str,
    approvals: int,
    public_key: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Moved:
    """Let an alias mean a version, unless a rule refuses; one that is served is tried by the gate first.

    Beside a service the rules are those of its spec, and what they ask of the engine that serves is measured
    there, where it was not.
    """
    opened, who = Registry(registry), who_of(by)
    version = opened.find(reference)
    service = _wanted(registry, version.name) if alias == SERVING else None
    state = None if service is None else served_beside(registry, version.name)
    limits = replace(service.limits if service else Limits(), approvals_least=approvals)
    if loss_rise:
        limits = replace(limits, loss_rise_fraction=parse_quantity(loss_rise, Dimension.FRACTION))
    if public_key is not None:
        if limits.signed_by and Path(limits.signed_by).resolve() != public_key.resolve():
            what = f"the service's spec asks for a signature of `{limits.signed_by}`, not of `{public_key}`"
            raise ValueRefusedError(what, hint="leave out `--public-key`, or change `signed_by` in the spec")
        Registry.check_key(public_key)
        limits = replace(limits, signed_by=str(public_key))
    if state is None or service is None:
        if service is not None and not _is_measured(opened, version.text, service):
            limits = replace(limits, ttft_p95_s=None, tpot_p95_s=None, memory_bytes=None)
        words = _alone(service, "the alias alone moved, and nothing was measured on an engine")
        return Moved(opened.promote(version.text, who, why, limits, alias), words)
    _settled(opened, version.name, state)
    limits = replace(limits, formats=formats_of(service.engine.kind))
    is_tried = service.gate.canary is not None and trials.serving_version(state) != _folder_name(
        version.digest
    )
    ask = opened.admit if is_tried else opened.promote
    if not _is_let(opened, version.text, state, service, limits, who, tell):
        ask(version.text, who, why, limits)  # refused and logged, before anything is opened
    if not is_tried:
        moved = _brought(opened, version.text, state, service, lambda: ask(version.text, who, why, limits))
        return replace(moved, service=f"{moved.service}{_unasked(limits)}")
    now = opened.tables.aliases(version.name).get(SERVING)
    beside = f"{version.name}:{now}" if now else "what serves"
    release = taken(state, opened, version.text)  # what may fail comes before it is a candidate
    engine = engine_with(service.engine, release, state, opened.folder)
    questions = questions_for(state, opened, version.text)
    intent = moving.Intent(CANDIDATE, release.folder.name, engine, is_tried=True, questions=questions)
    with _as_one(opened, version.name, state, intent):
        move = ask(version.text, who, why, limits)
    words = f"the gate tries it beside {beside}, and decides{_unasked(limits)}"
    return Moved(move, f"{words}: `twofold status`, `twofold registry show {version.name}`")


def _is_let(
    opened: Registry,
    text: str,
    state: Path,
    service: ServiceSettings,
    limits: Limits,
    who: str,
    tell: Callable[[str], None],
) -> bool:
    """Whether the rules let it pass; what they ask of the engine that serves is measured there first, where
    nothing else refuses and nobody measured it there."""

    def broken() -> set[str]:
        return {each.rule for each in opened.judge(text, SERVING, limits)}

    refused, found = broken(), opened.describe(text).evaluation
    if refused - OF_ENGINE or found is None or is_of_engine(found, service.engine):
        return not refused
    if not service.prompt_tokens or not _asks_the_engine(limits):
        return not refused
    release = taken(state, opened, text, tell)
    engine = engine_with(service.engine, release, state, opened.folder)
    tokens = service.prompt_tokens, service.answer_tokens
    opened.evaluated(text, on_engine(state, release, engine, tokens, found, limits, tell), who)
    return not broken()


def _asks_the_engine(limits: Limits) -> bool:
    return any(most is not None for most in (limits.ttft_p95_s, limits.tpot_p95_s, limits.memory_bytes))


def _is_measured(opened: Registry, text: str, service: ServiceSettings) -> bool:
    """Whether times and memory of a version are known of the engine that a service runs."""
    found = opened.describe(text).evaluation
    return found is not None and is_of_engine(found, service.engine)


def _unasked(limits: Limits) -> str:
    """What the service promises nothing of, so that no release is measured for it."""
    if _asks_the_engine(limits):
        return ""
    return "; it promises neither times nor memory, and none were measured"


def _alone(service: ServiceSettings | None, words: str) -> str:
    """In words, why no service follows an alias; "" where none is of its name."""
    if service is None:
        return ""
    return f"{words}: {OF_OTHERS if service.engine.url else 'its service does not run'}"


def roll_back_version(name: str, registry: Path, by: str, why: str, alias: str) -> Moved:
    """Let an alias mean what it meant before; a service that serves it goes back as well."""
    opened, who = Registry(registry), who_of(by)
    service = _wanted(registry, name) if alias == SERVING else None
    state = None if service is None else served_beside(registry, name)
    if state is None or service is None:
        return Moved(opened.roll_back(name, who, why, alias), _alone(service, "the alias alone moved"))
    _settled(opened, name, state)
    version = opened.before(name)

    def back() -> AliasMove:
        with opened.tables.whole():
            if opened.before(name) != version:
                hint = "see what it means now, and ask again"
                raise BusyError(f"`{name}@{alias}` was moved meanwhile", hint=hint)
            return opened.roll_back(name, who, why)

    return _brought(opened, version.text, state, service, back)


def trace_version(reference: str, registry: Path) -> Traced:
    """Where a version comes from, back to the first, and where replicas of it answer now."""
    opened = Registry(registry)
    described, served_at = opened.describe(reference), ""
    name = described.version.name
    service, state = _wanted(registry, name), served_beside(registry, name)
    if state is not None and service is not None:
        names = trials.serving_replicas(state, _folder_name(described.version.digest))
        served_at = f"{service.url}, by {', '.join(names)}" if names else ""
    return Traced(tuple(opened.trace(reference)), described.aliases, served_at)


def served_beside(registry: Path, name: str) -> Path | None:
    """The state of the service that runs beside a registry and serves this name of it; None: none does, or
    its server is not ours to release to."""
    service, state = _wanted(registry, name), _state_beside(registry)
    if service is None or service.engine.url:
        return None
    return state if trials.serving_version(state) else None


def _wanted(registry: Path, name: str) -> ServiceSettings | None:
    """What is wanted of the service of this name beside a registry, whether it runs or not."""
    service = trials.wanted_service(_state_beside(registry))
    is_of_it = service is not None and Path(service.registry) == registry.resolve()
    return service if service is not None and is_of_it and service.registered == name else None


def _state_beside(registry: Path) -> Path:
    return registry.resolve().parent / STATE_FOLDER


def _folder_name(digest: str) -> str:
    """What a service calls it."""
    return digest.replace(":", "-")


def _brought(
    opened: Registry, text: str, state: Path, service: ServiceSettings, move: Callable[[], AliasMove]
) -> Moved:
    """`serving` means this version and every replica runs it, without a trial; how long that took.

    Where its files cannot be made ready, or its replicas do not come, both are as before.
    """
    began_s, name = time.monotonic(), text.partition(":")[0]
    release = taken(state, opened, text)
    engine = engine_with(service.engine, release, state, opened.folder)
    there = moving.Intent(SERVING, release.folder.name, engine, is_tried=False)
    with _as_one(opened, name, state, there):
        meant, ran = opened.tables.aliases(name).get(SERVING), trials.serving_version(state)
        engine_before = trials.wanted_engine(state)
        moved = move()
    try:
        trials.until_all_run(state, release.folder.name)
    except RunError as error:
        why = f"{text} did not come: {error.message}"
        means = _folder_name(opened.find(f"{name}:{meant}").digest) if meant else ""
        back = moving.Intent(SERVING, ran, engine_before, is_tried=False, means=means)
        with _as_one(opened, name, state, back):
            _undo(opened, moved, meant, why)
        raise RunError(f"{why}; what served before serves on", hint=error.hint) from error
    took_s = time.monotonic() - began_s
    return Moved(moved, f"every replica runs it, after {took_s:.1f} s", took_s)


def _undo(opened: Registry, moved: AliasMove, meant: int | None, why: str) -> None:
    """The alias as it was before this move. Raises BusyError where it was moved again since."""
    with opened.tables.whole():
        if opened.tables.moves(moved.name, moved.alias)[-1] != moved:
            hint = f"`twofold registry show {moved.name}@{moved.alias}` says what it means now"
            raise BusyError(f"{why}; the alias was moved again meanwhile", hint=hint)
        if meant:
            opened.tables.move(moved.name, moved.alias, meant, moved.by, why)
        else:
            opened.tables.clear(moved.name, moved.alias, moved.by, why)


@contextmanager
def _as_one(opened: Registry, name: str, state: Path, intent: moving.Intent) -> Iterator[None]:
    """The alias moves in the block, then the service, and nobody else meanwhile."""
    with moving.alone(state) as store:

        def meant(alias: str) -> str:
            return opened.meant(name, alias)

        moving.settle(store, meant)
        with moving.both(store, intent, meant):
            yield


def _settled(opened: Registry, name: str, state: Path) -> None:
    """What somebody left half moved who was killed is moved, or was never begun."""
    with moving.alone(state) as store:
        moving.settle(store, lambda alias: opened.meant(name, alias))
