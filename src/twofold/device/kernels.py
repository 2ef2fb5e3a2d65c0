"""Operators, memory, links and storage of one rank, timed while all ranks run the same. Needs torch."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.device import cases

if TYPE_CHECKING:
    import torch

REPEATS = 5
LEAST_REPEAT_S = 0.004  # below it a clock and a switch of tasks show
MOST_CASE_S = 0.4  # slow cases are repeated less
WEIGHTS_MAX = 256
MANY_CALLS, FEW_CALLS, SMALL_PAYLOAD_BYTES = 8, 2, 2**16
COLD_POOL_BYTES = 32 * 2**20  # of weights that decode shapes cycle through, at least


class Bench:
    """Times calls on one rank. Mutable in nothing but the device that it waits for."""

    def __init__(self, device: "torch.device", rank: int, rank_count: int) -> None:
        self.device, self.rank, self.rank_count = device, rank, rank_count

    def together(self) -> None:
        """Wait for all ranks, so that each case runs on all of them at once."""
        import torch.distributed as distributed

        if self.rank_count > 1:
            distributed.barrier()

    def wait(self) -> None:
        """Until the accelerator has done what it was given; a processor is done when a call returns."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

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
        for size in (*cases.COPIES_BYTES, cold_bytes):
            yield from _passes(bench, size)
        one, small = torch.ones(1, device=bench.device), torch.ones((2, 2), device=bench.device)
        yield bench.timed("launch", {"kind": "add"}, lambda: one.add_(1.0))
        yield bench.timed("launch", {"kind": "product"}, lambda: small @ small)
        for shape in (*cases.SQUARES, *cases.WIDE_ROWS, *cases.DECODE_ROWS):
            yield _product(bench, shape, "fp32", cold_bytes)
        for shape in cases.HALF_SHAPES:
            yield _product(bench, shape, "bf16", cold_bytes)
        yield from _attention(bench)


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
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[name]
    wanted = cold_bytes // (n * k * kind.itemsize) if shape in cases.DECODE_ROWS else 1
    count = max(1, min(wanted, WEIGHTS_MAX))
    rows = torch.randn((m, k), device=bench.device).to(kind)
    weights = cycle([torch.randn((n, k), device=bench.device).to(kind) for _ in range(count)])
    sizes: dict[str, cases.Number] = {"m": m, "n": n, "k": k, "format": name, "cold": count}
    return bench.timed("gemm", sizes, lambda: torch.nn.functional.linear(rows, next(weights)))


def _attention(bench: Bench) -> Iterator[cases.Sample]:
    """Prefill, causal, and decode, whose query heads share those of keys and values."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    def heads_of(sequences: int, heads: int, tokens: int) -> torch.Tensor:
        return torch.randn((sequences, heads, tokens, cases.HEAD_DIM), device=bench.device)

    sizes: dict[str, cases.Number]
    for sequences, tokens, heads in cases.PREFILLS:
        query, key, value = (heads_of(sequences, heads, tokens) for _ in range(3))
        sizes = {"sequences": sequences, "tokens": tokens, "heads": heads}
        yield bench.timed("prefill", sizes, partial(attend, query, key, value, is_causal=True))
    for sequences, context in cases.DECODES:
        query = heads_of(sequences, cases.ATTENTION_HEADS, 1)
        key, value = (heads_of(sequences, cases.ATTENTION_KV_HEADS, context) for _ in range(2))
        sizes = {"sequences": sequences, "context": context}
        yield bench.timed("decode", sizes, partial(attend, query, key, value, enable_gqa=True))


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


def cold_pool_bytes(rank_count: int) -> int:
    """Bytes of one rank that no cache holds while all ranks use as many: twice its share of the last one."""
    folders = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    sizes = [path.read_text("utf-8").strip() for path in folders]
    units = {"K": 2**10, "M": 2**20}
    caches = [int(size[:-1]) * units.get(size[-1], 1) for size in sizes if size[:-1].isdigit()]
    return max(COLD_POOL_BYTES, min(2 * max(caches, default=0) // rank_count, 2**28))
