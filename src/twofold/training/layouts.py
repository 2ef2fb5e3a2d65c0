"""Parallel layouts as a struct of arrays: one entry per candidate, and all that are valid for a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.perf.types import Cluster
from twofold.training.job import TrainingJob
from twofold.training.stack import software_family

Counts = NDArray[Any]  # whole numbers


class Recompute(IntEnum):
    """How much of the forward pass the backward pass repeats."""

    NONE = 0
    SELECTIVE = 1
    FULL = 2
    MLP = 3
    LIGHT = 4


RECOMPUTE = {mode.name.lower(): mode for mode in Recompute}
"""By the words that specs, plans and rows have for them."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """How the model is cut over the accelerators; `dp` counts replicas, so tp·cp·pp·dp is the cluster.

    Experts are spread over `ep` ranks out of the tp·cp·dp of a stage.
    """

    tp: Counts
    cp: Counts
    ep: Counts
    pp: Counts
    vpp: Counts
    dp: Counts
    zero_stage: Counts
    micro_batch: Counts
    recompute: Counts
    sequence_parallel: Counts

    def __len__(self) -> int:
        return len(self.tp)

    def row(self, i: int) -> "Layouts":
        """Candidate `i` alone, still as arrays of length one."""
        return self.take(np.array([i]))

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> "Layouts":
        """The candidates at `index`."""
        return Layouts(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def describe(self, i: int = 0) -> str:
        """Candidate `i`: `TP 8 · PP 4 ×5 · DP 16 · micro-batch 1 · selective recompute · ZeRO-1`."""
        at = {f.name: int(getattr(self, f.name)[i]) for f in fields(self)}
        pipeline = f"PP {at['pp']}" + (f" ×{at['vpp']}" if at["vpp"] > 1 else "")
        words = [f"TP {at['tp']}", f"CP {at['cp']}", f"EP {at['ep']}", pipeline, f"DP {at['dp']}"]
        shown = [word for word in words if not word.endswith(" 1")]
        recompute = Recompute(at["recompute"]).name.lower().replace("none", "no")
        shown += [f"micro-batch {at['micro_batch']}", f"{recompute} recompute", f"ZeRO-{at['zero_stage']}"]
        return " · ".join(shown)


def layouts_of(rows: Sequence[Sequence[int]]) -> Layouts:
    """Layouts from rows in field order."""
    columns = np.array(rows, np.int64).reshape(-1, len(fields(Layouts))).T
    return Layouts(**{f.name: column.copy() for f, column in zip(fields(Layouts), columns, strict=True)})


@dataclass(frozen=True, slots=True)
class Limits:
    """What a search tries. Sizes of None are every power of two, and every divisor where one is needed."""

    tp_max: int | None = None  # None: one node, or the scale-up domain where that is larger
    cp_max: int | None = None  # None: as many as leave 4096 tokens a rank
    pp_max: int = 64
    vpp_max: int = 12
    micro_batch_max: int = 16
    zero_stages: tuple[int, ...] | None = None  # None: those that the framework can run
    recompute: tuple[Recompute, ...] = tuple(Recompute)


EVERYTHING = Limits()

LORA_STAGES = (0, 3)  # adapters are small: their optimiser is not worth sharding alone
FSDP_STAGES = (2, 3)  # `fully_shard` shards gradients and optimiser always, weights between uses if asked to
OTHER_STAGES = (1, 3)

REASONS = ("devices", "heads", "sequence", "layers", "experts", "batch", "micro-batches", "zero")
"""Why a combination of sizes is no layout, in the order in which they are counted."""


def enumerate_layouts(
    job: TrainingJob, cluster: Cluster, limits: Limits = EVERYTHING
) -> tuple[Layouts, dict[str, int]]:
    """Every valid layout of `job` on `cluster`, and the combinations that were refused by first reason.

    Valid: tp·cp·pp divides the devices; tp divides the heads and the FFN; 2·cp divides the sequence; the
    layers divide by pp·vpp evenly, or unevenly without interleaving; ep divides the experts and the ranks of
    a stage; dp·micro-batch divides the batch; interleaving needs a multiple of pp
    micro-batches; ZeRO-3 stands without a pipeline.
    """
    network = cluster.network
    domain = min(max(network.node_size, min(network.domain_size, 8)), cluster.accelerator_count)
    return _enumerated(job, cluster.accelerator_count, int(domain), limits)


@lru_cache(maxsize=16)  # the same sizes on links of other speeds are asked for again and again
def _enumerated(job: TrainingJob, count: int, domain: int, limits: Limits) -> tuple[Layouts, dict[str, int]]:
    grid = _grid(job, count, domain, limits)
    valid = np.ones(len(grid), bool)
    counts: dict[str, int] = {}
    for reason, broken in zip(REASONS, _violations(job, count, grid), strict=True):
        if refused := int(np.count_nonzero(valid & broken)):
            counts[reason] = refused
        valid &= ~broken
    return grid.take(valid), counts


def zero_stages_of(job: TrainingJob) -> tuple[int, ...]:
    """The ZeRO stages that a job's kind and framework offer."""
    if job.kind == "lora":
        return LORA_STAGES
    return FSDP_STAGES if software_family(job.framework) == "fsdp" else OTHER_STAGES


