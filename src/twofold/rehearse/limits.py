"""Rehearsals that would not end in a day are refused before they begin, with what makes them so long."""

from twofold.contracts.scenario import ClusterChange
from twofold.core import DAY_S, ValueRefusedError, format_seconds
from twofold.rehearse.traffic import DrawnTraffic, TrafficMix
from twofold.twin.cluster import ClusterWorld

SPAN_S_MAX = 366 * DAY_S  # simulated
REQUESTS_MAX = 50_000_000  # drawn in one run: hours of computing
SCRAPES_MAX = 20_000_000  # of one replica
NODES_MAX = 100_000  # of a cluster
FAILURES_MAX = 10_000_000  # drawn for all nodes of a cluster
GIVEN_MAX = 100_000  # jobs, one by one: far more than a brain lets wait
DRAWN_MAX = 10_000_000  # jobs at a rate
WRITES_MAX = 10_000_000  # checkpoints of one job


def check_ends(horizon_s: float, scraped_every_s: float, traffic: TrafficMix) -> None:
    """Raises ValueRefusedError for a run that is too long, asks too much, or looks too often."""
    if horizon_s > SPAN_S_MAX:
        raise ValueRefusedError(
            f"a rehearsal of requests over {format_seconds(horizon_s)} would not end: a year is the most",
            hint="write a shorter `horizon`, replay a part of the trace, or raise `scale` under `traffic`",
        )
    drawn = [part.model for part in traffic.parts if isinstance(part, DrawnTraffic)]
    requests = horizon_s * sum(model.rate_per_s for model in drawn)
    if requests > REQUESTS_MAX:
        raise ValueRefusedError(
            f"about {requests:.3g} requests are more than the {REQUESTS_MAX:.3g} that a rehearsal draws",
            hint="write a shorter `horizon`, or a lower `scale` under `traffic`",
        )
    if horizon_s / scraped_every_s > SCRAPES_MAX:
        raise ValueRefusedError(
            f"metrics every {scraped_every_s:g} s: {horizon_s / scraped_every_s:.3g} looks at each replica",
            hint="write a longer `every` under `metrics`: live, it is seconds",
        )


def check_cluster_span(horizon_s: float) -> None:
    """Raises ValueRefusedError for a cluster that is looked at too long."""
    if horizon_s > SPAN_S_MAX:
        raise ValueRefusedError(
            f"a cluster over {format_seconds(horizon_s)} would not end: a year is the most",
            hint="write a shorter `horizon`",
        )


def check_cluster_ends(world: ClusterWorld, change: ClusterChange) -> None:
    """Raises ValueRefusedError for a cluster that is too large, or where too much happens.

    Formula  failures = rate of an accelerator × accelerators × horizon; drawn jobs and checkpoints of a job =
             horizon × rate, or over the interval
    """
    horizon_s = world.horizon_s
    nodes = sum(group.count for group in world.nodes)
    accelerators = sum(group.count * group.accelerator_count for group in world.nodes)
    failures = world.faults.failures_per_accelerator_h * accelerators * horizon_s / 3600.0
    given = sum(job.copies for job in change.given)
    drawn = horizon_s * ((change.jobs.rate_per_s if change.jobs else None) or 0.0)
    writes = horizon_s / change.checkpoint_every_s if change.checkpoint_every_s else 0.0
    for count, most, what, key in (
        (nodes, NODES_MAX, "nodes", "fewer `nodes`"),
        (failures, FAILURES_MAX, "failures of nodes", "fewer `failures`, or a shorter `horizon`"),
        (given, GIVEN_MAX, "jobs under `given`", "fewer `copies`, or `jobs` with a `rate`"),
        (drawn, DRAWN_MAX, "drawn jobs", "a lower `rate` under `jobs`, or a shorter `horizon`"),
        (writes, WRITES_MAX, "checkpoints", "a longer `checkpoint_every`, or a shorter `horizon`"),
    ):
        if count > most:
            raise ValueRefusedError(
                f"{count:.3g} {what} are more than the {most:,} that a rehearsal takes", hint=f"write {key}"
            )


def check_measured(ends_s: float, warm_up_s: float, *, at_once: bool = False) -> None:
    """Raises ValueRefusedError where requests end before any is in the figures: traces may be short.

    `at_once`: all requests of the trace come at one moment.
    """
    if warm_up_s >= ends_s > 0 and at_once:
        raise ValueRefusedError(
            f"all requests arrive at once, so that a warm-up of {format_seconds(warm_up_s)} leaves none",
            hint="leave `warm_up` out, or replay a trace that lasts",
        )
    if warm_up_s >= ends_s > 0:
        raise ValueRefusedError(
            f"a warm-up of {format_seconds(warm_up_s)} leaves none of {format_seconds(ends_s)} of requests",
            hint="write a shorter `warm_up`, or replay a longer part of the trace",
        )
