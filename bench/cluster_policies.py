"""What the cluster's policies gain, over pairs of runs with one seed each: means with 95 % intervals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import sqrt

import numpy as np

from bench.worlds.serving_day import day_profile, serving_load
from bench.worlds.spares import spare_sweep
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Observation
from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.cadence import checkpoint_interval_s
from twofold.policy.cluster.events import ClusterEffect, ClusterEvent
from twofold.policy.cluster.settings import CadenceSettings, ClusterSettings, FaultSettings
from twofold.rehearse.training import compare_pool
from twofold.twin.cluster.cluster import simulate_cluster
from twofold.twin.cluster.cluster_types import (
    CheckpointModel,
    CheckpointStore,
    ClusterResult,
    ClusterWorld,
    NodeGroup,
    RunEnd,
    StepModel,
    Use,
)
from twofold.twin.cluster.faults import published_rates
from twofold.twin.cluster.jobs import JobArrival

DAY_S = 86_400.0
SEEDS = range(5)
T_95 = 2.776  # Student's quantile of four degrees of freedom
PUBLISHED = published_rates(load_catalog().rows(Observation))
DRIFT = (1.0, 1.4, 2.0, 2.8, 4.0, 4.0, 2.8, 2.0, 1.4, 1.0, 0.7, 0.5)  # of the rates, for five days each
RATE_FACTOR = 30.0  # so that a small cluster fails as often as one of 15,000 accelerators


def shown(name: str, values: Sequence[float]) -> str:
    """A line with the mean and its interval."""
    half = T_95 * float(np.std(values, ddof=1)) / sqrt(len(values))
    return f"{name:66}{np.mean(values):9.3f} ± {half:.3f}"


def night() -> list[str]:
    """Training by night on serving's nodes, against two fleets of the same size together."""

    def jobs() -> list[JobArrival]:
        generator = np.random.default_rng(0)
        run_s = generator.lognormal(10.0, 0.7, 150).tolist()
        sizes = generator.choice([8, 16, 32, 64], 150).tolist()
        return [
            JobArrival(0.0, one_s, size, minimum_count=8) for one_s, size in zip(run_s, sizes, strict=True)
        ]

    capacity = tuple((8 * count, float(count)) for count in range(1, 21))
    compared = [
        compare_pool(
            ClusterWorld(
                nodes=tuple(NodeGroup(f"r{number}n", 8, 8, ("z", f"r{number}")) for number in range(4)),
                new_brain=partial(ClusterBrain, ClusterSettings()),
                horizon_s=3 * DAY_S,
                faults=replace(PUBLISHED, lemon_fraction=0.0),
                step=StepModel(training_interference_fraction=0.1, serving_interference_fraction=0.05),
                checkpoint=CheckpointModel(1e9, snapshot_s=5.0, restart_s=120.0),
                store=CheckpointStore(50e9),
                serving=serving_load(day_profile(0.2), 20.0, capacity, 3, lead_s=2400.0, seed=seed),
                seed=seed,
            ),
            jobs,
        )[0]
        for seed in SEEDS
    ]
    return [
        shown("day-shaped sharing: more training", [one.training_gain_fraction for one in compared]),
        shown(
            "  seconds short of serving's need, shared",
            [one.shared_shortfall_s for one in compared],
        ),
        shown("  seconds short of serving's need, split", [one.split_shortfall_s for one in compared]),
        shown("  training slowed by neighbours", [one.training_slowdown_factor for one in compared]),
        shown("  serving slowed by neighbours", [one.serving_slowdown_factor for one in compared]),
    ]


class Knowing(ClusterBrain):
    """Is told the true rate of failures as it drifts: what no brain can know."""

    interval_of: Callable[[float], float]

    def handle(self, event: ClusterEvent, now_s: float) -> list[ClusterEffect]:
        cadence = CadenceSettings(fixed_interval_s=self.interval_of(now_s))
        self.view.settings = replace(self.view.settings, cadence=cadence)
        return super().handle(event, now_s)


def cadence() -> list[str]:
    """Work lost and time standing still for checkpoints, under drifting rates, against a brain that knows."""
    count = 512
    drift = tuple((5 * DAY_S * number, factor) for number, factor in enumerate(DRIFT))
    faults = replace(PUBLISHED.scaled(RATE_FACTOR), drift=drift, lemon_fraction=0.0)
    causes = tuple(replace(cause, repair_s=min(cause.repair_s, 600.0)) for cause in faults.causes)
    faults = replace(faults, causes=causes)
    per_s = faults.failures_per_accelerator_h * count / 3600

    def interval_of(now_s: float) -> float:
        return checkpoint_interval_s(1 / (per_s * DRIFT[min(int(now_s / 5 / DAY_S), len(DRIFT) - 1)]), 60.0)

    settings = ClusterSettings(faults=FaultSettings(spare_count=3))

    def knowing() -> Knowing:
        brain = Knowing(settings)
        brain.interval_of = interval_of
        return brain

    ratios = []
    for seed in SEEDS:
        world = ClusterWorld(
            nodes=(NodeGroup("n", 19, 32),),
            new_brain=partial(ClusterBrain, settings),
            horizon_s=5 * DAY_S * len(DRIFT),
            faults=faults,
            checkpoint=CheckpointModel(60e9 / count, restart_s=120.0, files_per_accelerator=0.0),
            store=CheckpointStore(1e9),
            seed=seed,
        )
        job = JobArrival(0.0, 365 * DAY_S, count)
        both = [
            simulate_cluster(replace(world, new_brain=make), [job]) for make in (world.new_brain, knowing)
        ]
        ratios.append(_overhead(both[0]) / _overhead(both[1]))
    return [shown("checkpoint cadence: overhead over that of a brain that knows the rates", ratios)]


def _overhead(result: ClusterResult) -> float:
    hours = result.figures.accelerator_h
    return (hours[Use.LOST] + hours[Use.CHECKPOINTING]) / hours[Use.BUSY]


def spares() -> list[str]:
    """One large job with 0, 1 and 2 % of spare nodes."""
    rows = []
    for seed in SEEDS:
        world = ClusterWorld(
            nodes=(NodeGroup("n", 100),),
            new_brain=ClusterBrain,  # type: ignore[arg-type]  # replaced by the sweep's
            horizon_s=100 * DAY_S,
            ends=RunEnd.LAST_JOB,
            faults=replace(PUBLISHED.scaled(8.0), lemon_fraction=0.0),
            checkpoint=CheckpointModel(1e9, restart_s=120.0),
            store=CheckpointStore(50e9),
            seed=seed,
        )
        sweep = spare_sweep(
            world,
            lambda: [JobArrival(0.0, 10 * DAY_S, 800)],
            lambda count: ClusterBrain(ClusterSettings(faults=FaultSettings(spare_count=count))),
        )
        rows.append(sweep.rows)
    lines = []
    for index, row in enumerate(rows[0]):
        each = [one[index] for one in rows]
        lines.append(
            shown(f"{row.spare_count} spares: minutes to repair", [x.recovery_s_mean / 60 for x in each])
        )
        lines.append(shown("  work kept of what is paid for", [x.work_fraction for x in each]))
    for (index, first), (_, second) in pairwise(enumerate(rows[0])):
        gain = [one[index + 1].work_fraction - one[index].work_fraction for one in rows]
        lines.append(shown(f"{second.spare_count} spares for {first.spare_count}: more work kept", gain))
    return lines


def main() -> None:
    """Print all tables."""
    for part in (night, cadence, spares):
        print("\n".join(part()), flush=True)


if __name__ == "__main__":
    main()
