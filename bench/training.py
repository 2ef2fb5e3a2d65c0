"""Layouts per second, each with memory and full step time, on one core; and the largest search there is.

Set OMP_NUM_THREADS=1. Calculon's paper states about 250 layouts per second and core (Isaev et al. 2023).
"""

import resource
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from twofold.catalog.catalog import load_catalog
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.types import Cluster
from twofold.training.job import TrainingJob
from twofold.training.layouts import Layouts, Limits, enumerate_layouts
from twofold.training.memory import memory
from twofold.training.search import price_layouts, search
from twofold.training.stack import Stack, load_stack
from twofold.training.step import step_time

T = TypeVar("T")
CALCULON_PER_S = 250
BASELINE_SIZE = 1_000_000
# Every ZeRO stage, sequence parallelism's neighbours, wide contexts: more than a plan tries.
WIDE = Limits(tp_max=32, cp_max=32, pp_max=128, micro_batch_max=16, zero_stages=(0, 1, 2, 3))


def baseline_per_s() -> float:
    """Elements per second of one numpy multiply-add: what this core does on this day."""
    a, b = np.random.default_rng(0).uniform(1, 2, (2, BASELINE_SIZE))
    best_s = min(_timed(lambda: a * b + a)[0] for _ in range(9))
    return BASELINE_SIZE / best_s


def _timed(run: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def case(model: str, accelerator: str, count: int, batch: int) -> tuple[TrainingJob, Cluster, Stack]:
    """A pretraining job on a cluster of one kind."""
    constants, part = load_constants(), load_catalog().benchmark_accelerator(accelerator)
    links = network(part, 8, 50e9, "infiniband", constants)
    job = TrainingJob(load_catalog().model(model), "pretrain", 8192, batch)
    return (
        job,
        Cluster(device(part, constants), links, count),
        load_stack(constants, "megatron-core", "bf16", part.family),
    )


def _repeat(layouts: Layouts, count: int) -> Layouts:
    return layouts.take(np.arange(count) % len(layouts))


def price_block(job: TrainingJob, cluster: Cluster, stack: Stack, layouts: Layouts) -> float:
    """Seconds to give a block of layouts their step and their memory."""
    work = job.workload
    return _timed(
        lambda: (step_time(work, job.precision, layouts, cluster, stack), memory(work, layouts, stack))
    )[0]


def print_search(name: str, limits: Limits) -> None:
    """The 405B model on 16,384 accelerators: how many layouts, how fast, in how much memory."""
    job, cluster, stack = case("llama-3.1-405b", "H100-80GB", 16384, 2048)
    priced_s, priced = _timed(lambda: price_layouts(job, cluster, stack, limits))
    found_s, found = _timed(lambda: search(job, cluster, stack, limits))
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    valid, tried = len(priced.layouts), sum(priced.refused.values()) + len(priced.layouts)
    print(
        f"405B on 16,384, {name}: {valid:,} valid of {tried:,} in {priced_s:.2f} s"
        f" ({valid / priced_s:,.0f}/s), "
        f"search {found_s:.2f} s, peak {peak_gib:.2f} GiB"
    )
    print("  " + (found.best.describe() if found.best else "nothing fits"))


def main() -> None:
    """Print rates for a dense and an MoE model, then the 405B search on 16,384 GPUs with its peak memory."""
    baseline = baseline_per_s()
    print(f"baseline: {baseline / 1e6:.0f} M multiply-adds/s in numpy")
    print(f"{'model':16}{'layouts':>9}{'priced/s':>11}{'/ baseline':>12}{'× calculon':>12}")
    for model, count, batch in (("llama-3.1-70b", 512, 512), ("deepseek-v3", 2048, 4096)):
        job, cluster, stack = case(model, "H100-80GB", count, batch)
        layouts, _ = enumerate_layouts(job, cluster, WIDE)
        block = _repeat(layouts, 8192)
        rate = len(block) / min(price_block(job, cluster, stack, block) for _ in range(5))
        times = f"{rate / baseline:>12.5f}{rate / CALCULON_PER_S:>12,.0f}"
        print(f"{model:16}{len(layouts):>9,}{rate:>11,.0f}{times}")
    print_search("as planned", Limits())
    print_search("widest", WIDE)


if __name__ == "__main__":
    main()