def _violations(job: TrainingJob, count: int, grid: Layouts) -> Sequence[NDArray[np.bool_]]:
    """For each reason of `REASONS`, which candidates break it."""
    model = job.model
    experts = max(model.experts, 1)
    sequences = np.maximum(grid.dp * grid.micro_batch, 1)
    micro_batches = job.global_batch_sequences // sequences
    chunks = grid.pp * grid.vpp
    # An interleaved pipeline counts the embedding and the head as layers where that makes it even.
    uneven_chunks = np.all([(model.layers + extra) % chunks != 0 for extra in (0, 1, 2)], axis=0)
    starved = -(-model.layers // grid.pp) * (grid.pp - 1) >= model.layers  # the last stage would hold nothing
    uneven = np.where(grid.vpp > 1, uneven_chunks, starved)
    # Key-value heads divide over the tensor ranks, or whole copies of them do; 0 % tp: a width it lacks.
    odd = (model.heads % grid.tp != 0) | (model.ffn_hidden % grid.tp != 0)
    odd |= model.shared_ffn_hidden % grid.tp != 0
    odd |= (model.kv_heads % grid.tp != 0) & (grid.tp % max(model.kv_heads, 1) != 0)
    return (
        (grid.dp < 1) | (grid.tp * grid.cp * grid.pp * grid.dp != count),
        odd,
        (grid.cp > 1) & (job.sequence_tokens % (2 * grid.cp) != 0),
        (grid.pp > model.layers) | uneven | ((grid.vpp > 1) & (grid.pp == 1)),
        (experts % grid.ep != 0) | (grid.tp * grid.cp * grid.dp % grid.ep != 0),
        job.global_batch_sequences % sequences != 0,
        (grid.vpp > 1) & ((micro_batches < grid.pp) | (micro_batches % grid.pp != 0)),
        (grid.zero_stage == 3) & (grid.pp > 1),
    )


def _grid(job: TrainingJob, count: int, domain: int, limits: Limits) -> Layouts:
    """All combinations worth checking; dp is what the others leave, 0 when they do not divide."""
    tp_max = limits.tp_max or domain
    cp_max = limits.cp_max or max(1, job.sequence_tokens // 4096)
    zero = np.array(limits.zero_stages or zero_stages_of(job))
    axes = (
        _divisors_up_to(count, min(tp_max, count)),
        _powers_of_two(min(cp_max, count)),
        _divisors_up_to(max(job.model.experts, 1), count),
        _divisors_up_to(count, min(limits.pp_max, job.model.layers)),
        np.arange(1, min(limits.vpp_max, job.model.layers) + 1, dtype=np.int64),
        zero,
        _powers_of_two(min(limits.micro_batch_max, job.global_batch_sequences)),
        np.array([int(mode) for mode in limits.recompute]),
    )
    tp, cp, ep, pp, vpp, zero, micro, recompute = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    shards = tp * cp * pp
    dp = np.where(count % shards == 0, count // shards, 0)
    return Layouts(tp, cp, ep, pp, vpp, dp, zero, micro, recompute, (tp > 1).astype(np.int64))


def _divisors_up_to(number: int, largest: int) -> Counts:
    candidates: Counts = np.arange(1, max(largest, 1) + 1, dtype=np.int64)
    divisors: Counts = candidates[number % candidates == 0]
    return divisors


def _powers_of_two(largest: int) -> Counts:
    powers: Counts = 2 ** np.arange(int(np.log2(max(largest, 1))) + 1, dtype=np.int64)
    return powers
