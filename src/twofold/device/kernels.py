"""Operators, memory, links and storage of one rank, timed while all ranks run the same. Needs torch."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.core.nvidia import watts
from twofold.device import cases
from twofold.perf.formats import bytes_per_weight

if TYPE_CHECKING:
    import torch

REPEATS = 5
FORMATS = {  # as torch calls them
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
    "int8": "int8",
}
LEAST_REPEAT_S = 0.004  # below it a clock and a switch of tasks show
MOST_CASE_S = 0.4  # slow cases are repeated less
WEIGHTS_MAX = 256
POWER_S, POWER_CALLS, POWER_SIZE = 3.0, 600, 8192  # most of a second of products before each reading
MOST_CAPTURED = 400  # calls in one graph
FP8_CAPABILITY = (8, 9)  # of the first parts whose tensor cores multiply 8 bits
MANY_CALLS, FEW_CALLS, SMALL_PAYLOAD_BYTES = 8, 2, 2**16
MOST_DECODE_ROWS = 128  # rows of a product up to which each meets another weight
MOST_TURNS = 64
COLD_POOL_BYTES = 32 * 2**20  # of weights that decode shapes cycle through, at least


class Bench:
    """Times calls on one rank. Mutable in nothing but the device that it waits for."""

    def __init__(self, device: "torch.device", rank: int, rank_count: int) -> None:
        self.device, self.rank, self.rank_count = device, rank, rank_count
        self.is_accelerator = device.type == "cuda"
        self.suite = cases.ACCELERATOR if self.is_accelerator else cases.PROCESSOR

    def together(self) -> None:
        """Wait for all ranks, so that each case runs on all of them at once."""
        import torch.distributed as distributed

        if self.rank_count > 1:
            distributed.barrier()

    def wait(self) -> None:
        """Until the accelerator has done what it was given; a processor is done when a call returns."""
        import torch

        if self.is_accelerator:
            torch.cuda.synchronize(self.device)

    def kernel(
        self, group: str, sizes: dict[str, cases.Number], call: Callable[[], object], *, turns: int = 1
    ) -> cases.Sample:
        """Seconds of what a call does on an accelerator, out of a captured graph: the host launches nothing
        meanwhile, as it does not in engines. `turns` are the inputs that calls take turns among.
        """
        import torch

        if not self.is_accelerator:
            return self.timed(group, sizes, call)
        self.together()
        call()
        self.wait()
        begin_s = time.perf_counter()
        call()
        self.wait()
        count = min(MOST_CAPTURED, max(turns, round(LEAST_REPEAT_S / (time.perf_counter() - begin_s))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                call()
        whole = self.timed(group, sizes, graph.replay)
        return cases.Sample(group, sizes, tuple(each / count for each in whole.seconds))

    def timed(
        self, group: str, sizes: dict[str, cases.Number], call: Callable[[], object], *, fixed: int = 0
    ) -> cases.Sample:
        """Seconds of one call, in repeats of as many calls as a clock needs.

        With `fixed` calls per repeat on every rank, as collectives need: ranks must not count alone.
        """
        self.together()
        call()
        self.wait()
        begin_s = time.perf_counter()
        call()
        self.wait()
        once_s = max(time.perf_counter() - begin_s, 1e-7)
        calls = fixed or max(1, round(LEAST_REPEAT_S / once_s))
        repeats = REPEATS if fixed else max(2, min(REPEATS, round(MOST_CASE_S / (once_s * calls))))
        seconds = []
        for _ in range(repeats):
            begin_s = time.perf_counter()
            for _ in range(calls):
                call()
            self.wait()
            seconds.append((time.perf_counter() - begin_s) / calls)
        return cases.Sample(group, sizes, tuple(seconds))


def kernel_samples(bench: Bench, cold_bytes: int) -> Iterator[cases.Sample]:
    """Products, memory, attention and the shortest calls of one rank."""
    import torch

    with torch.no_grad():
        for size in (*bench.suite.copies_bytes, cold_bytes):
            yield from _passes(bench, size)
        one, small = torch.ones(1, device=bench.device), torch.ones((2, 2), device=bench.device)
        yield bench.kernel("launch", {"kind": "add"}, lambda: one.add_(1.0))
        yield bench.kernel("launch", {"kind": "product"}, lambda: small @ small)
        if bench.is_accelerator:
            yield bench.timed("launch", {"kind": "host"}, lambda: one.add_(1.0))
        for name in bench.suite.formats:
            if name == "fp8" and torch.cuda.get_device_capability(bench.device) < FP8_CAPABILITY:
                continue
            for shape in bench.suite.products if name == bench.suite.format else bench.suite.few:
                yield _product(bench, shape, name, cold_bytes)
        yield from _attention(bench, cold_bytes)


def _passes(bench: Bench, size: int) -> Iterator[cases.Sample]:
    import torch

    source = torch.ones(size // 4, device=bench.device)
    target, third = torch.empty_like(source), torch.ones_like(source)
    yield bench.timed("copy", {"bytes": 2 * size}, lambda: target.copy_(source))
    yield bench.timed("triad", {"bytes": 3 * size}, lambda: torch.add(source, third, alpha=2.0, out=target))
    yield bench.timed("read", {"bytes": size}, source.sum)


def _product(bench: Bench, shape: tuple[int, int, int], name: str, cold_bytes: int) -> cases.Sample:
    """A product by a weight; decode shapes meet another weight each time, as they do in a model."""
    import torch

    m, n, k = shape
    kind = getattr(torch, FORMATS[name])
    wanted = (
        cold_bytes // (n * k * kind.itemsize)
        if shape in (*bench.suite.decode_rows, *bench.suite.few) and m <= MOST_DECODE_ROWS
        else 1
    )
    count = max(1, min(wanted, WEIGHTS_MAX))
    rows = torch.randn((m, k), device=bench.device).to(kind)
    weights = cycle([torch.randn((n, k), device=bench.device).to(kind) for _ in range(count)])
    sizes: dict[str, cases.Number] = {"m": m, "n": n, "k": k, "format": name, "cold": count}
    if name != "fp8":
        return bench.kernel(
            "gemm", sizes, lambda: torch.nn.functional.linear(rows, next(weights)), turns=count
        )
    how = scaled_how(bench.device)
    return bench.kernel("gemm", sizes, lambda: torch._scaled_mm(rows, next(weights).t(), **how), turns=count)


def scaled_how(device: "torch.device") -> dict[str, Any]:
    """How a product of 8-bit floats is asked for: a scale for each side, and the format of what comes out."""
    import torch

    one = torch.ones((), device=device)
    return {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}


def _attention(bench: Bench, cold_bytes: int) -> Iterator[cases.Sample]:
    """Prefill, causal, and decode, whose query heads share those of keys and values."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    suite = bench.suite
    kind = getattr(torch, FORMATS[suite.format])

    def heads_of(sequences: int, heads: int, tokens: int) -> torch.Tensor:
        return torch.randn((sequences, heads, tokens, suite.head_dim), device=bench.device).to(kind)

    sizes: dict[str, cases.Number]
    for sequences, tokens, heads in suite.prefills:
        query, key, value = (heads_of(sequences, heads, tokens) for _ in range(3))
        sizes = {"sequences": sequences, "tokens": tokens, "heads": heads}
        yield bench.kernel("prefill", sizes, partial(attend, query, key, value, is_causal=True))
    for sequences, context in suite.decodes:
        inputs = [
            (
                heads_of(sequences, suite.heads, 1),
                heads_of(sequences, suite.kv_heads, context),
                heads_of(sequences, suite.kv_heads, context),
            )
            for _ in range(_decode_turns(bench, sequences * context, cold_bytes))
        ]
        sizes = {"sequences": sequences, "context": context}
        yield bench.kernel("decode", sizes, partial(_decode, cycle(inputs)), turns=len(inputs))


