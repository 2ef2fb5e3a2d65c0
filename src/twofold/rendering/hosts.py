"""What a container or a job asks of its server beside accelerators: their share of processors and memory.

What an instance has stands in the catalogue by its name. A price list's own name that the table of nodes has
not is no instance that is known, whichever server the plan took in its place.
"""

from dataclasses import dataclass
from math import floor

from twofold.contracts.results.parts import Machine
from twofold.rendering.given import Given
from twofold.rendering.slices import slice_of

LEFT = 0.1  # of a server, for its system and what watches it
GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class Share:
    """What so many accelerators of a server take of it."""

    cpu_count: int
    memory_gib: int
    because_cpu: str
    because_memory: str


def share_of(machine: Machine, count: int, given: Given) -> Share | None:
    """None where the catalogue does not say what the server has.

    Formula  accelerators / those of the server · its processors (or memory) · (1 - a tenth)
    Limits   rounded down, one of each at the least
    """
    node = given.nodes.get(_server(machine))
    part = slice_of(machine.accelerator, given)
    if node is None or node.vcpu_count is None or node.ram_bytes is None or (part and part.kind == "vgpu"):
        return None
    fraction = min(1.0, count / node.accelerator_count) * (1.0 - LEFT)
    of = (
        f"{count} of {node.accelerator_count} accelerators"
        if count < node.accelerator_count
        else "the server"
    )
    cpus, memory = node.vcpu_count, node.ram_bytes / GIB
    return Share(
        max(1, floor(cpus * fraction)),
        max(1, floor(memory * fraction)),
        f"{of}, less a tenth: nodes {node.name} vcpus {cpus}",
        f"{of}, less a tenth: nodes {node.name} ram_gb {node.ram_bytes / 1e9:g}",
    )


def unknown_share(machine: Machine, given: Given) -> list[str]:
    """What cannot be asked for, as a line of a file's head."""
    if share_of(machine, 1, given) is not None:
        return []
    return [f"processors and memory: what a `{_server(machine)}` has is not in the catalogue; add requests"]


def _server(machine: Machine) -> str:
    """The instance that is rented, else the server that the plan took for the user's."""
    return machine.price.instance if machine.price else machine.node
