"""A release while it is tried: asks the service where nobody else does, until the gate decides."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from twofold.app.gates import ServedGate
from twofold.app.loop_settings import SEED, LoopRequest
from twofold.app.loop_stages import (
    USERS_GONE_S,
    others_asked_ago_s,
    own_endpoint,
    own_load,
    own_load_ended_s,
)
from twofold.app.releasing import Release, admitted, engine_of_release, variant_of
from twofold.contracts.results import loop
from twofold.live.control import trials
from twofold.live.gateway.told import entries_between
from twofold.live.loads import loader, loads
from twofold.live.registry.registry import SERVING, Registry, ReleaseRefusedError
from twofold.live.training import variants
from twofold.policy.gate import events

SEGMENT_S = 12.0  # of requests between two looks
TRIAL_S = 240.0  # after which nobody waits any more; the trial goes on
RECORDED_S = 60.0  # within which the registry is to have heard
LOOK_S = 0.2
PROMOTED, ROLLED_BACK, REFUSED, OPEN = "promoted", "rolled back", "refused", "open"


@dataclass(frozen=True, slots=True)
class Variant:
    """A release that a pipeline is tried with, made of what serves."""

    kind: str  # in words
    is_to: str  # what it is to what serves: quantised, parent
    wanted: str  # how its trial is to end
    made: Callable[[Path, Path], None]


VARIANTS = (  # in their order
    Variant("its weights in bf16", "quantised", PROMOTED, variants.in_bf16),
    Variant("a slower build", "parent", ROLLED_BACK, variants.slower_build),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the gate's log says of one trial."""

    outcome: str
    why: str
    decided_s: float | None  # on the monotonic clock
    requests: int
    to_release: int
    stage_fraction: float


def until_decided(request: LoopRequest, release: Release, kind: str, offered_s: float) -> loop.ReleaseTried:
    """Wait for the gate's decision, and for the registry to hear of it. Where nobody else asks the service,
    requests come as its class plans: without any there is nothing to decide by."""
    version, served = release.folder.name, request.serving
    prompts = cycle(loader.prompts_of(release.folder, served.input_tokens, seed=SEED))
    endpoint = own_endpoint(request.state, served.name)
    segment = 0
    while not trials.is_decided(request.state, version) and time.monotonic() < offered_s + TRIAL_S:
        users = others_asked_ago_s(request.state, max(own_load_ended_s(request.state), offered_s))
        if segment == 0 and users is not None and users < USERS_GONE_S:
            time.sleep(LOOK_S)
            continue
        segment += 1
        request.progress(f"try {release.text}, {kind}: {time.monotonic() - offered_s:.0f} s")
        with own_load(request.state):
            loader.hold_open(
                endpoint,
                prompts,
                loads.poisson_arrivals_s(served.rate_per_s, SEGMENT_S, SEED + segment),
                duration_s=SEGMENT_S,
                max_tokens=served.output_tokens,
            )
    seen = seen_of(request.state, version, offered_s)
    if seen.outcome == PROMOTED:
        request.progress(f"{release.text} passed: every replica is to run it")
        trials.until_all_run(request.state, version)
        _until_recorded(request, release)
    took_s = None if seen.decided_s is None else seen.decided_s - offered_s
    counts = seen.requests, seen.to_release, seen.stage_fraction
    return loop.ReleaseTried(release.text, kind, seen.outcome, seen.why, took_s, *counts)


def seen_of(state: Path, version: str, offered_s: float) -> Seen:
    """One trial, by the gate's log: how it ended, and how many of the requests until then went to it."""
    names: set[str] = set()
    stage_fraction, requests, to_release = 0.0, 0, 0
    for entry in entries_between(state / "gateway" / "events.jsonl", offered_s, time.monotonic()):
        if isinstance(entry.event, events.ReplicaAdded) and entry.event.version == version:
            names.add(entry.event.replica_id)
        for effect in entry.effects:
            match effect:
                case events.Send():
                    requests, to_release = requests + 1, to_release + (effect.replica_id in names)
                case events.StageRelease() if effect.version == version:
                    stage_fraction = effect.share
                case events.PromoteRelease() if effect.version == version:
                    why = effect.reason or "no worse in any of its tests"
                    return Seen(PROMOTED, why, entry.now_s, requests, to_release, stage_fraction)
                case events.RollBackRelease() if effect.version == version:
                    return Seen(ROLLED_BACK, effect.reason, entry.now_s, requests, to_release, stage_fraction)
                case _:
                    pass
    return Seen(OPEN, "the gate has not decided yet", None, requests, to_release, stage_fraction)


def _until_recorded(request: LoopRequest, release: Release) -> None:
    opened, deadline_s = Registry(request.registry), time.monotonic() + RECORDED_S
    try:
        name = release.text.partition(":")[0]
        while opened.find(f"{name}@{SERVING}").digest != release.digest and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
    finally:
        opened.close()


def refusal_of(tried: loop.ReleaseTried) -> ReleaseRefusedError:
    """A trial that was not passed, as the error that `up` ends with; what served before serves on."""
    share = f"{tried.to_release} of {tried.requests} requests, at a stage of {tried.stage_fraction:.0%}"
    return ReleaseRefusedError(
        f"{tried.version} is not served: {tried.outcome}",
        lines=(("gate", tried.why), ("it got", share)),
        hint="what served before serves on; `twofold registry show` has its figures",
    )


def try_variants(request: LoopRequest, gate: ServedGate) -> tuple[loop.ReleaseTried, ...]:
    """Release what serves anew, once as good and once slower, and let rules and gate judge each.

    Each says beside its outcome which one it was made to have.
    """
    return tuple(replace(try_variant(request, gate, each), wanted=each.wanted) for each in VARIANTS)


def try_variant(request: LoopRequest, gate: ServedGate, variant: Variant) -> loop.ReleaseTried:
    """One of them: made, registered, measured, judged by the rules, then by the gate."""
    kind, opened = variant.kind, Registry(request.registry)
    try:
        described = variant_of(request, opened, variant.is_to, variant.made)
        text = described.version.text
        try:
            release = admitted(request, opened, described, gate.built.settings, f"tried: {kind}")
        except ReleaseRefusedError as error:
            why = "; ".join(f"{rule}: {found}" for rule, found in error.lines)
            return loop.ReleaseTried(text, kind, REFUSED, why, None, 0, 0, 0.0)
    finally:
        opened.close()
    engine = engine_of_release(request, release)
    offered_s = trials.offer_release(request.state, release.folder.name, engine, release.questions)
    return until_decided(request, release, kind, offered_s)
