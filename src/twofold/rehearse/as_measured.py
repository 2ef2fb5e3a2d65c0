"""A planned service in the twin as it was measured: replicas whose steps follow calibrated times, asked at
given times, and what came of each request, in the words in which a live run tells it too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import NamedTuple

import numpy as np

from twofold.core.estimate import Estimate, Source
from twofold.policy.gate import events
from twofold.rehearse.loads import SEED_COUNT, OpenLoad, arrivals_of, spread_of
from twofold.rehearse.run import PoolTask
from twofold.twin.serving import fault_types, fleet_types
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.step_table import StepTable

FINISHED, REFUSED, LOST = "finished", "refused", "lost"
LONGEST_TOKENS = 1 << 20
SCRAPED_EVERY_S, SCRAPED_LATE_S = 2.0, 0.1  # as the live controller reports
NETWORK_S = 0.0005  # on one machine
CONTROLLED_S = 0.25  # until its look finds a dead process


class Seen(NamedTuple):
    """One request as its client saw it; None where it did not come so far."""

    at_s: float  # when it was due, from the run's begin
    outcome: str  # FINISHED, REFUSED, LOST
    replica_id: str  # of its last attempt; "": none
    output_tokens: int
    ttft_s: float | None
    e2e_s: float

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds of a token after the first."""
        if self.ttft_s is None or self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Ran:
    """One run, in the twin or live. Seconds count from what was done to it; None: it did not come."""

    seen: tuple[Seen, ...]
    retried_count: int  # further attempts that the gate made
    routed_s: float | None = None  # until the last request was sent to the dead replica
    back_s: float | None = None  # until the new process was sent a request; in the twin, one that it answered
    rolled_back_s: float | None = None
    tried_count: int = 0  # requests that a release got


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What an engine's step takes, and what is around it: fitted to what was measured.

    Formula  base + sequence · n of sequences that decode + (prompt + prompt_token · tokens) of a step that
             reads prompts; every first token and every end is late by `first_token_s`
    """

    base_s: float
    sequence_s: float
    prompt_s: float
    prompt_token_s: float
    first_token_s: float
    crowd_ratio: float = 1.0  # by which each that works or starts beside all of these slows all: one machine

    def table(self) -> StepTable:
        """The same on a grid, as engines ask for it. HOT: made once per fit's trial; small."""
        base, each, most = self.base_s, self.sequence_s, 1024.0
        reads = [0.0, self.prompt_s + self.prompt_token_s]
        reads.append(self.prompt_s + self.prompt_token_s * LONGEST_TOKENS)
        grid = [[[base + more] * 2, [base + more + most * each] * 2] for more in reads]
        return StepTable([0.0, 1.0, float(LONGEST_TOKENS)], [0.0, most], [0.0, 1.0], grid)


@dataclass(frozen=True, slots=True)
class Deployed:
    """What is known of the replicas that stand there, besides their speed."""

    replica_count: int
    kv_tokens: int  # of one replica
    block_tokens: int
    chunk_tokens: int  # prompt tokens of one step
    cold_start_s: float  # in the place of one that died


def as_deployed(
    task: PoolTask,
    there: Deployed,
    times: StepTimes,
    faults: tuple[fault_types.Fault, ...] = (),
    seed: int = 0,
    one_more_s: float | None = None,
) -> fleet_types.FleetWorld:
    """The world of a planned pool, gate and beliefs as they are, with replicas as they were measured.

    With `one_more_s` a further replica starts then, and stays.

    Limits   a smaller model is as fast as the service's own: nothing measures it.
    """
    planned = task.world
    settings = EngineSettings(
        max_batch=1024,
        chunk_tokens=there.chunk_tokens,
        kv_tokens=there.kv_tokens,
        block_tokens=there.block_tokens,
        first_token_s=times.first_token_s,
    )
    engine = partial(Engine, times.table(), settings)
    models = {
        key: replace(model, new_engine=engine, weight_bytes=0.0, warm_up_s=there.cold_start_s)
        for key, model in planned.models.items()
    }
    order, smaller = planned.replicas[0].order, planned.replicas[len(fleet_types.own_groups(planned)) :]
    own = fleet_types.ReplicaGroup(there.replica_count, order)
    if one_more_s is not None:
        own, absent = one_more(own, one_more_s)
        faults = (*faults, absent)
    return replace(
        planned,
        models=models,
        replicas=(own, *smaller),
        faults=faults,
        network_s=NETWORK_S,
        controlled_s=CONTROLLED_S,
        metrics_every_s=SCRAPED_EVERY_S,
        metrics_delay_s=SCRAPED_LATE_S,
        cached_prompts=(),
        horizon_s=inf,
        warm_up_s=0.0,
        crowd_count=there.replica_count + sum(group.count for group in smaller),
        crowd_ratio=times.crowd_ratio,
        seed=seed,
    )


