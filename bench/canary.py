"""How often the twin's own engines see a release judged rightly: rates over seeds, with 95 % intervals.

`python -m bench.canary [--seeds N] [--first SEED] [--replicas N] [--kinds equal,slower,…]`: every seed is
other traffic, other failures and other scores, with the example's whole gate on; `python -m bench canary`
runs a hundred. Not among the benches that run without a name: a trial takes 20,000 requests and seconds.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scipy.stats import beta  # type: ignore[import-untyped]  # scipy ships no types

from bench.twin import WHOLE, world
from bench.twin_engine import step_table
from twofold.policy.gate.events import Effect, Event, PromoteRelease, RollBackRelease
from twofold.policy.gate.settings import GateSettings
from twofold.policy.machine import Machine
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings
from twofold.twin.serving.fault_types import Release
from twofold.twin.serving.fleet import FleetRun
from twofold.twin.serving.fleet_types import Arrival, FleetWorld, ReplicaGroup
from twofold.twin.serving.traffic import Lengths, TrafficModel, generate

SEEDS = 100
REPLICAS = 4
RATE_PER_S = 12.0  # of each replica: busy, and not overloaded
BASE_ERROR_FRACTION = 0.005
QUALITY_SPREAD = 0.4  # of answers that are right or wrong, at eight tenths right
HORIZON_S = 3000.0
KINDS = {
    "equal": Release(5.0, "next"),
    "slower": Release(5.0, "next", step_factor=1.15),
    "errors": Release(5.0, "next", error_fraction=0.01),
    "quality": Release(5.0, "next", quality_drop=0.05),
}
# The size of the pool is the release's affair alone here: replicas that come and go are another bench's.
GATE = replace(WHOLE, scaling=None)


@dataclass(frozen=True, slots=True)
class Trial:
    """How one release ended; `reason` is empty where it was promoted, None where it was never decided."""

    promoted: bool
    reason: str | None
    canary_count: int  # attempts that were sent to it
    seconds: float  # of the world, since it was offered


@dataclass(slots=True)
class WatchedGate:
    """A gate that remembers how its release ended, and on what evidence."""

    gate: Machine[Event, Effect]
    decided: Effect | None = None
    decided_s: float = 0.0

    def wake_at_s(self) -> float | None:
        return self.gate.wake_at_s()

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        effects = self.gate.handle(event, now_s)
        for effect in effects:
            if isinstance(effect, PromoteRelease | RollBackRelease) and self.decided is None:
                self.decided, self.decided_s = effect, now_s
        return effects


def release_world(release: Release, seed: int, replicas: int, gate: GateSettings = GATE) -> FleetWorld:
    """Replicas of an 8B model on one H100 each, and a release that is tried on them."""
    table, chunk = step_table()
    settings = EngineSettings(chunk_tokens=chunk, prefix_cache_tokens=100_000)
    return replace(
        world(partial(Engine, table, settings), gate),
        replicas=(ReplicaGroup(replicas),),
        faults=(release,),
        error_fraction=BASE_ERROR_FRACTION,
        quality_spread=QUALITY_SPREAD,
        seed=seed,
    )


def tried(release: Release, seed: int, replicas: int, gate: GateSettings = GATE) -> Trial:
    """One trial: traffic ends when the release is decided."""
    run = FleetRun(release_world(release, seed, replicas, gate))
    run.gateway.gate = watched = WatchedGate(run.gateway.gate)
    traffic = TrafficModel(
        RATE_PER_S * replicas, Lengths(1000.0, 2500.0), Lengths(200.0, 500.0), "chat",
        shared_prefix_fraction=0.3, block_tokens=64, prompt_count=16,
    )  # fmt: skip

    def arrivals() -> Iterator[Arrival]:
        for each in generate(traffic, seed, HORIZON_S):
            if watched.decided is not None:
                return
            yield each

    run.run(arrivals())
    decided = watched.decided
    reason = decided.reason if isinstance(decided, RollBackRelease) else "" if decided else None
    count = run.gateway.since_fault.sent_counts.get(release.version, 0)
    return Trial(isinstance(decided, PromoteRelease), reason, count, watched.decided_s - release.at_s)


def bounds(count: int, of_count: int) -> tuple[float, float]:
    """The rates that explain so many of so many with 2.5 % chance on either side.

    Source  Clopper & Pearson 1934, "The use of confidence or fiducial limits"
    """
    low = beta.ppf(0.025, count, of_count - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, of_count - count) if count < of_count else 1.0
    return float(low), float(high)


def line(kind: str, trials: Sequence[Trial]) -> str:
    """What came of a kind of release."""
    right = sum(trial.reason is not None and trial.promoted == (kind == "equal") for trial in trials)
    low, high = bounds(right, len(trials))
    counts = sorted(trial.canary_count for trial in trials)
    reasons = Counter(trial.reason for trial in trials)
    ends = ", ".join(f"{count} {reason or 'promoted'}" for reason, count in reasons.most_common())
    return (
        f"{kind:8}{right:6}/{len(trials):<5}{right / len(trials):7.1%} ({low:.1%} to {high:.1%})"
        f"{counts[len(counts) // 2]:9,}{counts[-1]:8,}   {ends}"
    )


def rates(kinds: Sequence[str], seeds: Sequence[int], replicas: int) -> None:
    """Print one line for each kind; each trial that went wrong on stderr, as it ends."""
    print(f"{len(seeds)} seeds from {seeds[0]}, {replicas} replicas; 95 % intervals of Clopper and Pearson")
    print(f"{'kind':8}{'right':>9}{'rate':>10}{'':19}{'median':>9}{'most':>8}   requests that tried it; ends")
    for kind in kinds:
        trials = []
        for seed in seeds:
            trial = tried(KINDS[kind], seed, replicas)
            trials.append(trial)
            if trial.promoted != (kind == "equal"):
                print(f"  {kind}, seed {seed}: {trial}", file=sys.stderr, flush=True)
        print(line(kind, trials), flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Judge releases of every kind over a hundred seeds, or as asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.canary")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many; %(default)s")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--kinds", default=",".join(KINDS), help="which releases; %(default)s")
    told = parser.parse_args(arguments)
    rates(told.kinds.split(","), range(told.first, told.first + told.seeds), told.replicas)


if __name__ == "__main__":
    main(sys.argv[1:])
