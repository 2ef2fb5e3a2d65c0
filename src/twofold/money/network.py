"""What the network of bought servers costs: the building's own bill of it, for one server."""

from dataclasses import replace

from twofold.answer import Context
from twofold.building import COLLECTED, Entry, networks, placed
from twofold.catalog import Node
from twofold.contracts.results import ServicePlan, TrainingPlan, UnitCost
from twofold.facility import NodeList, node_power


def network_price(
    half: str, node: Node, servers: int, part: TrainingPlan | ServicePlan, context: Context
) -> tuple[UnitCost, str]:
    """Switches, optics and cables over the servers, and what to know where a part of it has no price.

    Formula  (bill of every network that the building gives these servers) / servers
    Limits   services that share machines count with the largest one's flows.
    """
    machine = replace(
        part.machine,
        node=node.name,
        node_count=servers,
        accelerators_per_node=node.accelerator_count,
        accelerator_count=servers * node.accelerator_count,
        fabric=node.fabric,
    )
    listed = NodeList(part.name, "training" if half == "training" else "serving", node, servers)
    entry = Entry(listed, node_power(context.catalog, node), machine, True, None, 1.0, part)
    built = networks((entry,), placed((entry,), context).racks, context)
    known = [each for each in built if each.usd is not None]
    switches = ", ".join(each.switch.split(" (")[0] for each in known) or "one server, no switch"
    usd = sum(each.usd or 0.0 for each in known) / servers
    lacks = [each for each in built if each.usd is None]
    told = (
        f"{servers} × {node.name}: the network is not in it, {lacks[0].note or 'it has no price'}"
        if lacks
        else ""
    )
    return UnitCost(usd, f"network.csv {switches}; as the building's bill has it", COLLECTED), told
