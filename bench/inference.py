"""Speed of serving: an estimate of a sweep beside a multiply, a search over ten accelerators, a table."""

import numpy as np

from bench.perf import best_s
from twofold.catalog.catalog import load_catalog
from twofold.inference import regimes
from twofold.inference.curve import load_axis
from twofold.inference.iteration import iteration_s
from twofold.inference.replica import Replica, engine
from twofold.inference.search import Hardware, ModelVariant, search
from twofold.inference.slo import Slo, TrafficClass, rate_limit
from twofold.inference.steady import Lengths
from twofold.inference.table import ServiceTable
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.shape import ModelShape
from twofold.perf.types import Cluster

PARTS = ("H100-SXM", "H200", "B200", "A100-80GB", "MI300X", "L40S", "L4", "GH200-96GB", "A10", "RTX-4090")
SWEEP = 10_000


def main() -> None:
    """Print microseconds per estimate of a sweep, its ratio to a multiply of that size, then lone calls."""
    catalog, constants = load_catalog(), load_constants()
    model = ModelShape.of(catalog.model("llama-3.1-70b"))

    def offer(name: str) -> Hardware:
        part = catalog.accelerator(name)
        cluster = Cluster(device(part, constants), network(part, 8, 50e9, "infiniband", constants), 8)
        return Hardware(
            name, cluster, engine(constants, "vllm", "0.15", family=part.family), 1.0, ("fp8", "bf16")
        )

    offers = [offer(name) for name in PARTS]
    random = np.random.default_rng(0)
    first = offers[1]
    activation = first.cluster.device.default_activation_format("fp8")
    tp, batch = 2.0 ** random.integers(0, 4, SWEEP), random.uniform(1.0, 256.0, SWEEP)
    swept = Replica(model, first.cluster, first.engine, "fp8", activation, tp=tp)
    one = Replica(model, first.cluster, first.engine, "fp8", activation, tp=4.0)
    promised = Slo({"ttft_p95": 0.5, "tpot_p95": 0.04})
    chat = TrafficClass("chat", Lengths(1155.0, 211.0, 0.8, 0.6), 100.0, promised)
    files = TrafficClass("documents", Lengths(8000.0, 300.0, 0.4, 0.4), 12.0, Slo({"e2e_p95": 20.0}))
    multiply_s = best_s(lambda: tp * batch)
    runs = {
        "iteration_s": lambda: iteration_s(swept, 1024.0, 512.0, batch, 2000.0),
        "closed_loop": lambda: regimes.closed_loop(swept, chat.lengths, batch),
        "open_loop": lambda: regimes.open_loop(swept, chat.lengths, 0.1 * tp),
        "rate_limit (a curve)": lambda: rate_limit(load_axis(swept), chat),
    }
    print(f"{'estimate, sweep of 10,000':28}{'us each':>10}{'x multiply':>12}")
    for name, run in runs.items():
        seconds = best_s(run, 2)
        print(f"{name:28}{seconds / SWEEP * 1e6:10.2f}{seconds / multiply_s:12.0f}")
    table = ServiceTable.of(one)
    lone = {
        "one open_loop": lambda: regimes.open_loop(one, chat.lengths, 2.0),
        "service_table": lambda: ServiceTable.of(one),
        "step_s of a table": lambda: table.step_s(500.0, 32.0, 1500.0),
        "search, 10 accelerators": lambda: search(
            [ModelVariant("llama-3.1-70b", model)], [chat, files], offers, zones=3
        ),
    }
    print(f"{'alone':28}{'ms':>10}")
    for name, run in lone.items():
        print(f"{name:28}{best_s(run, 3) * 1e3:10.2f}")


if __name__ == "__main__":
    main()