def one_more(
    group: fleet_types.ReplicaGroup, at_s: float
) -> tuple[fleet_types.ReplicaGroup, fault_types.ReplicaCrash]:
    """A replica more in the first group of a world, which starts at `at_s`: until then it is as one that died
    at the beginning. The gate knows it and sends it nothing."""
    absent = fault_types.ReplicaCrash(0.0, f"r{group.count}", back_after_s=at_s)
    return replace(group, count=group.count + 1), absent


def rehearsed(world: fleet_types.FleetWorld, arrivals: Sequence[fleet_types.Arrival]) -> Ran:
    """What comes of these requests in that world, in seconds from its fault; it has one at most."""
    told: list[fleet_types.RequestRecord] = []
    result = simulate_fleet(world, arrivals, told.append)
    seen = tuple(sorted(map(_seen, told), key=lambda each: each.at_s))
    refused = sum(each.outcome == REFUSED for each in seen)
    sent = result.figures.effects.get(events.Send.__name__, 0)
    ran = Ran(seen, retried_count=max(0, sent - (len(seen) - refused)))
    for fault in world.faults:
        match fault:
            case fault_types.ReplicaCrash(at_s=at_s, replica_id=name):
                last_s = result.missent_last_s
                ran = replace(ran, routed_s=max(0.0, last_s - at_s) if last_s is not None else 0.0)
                ran = replace(ran, back_s=first_answered_s(seen, name, at_s))
            case fault_types.Release(at_s=at_s, version=version):
                back_s = result.first_effects_s.get(events.RollBackRelease.__name__)
                tried = result.sent_counts.get(version, 0)
                ran = replace(ran, rolled_back_s=back_s and back_s - at_s, tried_count=tried)
            case _:
                pass
    return ran


def first_answered_s(seen: Sequence[Seen], replica_id: str, since_s: float) -> float | None:
    """How long after `since_s` the first request came that this replica answered; None: no later one did."""
    later = (each.at_s for each in seen if each.replica_id == replica_id and each.outcome == FINISHED)
    return min((at_s - since_s for at_s in later if at_s > since_s), default=None)


@dataclass(frozen=True, slots=True)
class Starting:
    """A replica that starts while the others serve."""

    at_s: float  # from the load's begin until it is asked for
    takes_s: float  # from then until it serves
    slow_ratio: float = 1.0  # of the others' steps meanwhile, where all share one machine


def tail_of_a_start(
    task: PoolTask, replica_count: int, load: OpenLoad, start: Starting, seed_count: int = SEED_COUNT
) -> Estimate | None:
    """TTFT p95 of the requests that come while one replica more starts, in seconds; None where none do.

    Value and range as of `load_figures`. Until it is asked for, the new one is as `one_more` says.
    """
    models = {
        key: replace(model, weight_bytes=0.0, warm_up_s=start.takes_s)
        for key, model in task.world.models.items()
    }
    standing = fleet_types.ReplicaGroup(replica_count, task.world.replicas[0].order)
    (group, absent), ends_s = one_more(standing, start.at_s), start.at_s + start.takes_s
    world = replace(
        task.world,
        models=models,
        replicas=(group,),
        faults=(absent,),
        horizon_s=load.span_s,
        warm_up_s=0.0,
        start_slow_ratio=start.slow_ratio,
    )
    tails_s = []
    for seed in range(seed_count):
        told: list[fleet_types.RequestRecord] = []
        simulate_fleet(replace(world, seed=seed), arrivals_of(load, seed).arrivals(), told.append)
        first_s = [
            each.ttft_s for each in told if each.ttft_s is not None and start.at_s <= each.arrival_s < ends_s
        ]
        if first_s:
            tails_s.append(float(np.quantile(first_s, 0.95)))
    (planned,) = [each for each in task.classes if each.name == load.class_name]
    weakest = max((each.source for each in planned.percentiles.values()), key=list(Source).index)
    return spread_of(tails_s, weakest) if tails_s else None


def _seen(told: fleet_types.RequestRecord) -> Seen:
    kind = told.outcome.partition(":")[0]
    outcome = {"finished": FINISHED, "refused": REFUSED}.get(kind, LOST)
    replica_id = "" if outcome == REFUSED else told.replica_id
    return Seen(told.arrival_s, outcome, replica_id, told.output_tokens, told.ttft_s, told.e2e_s)
