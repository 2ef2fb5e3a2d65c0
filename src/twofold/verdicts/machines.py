"""Machines in words, as `estimate` reads them, with what a question varies of them."""

from dataclasses import replace

from twofold.answer.question import Given, Variation, given
from twofold.core.quantity import Dimension, parse_quantity
from twofold.verdicts.world import World


def machines(
    world: World,
    on: str,
    scale: str = "",
    oversubscription: float = 1.0,
    fabric: str = "",
    nic: str = "",
    virtual: str = "",
    slower_latency: float = 1.0,
) -> Given:
    """Machines such as `8x8xH100-SXM`, computed once. `scale` is `link=0.5,compute=1.2`, `nic` is `400 Gb/s`
    each; `slower_latency` multiplies what one message between nodes waits.
    """

    def assembled() -> Given:
        factors = (part.split("=") for part in scale.split(",") if part)
        varied = Variation(
            scale={name: float(factor) for name, factor in factors},
            oversubscription_ratio=oversubscription,
            fabric=fabric,
            nic_bytes_per_s=parse_quantity(nic, Dimension.BANDWIDTH) if nic else None,
            virtual_overhead_fraction=parse_quantity(virtual, Dimension.FRACTION) if virtual else 0.0,
        )
        found = given(on, world.catalog, world.constants, varied)
        if slower_latency == 1.0:
            return found
        network = found.cluster.network
        slowed = replace(network, nic_latency_s=network.nic_latency_s * slower_latency)
        return replace(found, cluster=replace(found.cluster, network=slowed))

    words = on, scale, oversubscription, fabric, nic, virtual, slower_latency
    return world.once(("machines", *words), assembled)


def price_usd_per_h(found: Given) -> float | None:
    """What one of the accelerators costs an hour; None without a list price."""
    price = found.machine.price
    return price.usd_per_accelerator_h.value if price else None
