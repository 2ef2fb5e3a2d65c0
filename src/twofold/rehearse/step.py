"""A step of the plan's run at the size that a scenario gives it, hop by hop around a ring of its nodes."""

from twofold.contracts.results import StepFigures, TrainingPlan
from twofold.contracts.scenario import ClusterChange
from twofold.twin.cluster import Ring, jitter_sweep, scaling_parts

RANKS_MAX = 256  # of the simulated ring; beyond, the slowest of so many stands for all
REPEATS_COUNT = 200  # steps whose tail is looked at; without jitter all are alike
PARTS = ("compute_s", "communication_s", "input_s", "sync_s")


def run_node_count(run: TrainingPlan, change: ClusterChange) -> int:
    """Nodes of the plan's run here."""
    return change.run_nodes or run.machine.node_count


def step_rehearsal(run: TrainingPlan, change: ClusterChange, seed: int) -> StepFigures | None:
    """What its step waits for and how its tail grows under jitter; None where it has no known step.

    Formula  a ring of equal links whose undisturbed all-reduce takes, at the planned number of nodes, the
             plan's exposed communication; the same links and payload at other numbers
    Why      What the plan hides behind computing stays hidden; what it does not is what jitter disturbs.
    Limits   Planned on one node: no communication between nodes at any size.
    """
    if run.step_s.value <= 0:
        return None
    planned, count = run.machine.node_count, run_node_count(run, change)
    exposed_s = run.step_s.value * (run.communication_exposed_fraction or 0.0)
    compute_s = run.step_s.value - exposed_s
    payload = exposed_s * planned / (2 * (planned - 1)) if planned > 1 else 0.0

    def ring_of(rank_count: int) -> Ring:
        return Ring(payload, rank_count, link_bytes_per_s=1.0, hop_latency_s=0.0, compute_s=compute_s)

    ranks = min(count, RANKS_MAX)
    reading_s = change.input_fraction * run.step_s.value * count / planned
    jitter, repeat_count = change.jitter_fraction, REPEATS_COUNT if change.jitter_fraction else 1
    (parts,) = scaling_parts(ring_of, (ranks,), lambda _: jitter, lambda _: reading_s, seed, repeat_count)
    (row,) = jitter_sweep(ring_of(ranks), (jitter,), seed, repeat_count)
    return StepFigures(
        accelerator_count=count * run.machine.accelerators_per_node,
        parts_s={name.removesuffix("_s"): _seconds(getattr(parts, name)) for name in PARTS},
        step_s_p50=row.step_s_p50 + parts.input_s,
        step_s_p99=row.step_s_p99 + parts.input_s,
        inflation_fraction=row.inflation_fraction,
    )


def _seconds(value: float) -> float:
    """Without what rounding leaves of a difference of equal times."""
    return 0.0 if abs(value) < 1e-12 else float(value)
