"""One partition of a device as a device of its own, and the nodes and prices that hold it."""

from collections.abc import Sequence
from dataclasses import fields, replace

from twofold.catalog.names import canonical, did_you_mean
from twofold.catalog.types import Accelerator, Node, Partition, Price
from twofold.core.errors import UnknownNameError

SHARE = "a share of a whole device"  # in the source of a price that nobody lists
_RATES = [field.name for field in fields(Accelerator) if field.name.endswith("_flops_per_s")]


def find_profile(device: Accelerator, known: Sequence[Partition], profile: str) -> Partition:
    """The profile of this name among those that the device has."""
    if not known:
        hint = "`twofold catalog partitions` lists the devices that can"
        raise UnknownNameError(f"{device.name} cannot be partitioned", hint=hint)
    for part in known:
        if canonical(part.profile) == canonical(profile):
            return part
    names = [part.profile for part in known]
    hint = did_you_mean(profile, names, f"profiles: {', '.join(names)}")
    raise UnknownNameError(f"{device.name} has no profile `{profile}`", hint=hint)


def part_of(device: Accelerator, part: Partition) -> Accelerator:
    """The device that one partition is: its share of compute, memory, bandwidth, cache and power.

    Compute goes by SMs where they are published, else by compute slices; memory, bandwidth and cache go by
    memory slices; power by compute. It has no links. One device holds `count_max` of them.

    AMD's partitions see each other over PCIe and work on one model; MIG's and vGPUs do not.
    """
    if part.count_max == 1 and part.memory_slices == part.memory_slices_total:
        return device
    cores = part.core_count if part.core_count and device.sm_count else None
    compute = part.compute_slices / part.compute_slices_total
    if cores and device.sm_count:
        compute = cores / device.sm_count
    memory = part.memory_slices / part.memory_slices_total
    rates = {name: rate * compute for name in _RATES if (rate := getattr(device, name))}
    return replace(
        device,
        name=f"{device.name}:{part.profile}",
        memory_bytes=device.memory_bytes * memory,
        memory_nominal_bytes=part.memory_bytes,
        memory_bytes_per_s=device.memory_bytes_per_s * memory,
        sm_count=cores or (round(device.sm_count * compute) if device.sm_count else None),
        l2_bytes=device.l2_bytes * memory if device.l2_bytes else None,
        scaleup_name="none",
        scaleup_bytes_per_s=0.0,
        scaleup_domain_count=1,
        tdp_w=device.tdp_w * compute,
        idle_w=device.idle_w * compute if device.idle_w else None,
        mig_slice_count=0,
        notes=f"one {part.profile} partition; {part.count_max} fit on a device",
        **rates,
    )


def cut_node(node: Node, part: Partition) -> Node:
    """The node with every device cut into as many of these partitions as it holds."""
    return replace(
        node,
        name=f"{node.name}:{part.profile}",
        accelerator=f"{node.accelerator}:{part.profile}",
        accelerator_count=node.accelerator_count * part.count_max,
    )


def is_share(price: Price) -> bool:
    """Whether nobody lists a price: it is that of a whole device by the share of a slice."""
    return SHARE in price.source


def cut_price(price: Price, part: Partition) -> Price:
    """The same instance by the share of one partition: nobody lists it so."""
    return replace(
        price,
        confidence="assumed",
        source=f"{SHARE}: {price.source}",
        accelerator=f"{price.accelerator}:{part.profile}",
        accelerator_count=price.accelerator_count * part.count_max,
        usd_per_accelerator_h=price.usd_per_accelerator_h / part.count_max,
    )
