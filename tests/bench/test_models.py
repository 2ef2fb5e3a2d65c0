"""The sweep over models finds faults where there are some, and none in a plan as it is."""

from collections.abc import Callable
from dataclasses import replace

from bench.models import account_limit, answer_faults, offer_faults
from twofold.contracts.results.plan import Plan

Planned = Callable[[str], Plan]
SPEC = """
name: s
model: llama-3.1-8b
serving: {classes: {chat: {traffic: {rate: 5 /s}, slo: {ttft_p95: 2 s, tpot_p95: 100 ms}}}}
"""


def test_what_a_plan_rents_and_pays_is_counted_again(planned: Planned) -> None:
    plan = planned(SPEC)
    assert not list(offer_faults(plan)) and not list(answer_faults(plan))
    (service,) = plan.serving
    price = service.machine.price
    assert price and price.term == "on_demand" and plan.leasing
    many = replace(service.machine, accelerator_count=10_000, price=replace(price, gate=""))
    (fault,) = offer_faults(replace(plan, serving=(replace(service, machine=many),)))
    assert fault.startswith("offer: 10000 × ")
    (fault,) = answer_faults(replace(plan, leasing=replace(plan.leasing, usd=2 * plan.leasing.usd)))
    assert "the leases cost" in fault
    assert plan.building is None or plan.building.racks


def test_an_account_gives_what_its_provider_states_else_what_is_usual() -> None:
    assert account_limit("lambda", "H100-SXM5-80GB") == 8
    assert account_limit("nobody", "H100-SXM5-80GB") == 64
