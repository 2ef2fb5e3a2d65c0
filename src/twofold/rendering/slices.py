"""Slices of devices in rendered files: by which words they are asked for, and what has to be there before.

Sources  NVIDIA's MIG user guide, its container toolkit (`GPU:SLICE` as a device's id), device plugin and GPU
         feature discovery; gres.conf of Slurm, whose NVML names a slice by its profile; AMD SMI; NVIDIA vGPU.
"""

from math import ceil

from twofold.catalog.types import Partition
from twofold.rendering.given import Given

VGPU_LABEL = "nvidia.com/vgpu.present"  # of nodes that are virtual machines with a vGPU


def slice_of(accelerator: str, given: Given) -> Partition | None:
    """What a machine's accelerator is cut out by; None for whole devices."""
    return given.slices.get(accelerator)


def is_mig(accelerator: str, given: Given) -> bool:
    """Whether it is a slice that has a name of its own wherever devices are counted."""
    part = slice_of(accelerator, given)
    return part is not None and part.kind == "mig"


def device_id(accelerator: str, number: int, given: Given) -> str:
    """One accelerator of a machine as NVIDIA's container toolkit says it: a slice is `GPU:SLICE`."""
    part = slice_of(accelerator, given)
    if part is None or part.kind != "mig":
        return str(number)
    return f"{number // part.count_max}:{number % part.count_max}"


def whole_count(accelerator: str, count: int, given: Given) -> int:
    """Devices that so many slices are cut out of."""
    part = slice_of(accelerator, given)
    return ceil(count / part.count_max) if part else count


def made_before(accelerator: str, given: Given) -> list[str]:
    """What no file makes: slices are there before anything is started on them."""
    part = slice_of(accelerator, given)
    if part is None:
        return []
    per = f"{part.count_max} on a device"
    if part.kind == "mig":
        return [f"the slices themselves, {per}: `nvidia-smi mig -cgi {part.profile} -C` makes one"]
    if part.kind == "amd":
        made = f"`amd-smi set --gpu all --compute-partition {part.profile}`"
        return [f"the compute mode, {per}: {made} sets it"]
    return [f"the virtual machines: each has a vGPU of type {part.profile}, {per}"]


def by_hand(accelerator: str, given: Given) -> list[str]:
    """The same where somebody starts a script: a process sees one slice, by its own id."""
    lost = made_before(accelerator, given)
    if is_mig(accelerator, given):
        lost.append("which slice: start each with CUDA_VISIBLE_DEVICES=MIG-…, as `nvidia-smi -L` lists them")
    return lost


def counted_as_whole(accelerator: str, given: Given) -> list[str]:
    """The same on a cluster that has no word for such slices."""
    part = slice_of(accelerator, given)
    if part is None:
        return []
    lost = made_before(accelerator, given)
    if part.kind != "mig":
        lost.append(f"{part.profile}: the device plugin counts shares as it counts whole devices")
    return lost
