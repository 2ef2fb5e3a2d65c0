"""How far sums of bf16 products are off on this device, accumulated in fp32 and in bf16; prints JSON.

A long product is cut into chunks along the summed dimension, each computed in bf16. The chunks are added up
in fp32 or in bf16; errors are against the same numbers in fp64, relative to the largest result. A process
of its own: DEVICE.
"""

import json
import sys
from collections.abc import Sequence

import torch

SIZE, SUMMED, CHUNK = 64, 16_384, 128


def errors(device: str) -> dict[str, float | str]:
    """The mean relative error of either sum, and what it was computed on."""
    torch.manual_seed(1)
    left, right = (torch.rand(SIZE, SUMMED).bfloat16().to(device) for _ in range(2))
    exact = left.double() @ right.double().T
    sums = {
        kind: torch.zeros(SIZE, SIZE, dtype=kind, device=device) for kind in (torch.float32, torch.bfloat16)
    }
    for begin in range(0, SUMMED, CHUNK):
        part = left[:, begin : begin + CHUNK] @ right[:, begin : begin + CHUNK].T
        for kind, total in sums.items():
            total += part.to(kind)
    off = {
        kind: float(((total.double() - exact).abs() / exact.abs().max()).mean())
        for kind, total in sums.items()
    }
    name = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"cpu ({torch.backends.cpu.get_cpu_capability()})"
    )
    return {"fp32": off[torch.float32], "bf16": off[torch.bfloat16], "device": name}


def main(words: Sequence[str]) -> None:
    """Print both."""
    sys.stdout.write(json.dumps(errors(words[0])) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
