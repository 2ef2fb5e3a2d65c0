"""Releases that are broken on purpose, tried by the gate of a service that runs, on real engines over HTTP.

The service is what `up` starts: controller, gateway and two replicas of `transformers serve`, with a very
small model that learnt Python's sources. The rules before the gate ask for nothing here, since they would
refuse most of these releases before any client saw one; clients ask at the rate that the trial is made for.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from tests.live.test_registry import FOUND
from tests.soak import releases
from tests.soak.releases import GOOD, PROMPT_TOKENS, SEEN_BYTES, Ended, Made, sizes_of, train
from twofold.app.promoting import promote_version
from twofold.app.releasing import HELD_OUT, taken
from twofold.app.trying import OPEN, PROMOTED, seen_of
from twofold.live.control import trials
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.loads import loader, loads
from twofold.live.processes import free_port
from twofold.live.registry.registry import CANDIDATE, SERVING, Registry
from twofold.live.training.corpus import held_out_texts
from twofold.policy.gate.settings import CanarySettings, GateSettings, RolloutSettings
from twofold.policy.gate.small_trial import small_trial
from twofold.policy.release.rules import Limits

NAME = "tiny"
RATE_PER_S, TRIAL_S = 2.0, 50.0  # that the trial is made for
IN_FLIGHT = 8  # at a replica, at most
ANSWER_TOKENS = 32  # fewer tell too little of the time of one
SEGMENT_S = 3.0  # of requests between two looks
PATIENCE_S = 150.0  # after which a trial counts as undecided
# What no rule is to refuse before the gate sees it.
NOTHING_ASKED = Limits(
    loss_rise_fraction=None,
    quantised_rise_fraction=None,
    calibration_rise_fraction=None,
    drift_most_nats=None,
    task_drop_fraction=None,
    same_run_same_weights=False,
    same_tokenizer=False,
    same_architecture=False,
)


def slower(model: Path, folder: Path, seed: int) -> None:
    """Four times the layers, since half of a token's time is the server's own here."""
    between = folder.with_name(f"{folder.name}-between")
    releases.slower(model, between, seed)
    releases.slower(between, folder, seed)


BAD: Mapping[str, Made] = {**releases.BAD, "a slower build": slower}


@dataclass(frozen=True, slots=True)
class Running:
    """A service that serves the first version of `NAME`, beside the registry."""

    folder: Path
    model: Path
    canary: CanarySettings
    endpoint: loader.Endpoint

    @property
    def registry(self) -> Path:
        return self.folder / ".twofold-registry"

    @property
    def state(self) -> Path:
        return self.folder / ".twofold"


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """Train, register and serve; all down at the end."""
    model, canary = train(folder / "model"), small_trial(RATE_PER_S, TRIAL_S)
    port = free_port()
    made = Running(folder, model, canary, loader.bare_endpoint(f"http://127.0.0.1:{port}"))
    opened = Registry(made.registry, make=True)
    opened.push(model, NAME, "ann")
    opened.evaluated(f"{NAME}:1", FOUND, "ann")
    opened.promote(f"{NAME}:1", "ann", "", replace(NOTHING_ASKED, approvals_least=0))
    release = taken(made.state, opened, f"{NAME}:1")
    opened.close()
    texts = held_out_texts(SEEN_BYTES, 24, 1500)
    lines = [json.dumps({"slice": kind, "text": text}) for kind, text in texts]
    (made.state / HELD_OUT).write_text("\n".join(lines) + "\n", "utf-8")
    engine = EngineSettings(str(release.folder), "float32", 1, 64, 256, digest=release.digest)
    gate = GateSettings(canary=canary, rollout=RolloutSettings())
    settings = ServiceSettings(
        engine, 2, IN_FLIGHT, port, 0.0001, 0.01, gate, name=NAME,
        registry=str(made.registry.resolve()), registered=NAME, limits=NOTHING_ASKED,
    )  # fmt: skip
    try:
        bring_up(settings, made.state)
        yield made
    finally:
        bring_down(made.state)


def tried(service: Running, kind: str, made: Made, seed: int) -> Ended:
    """One release pushed, promoted past the rules, and asked by clients until the gate has decided."""
    folder = service.folder / f"{kind.replace(' ', '-')}-{seed}"
    made(service.model, folder, seed)
    (folder / "seed.txt").write_text(str(seed))  # equal bytes would be one version
    opened = Registry(service.registry)
    serving = opened.find(f"{NAME}@{SERVING}")
    version = opened.push(folder, NAME, "ann", {"parent": serving.digest}).version
    opened.evaluated(version.text, replace(FOUND, beside=serving.digest), "ann")
    opened.approve(version.text, "bob", "to see what the gate does")
    name, offered_s = version.digest.replace(":", "-"), time.monotonic()
    promote_version(version.text, service.registry, "ann", kind, SERVING, "", 1)
    _asked_until_decided(service, name, offered_s, seed)
    seen = seen_of(service.state, name, offered_s)
    if seen.outcome == OPEN:
        trials.withdraw_release(service.state, name)
    promoted = seen.outcome == PROMOTED
    trials.until_all_run(service.state, name if promoted else serving.digest.replace(":", "-"))
    while opened.tables.aliases(NAME).get(CANDIDATE):  # the registry has not heard of it yet
        assert time.monotonic() < offered_s + 2 * PATIENCE_S, "the registry never heard of it"
        time.sleep(0.1)
    opened.close()
    shares = [stage.share_fraction for stage in service.canary.stages]
    size = sizes_of(service.canary)[shares.index(seen.stage_fraction)] if seen.stage_fraction in shares else 0
    took_s = (seen.decided_s or time.monotonic()) - offered_s
    why = "undecided" if seen.outcome == OPEN else seen.why
    if size:  # a stage's size counts answers: others were under way when it was decided
        size += IN_FLIGHT
    return Ended(promoted, why, seen.requests, seen.to_release, seen.stage_fraction, size, took_s)


def _asked_until_decided(service: Running, version: str, offered_s: float, seed: int) -> None:
    prompts = cycle(loader.prompts_of(service.model, PROMPT_TOKENS, seed=seed))
    segment = 0
    while not trials.is_decided(service.state, version) and time.monotonic() < offered_s + PATIENCE_S:
        segment += 1
        arrivals_s = loads.poisson_arrivals_s(RATE_PER_S, SEGMENT_S, 1000 * seed + segment)
        loader.hold_open(
            service.endpoint, prompts, arrivals_s, duration_s=SEGMENT_S, max_tokens=ANSWER_TOKENS
        )


def live_trials(folder: Path, count: int) -> Mapping[str, list[Ended]]:
    """So many trials of each kind of release by one service."""
    found = dict[str, list[Ended]]()
    with running(folder) as service:
        for seed in range(count):
            for kind, made in {**BAD, **GOOD}.items():
                found.setdefault(kind, []).append(tried(service, kind, made, seed))
                print(f"{kind}, seed {seed}: {found[kind][-1]}", flush=True)
    return {kind: found[kind] for kind in (*GOOD, *BAD)}