def _decode_turns(bench: Bench, cached_tokens: int, cold_bytes: int) -> int:
    """Caches that decode takes turns among, so that an accelerator keeps none of them close to its cores."""
    suite = bench.suite
    if not bench.is_accelerator:
        return 1
    cache_bytes = 2 * cached_tokens * suite.kv_heads * suite.head_dim * int(bytes_per_weight(suite.format))
    return max(1, min(MOST_TURNS, cold_bytes // cache_bytes))


def _decode(inputs: "Iterator[tuple[torch.Tensor, ...]]") -> "torch.Tensor":
    from torch.nn.functional import scaled_dot_product_attention as attend

    query, key, value = next(inputs)
    return attend(query, key, value, enable_gqa=True)


def link_samples(bench: Bench) -> Iterator[cases.Sample]:
    """Collectives among all ranks, as many times on every rank; none where there is one."""
    import torch
    import torch.distributed as distributed

    # Renamed in torch 2.13; the old names warn there.
    gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
    scatter = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
    for size in cases.PAYLOAD_BYTES if bench.rank_count > 1 else ():
        share = torch.ones(size // 4 // bench.rank_count, device=bench.device)
        whole = torch.ones(share.numel() * bench.rank_count, device=bench.device)
        sizes: dict[str, cases.Number] = {"bytes": whole.numel() * 4}
        fixed = MANY_CALLS if size <= SMALL_PAYLOAD_BYTES else FEW_CALLS
        yield bench.timed("all_reduce", sizes, partial(distributed.all_reduce, whole), fixed=fixed)
        yield bench.timed("all_gather", sizes, partial(gather, whole, share), fixed=fixed)
        yield bench.timed("reduce_scatter", sizes, partial(scatter, share, whole), fixed=fixed)


def storage_samples(bench: Bench, folder: Path) -> Iterator[cases.Sample]:
    """A file written and forced to the disk that checkpoints go to, by all ranks at once."""
    for size in cases.STORED_BYTES:
        data = os.urandom(min(size, 2**20)) * max(1, size // 2**20)
        bench.together()
        seconds = []
        for _ in range(3):
            begin_s = time.perf_counter()
            with tempfile.NamedTemporaryFile(dir=folder) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                seconds.append(time.perf_counter() - begin_s)
        yield cases.Sample("store", {"bytes": len(data)}, tuple(seconds))


def cold_pool_bytes(bench: Bench) -> int:
    """Bytes of one rank that no cache holds while all ranks use as many: twice its share of the last one,
    four times that of an accelerator, which is its own."""
    import torch

    if bench.is_accelerator:
        return 4 * int(torch.cuda.get_device_properties(bench.device).L2_cache_size)
    folders = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    sizes = [path.read_text("utf-8").strip() for path in folders]
    units = {"K": 2**10, "M": 2**20}
    caches = [int(size[:-1]) * units.get(size[-1], 1) for size in sizes if size[:-1].isdigit()]
    return max(COLD_POOL_BYTES, min(2 * max(caches, default=0) // bench.rank_count, 2**28))


def busy_w(bench: Bench) -> float | None:
    """The most that all accelerators draw while this rank multiplies; None where nobody tells."""
    import torch

    size = POWER_SIZE
    rows = torch.randn((size, size), device=bench.device).to(torch.bfloat16)
    drawn: list[float] = []
    until_s = time.monotonic() + POWER_S
    while time.monotonic() < until_s:
        for _ in range(POWER_CALLS):
            torch.mm(rows, rows)
        drawn += [now_w for now_w in [watts()] if now_w is not None]  # products still run meanwhile
        bench.wait()
        if not drawn:
            break
    return max(drawn, default=None)
