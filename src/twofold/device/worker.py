"""One rank of a device measurement, a process of its own: `python -m twofold.device.worker`.

Samples leave as JSON lines on stdout; a line on stdin answers each request to be served from. When stdin
closes, whoever started it is gone, and so is it.
"""

import json
import os
import sys
import threading
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from queue import Queue
from typing import Any

from twofold.device.cases import Sample
from twofold.device.formats import format_samples
from twofold.device.kernels import (
    Bench,
    busy_w,
    cold_pool_bytes,
    kernel_samples,
    link_samples,
    storage_samples,
)

TIMEOUT_S = 120.0  # of one collective: a rank that died is missed


def main() -> None:
    """Measure what the environment says, and report."""
    rank, rank_count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    answers = _answers()
    bench = _join(rank, rank_count)
    folder = Path(os.environ["TWOFOLD_STATE"])
    _report("memory and products", kernel_samples(bench, cold_pool_bytes(bench)))
    if bench.is_accelerator and rank == 0:
        _say({"event": "power", "busy_w": busy_w(bench)})
    _report("number formats", format_samples(bench))
    _report("links and storage", [*link_samples(bench), *storage_samples(bench, folder)])
    if _has("transformers"):
        from twofold.device.models import training_samples

        _report("training steps", training_samples(bench))
        # What this process holds: libraries, pools and scratch of training, beside a case's few tensors.
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        _say({"event": "resident", "bytes": pages * os.sysconf("SC_PAGE_SIZE")})
    if _has("fastapi") and _has("transformers"):
        from twofold.device.models import serve_each

        for event in serve_each(bench, folder):
            _say(event)
            answers.get()
    _say({"event": "done", "software": _software()})
    os._exit(0)  # threads of an engine would keep it


def _answers() -> "Queue[str]":
    """Lines of stdin as they come; the process ends with its stdin."""
    lines: Queue[str] = Queue(maxsize=100)

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(3)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _join(rank: int, rank_count: int) -> Bench:
    """Meet the other ranks, and take this rank's share of the machine."""
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(rank)
    with_accelerators = torch.cuda.is_available()
    device = torch.device("cuda", rank) if with_accelerators else torch.device("cpu")
    if with_accelerators:
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if with_accelerators else "gloo",
        init_method=f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}",
        rank=rank,
        world_size=rank_count,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    ready: dict[str, Any] = {"event": "ready"}
    if with_accelerators:
        found = torch.cuda.get_device_properties(device)
        ready |= {"accelerator": found.name, "memory_bytes": found.total_memory}
        ready["cores"] = found.multi_processor_count
    _say(ready)
    return Bench(device, rank, rank_count)


def _report(stage: str, samples: Iterable[Sample]) -> None:
    if os.environ["RANK"] == "0":
        _say({"event": "stage", "name": stage})
    for each in samples:
        _say({"event": "sample", "group": each.group, "sizes": dict(each.sizes), "seconds": each.seconds})


def _say(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _has(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def _software() -> str:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in ("torch", "transformers"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


if __name__ == "__main__":
    main()
