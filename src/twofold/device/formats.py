"""Whether products, attention and norms run in each number format here, and how long. Needs torch."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from twofold.device.cases import FORMAT_WIDTHS, KERNEL, PHASES, Sample
from twofold.device.kernels import FORMATS, Bench, scaled_how

if TYPE_CHECKING:
    import torch

HEADS, HEAD_DIM = 8, 64
ROUNDS = 3
# What torch says of a kernel that it does not have.
NO_KERNEL = (RuntimeError, ValueError, TypeError)


def format_samples(bench: Bench) -> Iterator[Sample]:
    """Each operation in each format on prompts and on decoding; without seconds where there is no kernel.

    In rounds, seconds apart, so that what else the machine does for a moment does not decide a ratio.
    """
    import torch

    width = FORMAT_WIDTHS[bench.is_accelerator]
    cases = product(range(ROUNDS), OPERATIONS.items(), PHASES.items(), FORMATS.items())
    with torch.no_grad():
        for _, (operation, calling), (phase, rows), (fmt, kind) in cases:
            sizes: dict[str, float | int | str] = {"kernel": operation, "phase": phase, "format": fmt}
            try:
                call = calling(bench.device, getattr(torch, kind), rows, width)
                call()
            except torch.OutOfMemoryError:
                raise
            except NO_KERNEL:
                yield Sample(KERNEL, sizes, ())
            else:
                yield bench.kernel(KERNEL, sizes, call)


def _filled(device: "torch.device", kind: "torch.dtype", *shape: int) -> "torch.Tensor":
    import torch

    return torch.randn(shape, device=device).to(kind)


def _product(device: "torch.device", kind: "torch.dtype", rows: int, width: int) -> Callable[[], object]:
    import torch

    one, other = (_filled(device, kind, count, width) for count in (rows, width))
    if kind == torch.int8:
        return partial(torch._int_mm, one, other.t())
    if kind.itemsize == 1:
        return partial(torch._scaled_mm, one, other.t(), **scaled_how(device))
    return partial(torch.nn.functional.linear, one, other)


def _attention(device: "torch.device", kind: "torch.dtype", rows: int, width: int) -> Callable[[], object]:
    """Of so many new tokens over as many cached ones as the model is wide."""
    from torch.nn.functional import scaled_dot_product_attention as attend

    query, key, value = (_filled(device, kind, 1, HEADS, count, HEAD_DIM) for count in (rows, width, width))
    return partial(attend, query, key, value)


def _norm(device: "torch.device", kind: "torch.dtype", rows: int, width: int) -> Callable[[], object]:
    import torch

    return partial(torch.nn.functional.rms_norm, _filled(device, kind, rows, width), (width,))


OPERATIONS = {"gemm": _product, "attention": _attention, "norm": _norm}
