"""The one table of named quantities, and how they are asked."""

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from twofold.claims.quantities_catalog import CATALOG
from twofold.claims.quantities_cluster import CLUSTER
from twofold.claims.quantities_cost import COST
from twofold.claims.quantities_facility import FACILITY
from twofold.claims.quantities_rules import RULES
from twofold.claims.quantities_serving import SERVING
from twofold.claims.quantities_training import TRAINING
from twofold.claims.quantity import Quantity
from twofold.claims.world import World
from twofold.core import InfeasibleError, UnknownNameError, ValueRefusedError

QUANTITIES: Mapping[str, Quantity] = {
    **CATALOG,
    **TRAINING,
    **SERVING,
    **COST,
    **CLUSTER,
    **FACILITY,
    **RULES,
}


def ask(world: World, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """One quantity of these arguments; None where nothing is feasible. Asked twice, it is computed once."""
    quantity = QUANTITIES.get(name)
    if quantity is None:
        near = get_close_matches(name, QUANTITIES, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "quantities: " + ", ".join(sorted(QUANTITIES))
        raise UnknownNameError(f"`{name}` is not a quantity", hint=hint)
    if None in arguments or None in named.values():
        return None
    try:
        inspect.signature(quantity.function).bind(world, *arguments, **named)
    except TypeError as error:
        raise ValueRefusedError(f"`{name}`: {error}") from None
    key = (name, *arguments, *sorted(named.items()))
    return world.once(key, lambda: _feasible(quantity, world, arguments, named))


def _feasible(quantity: Quantity, world: World, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    try:
        return quantity.function(world, *arguments, **named)
    except InfeasibleError:
        return None
