"""Speed of the operators over 100,000 candidates, beside a plain numpy multiply of the same size."""

import time
from collections.abc import Callable

import numpy as np

from twofold.catalog.catalog import load_catalog
from twofold.perf import collectives
from twofold.perf.attention import attention_decode_s, attention_prefill_s, mla_decode_s
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.operators import elementwise_s, gemm_s, grouped_gemm_s, quantise_s

CANDIDATE_COUNT = 100_000


def best_s(run: Callable[[], object], repeats: int = 7) -> float:
    """Seconds of the fastest of a few runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print evaluations per second of each operator, and its time over that of one multiply."""
    constants = load_constants()
    part = load_catalog().accelerator("H100-SXM5-80GB")
    one, links = device(part, constants), network(part, 8, 50e9, "infiniband", constants)
    generator = np.random.default_rng(0)
    a, b = (generator.uniform(1.0, 1e4, CANDIDATE_COUNT) for _ in range(2))
    ranks = 2.0 ** generator.integers(0, 10, CANDIDATE_COUNT)
    operators: dict[str, Callable[[], object]] = {
        "multiply": lambda: a * b,
        "gemm_s": lambda: gemm_s(one, a, b, 8192, "bf16"),
        "grouped_gemm_s": lambda: grouped_gemm_s(one, a, 256, 8, 32, 7168, 2048, "bf16"),
        "attention_prefill_s": lambda: attention_prefill_s(one, 1, a, b, 32, 8, 128, "bf16"),
        "attention_decode_s": lambda: attention_decode_s(one, a, b, 32, 8, 128, "bf16"),
        "mla_decode_s": lambda: mla_decode_s(one, a, b, 128, 512, 64, "bf16"),
        "elementwise_s": lambda: elementwise_s(one, a, b),
        "quantise_s": lambda: quantise_s(one, a, b),
        "all_reduce_s": lambda: collectives.all_reduce_s(links, a, ranks),
        "all_gather_s": lambda: collectives.all_gather_s(links, a, ranks),
        "all_to_all_s": lambda: collectives.all_to_all_s(links, a, ranks),
        "point_to_point_s": lambda: collectives.point_to_point_s(links, a, ranks),
        "serving_all_reduce_s": lambda: collectives.serving_all_reduce_s(links, a, ranks),
    }
    multiply_s = best_s(operators["multiply"])
    print(f"{'operator':24}{'M/s':>8}{'ms per 100k':>13}{'× multiply':>12}")
    for name, run in operators.items():
        seconds = best_s(run)
        rate = CANDIDATE_COUNT / seconds / 1e6
        print(f"{name:24}{rate:8.1f}{seconds * 1e3:13.2f}{seconds / multiply_s:12.0f}")
