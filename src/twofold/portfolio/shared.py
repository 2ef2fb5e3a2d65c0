"""What runs and services want of one account together: each alone may be within what it gets."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from twofold.catalog.capacity import CONTRACT, gate_of, supplied
from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Price
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan

P = TypeVar("P", TrainingPlan, ServicePlan)
Gates = dict[str, str]  # by run or service
PROMISED = (CONTRACT, "reserved")  # beginnings of terms that somebody agrees on: each is asked for alone


def sharing(
    training: Iterable[TrainingPlan], serving: Iterable[ServicePlan], catalog: Catalog
) -> tuple[tuple[TrainingPlan, ...], tuple[ServicePlan, ...]]:
    """Runs and services, each with what stands between its account and all that share that account.

    An account is a provider's for one accelerator, region and way to pay; runs might overlap.
    """
    training, serving = tuple(training), tuple(serving)
    gates = _gates((*training, *serving), catalog)
    return tuple(_gated(each, gates) for each in training), tuple(_gated(each, gates) for each in serving)


def _gates(halves: Iterable[TrainingPlan | ServicePlan], catalog: Catalog) -> Gates:
    sharers: dict[tuple[str, ...], list[tuple[TrainingPlan | ServicePlan, Price]]] = {}
    for half in halves:
        used, name = half.machine.price, half.machine.accelerator
        if used and used.kind != "your quote" and not used.term.startswith(PROMISED):
            key = used.provider, used.instance, used.region, used.term
            for price in catalog.prices_for(name):
                if (price.provider, price.instance, price.region, price.term) == key:
                    account = used.provider, name, used.region, used.term
                    sharers.setdefault(account, []).append((half, price))
                    break
    gates: Gates = {}
    for of_one in sharers.values():
        if len(of_one) > 1:
            count = sum(half.machine.hourly_count for half, _ in of_one)  # what is held all year is apart
            price = max((price for _, price in of_one), key=lambda each: supplied(each, catalog).most_count)
            names = ", ".join(half.name for half, _ in of_one)
            gate = gate_of(price, count, False, catalog, f" for {names} together")
            gates |= {half.name: gate for half, _ in of_one if gate}
    return gates


def _gated(half: P, gates: Gates) -> P:
    """A run or service with the gate that it shares in place of its own."""
    gate, price = gates.get(half.name), half.machine.price
    if not gate or price is None:
        return half
    machine = replace(half.machine, price=replace(price, gate=gate))
    told: list[str] = [text for text in half.warnings if text != price.gate]
    return replace(half, machine=machine, warnings=(gate, *told))
