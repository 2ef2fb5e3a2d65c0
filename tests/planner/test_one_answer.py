"""What is recommended is what is described, costed and housed: one fleet on every screen."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from twofold.catalog.capacity import CONTRACT, NO_FABRIC
from twofold.contracts.results.ledger import total_usd
from twofold.contracts.results.parts import PriceUsed
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.errors import InfeasibleError
from twofold.core.quantity import YEAR_H
from twofold.planner.actions import owner_of

Planned = Callable[[str], Plan]
NAMES = ("assistant", "finetune", "moe", "portfolio")
MODELS = ("llama-3.1-8b", "qwen3-32b", "gpt-oss-120b")
SUPPLIES = (
    "",
    "supply: {simplicity: 0 %}",
    "supply: {platforms: 1}",
    "supply: {shop: {providers: [aws, azure]}, economics: {tax: 10 %, discount: 5 %}}",
    "supply: {own: [{node: DGX-H100, count: 4}]}",
    "supply: {seasons: [{months: [nov, dec], factor: 2x}]}",
    "supply: {shop: {terms: [reserved_1y]}}",
    "supply: {shop: {exclude: [contract]}}",
    "supply: {shop: {terms: [on_demand, reserved_1y]}}",
)


def need_one_answer(plan: Plan) -> None:
    """Every machine to rent or use is one that a run or a service is described on, at its price."""
    assert plan.money
    told = [each for each in plan.actions if each.kind in ("rent", "use")]
    assert len(told) == len(plan.halves)
    for half in plan.halves:
        machine = half.machine
        (action,) = [each for each in told if each.name == half.name]
        assert f"{machine.accelerator}" in action.text
        whole = machine.node_count * machine.accelerators_per_node
        assert action.text.startswith((f"{machine.node_count} × ", f"{machine.accelerator_count} × "))
        assert machine.accelerator_count <= whole and 0.0 < machine.held_fraction <= 1.0
        if machine.price:
            assert machine.price.provider in action.text
        kinds = ("rent", "support") if machine.price else ("energy",)
        lines = [line for line in plan.money.lines if line.category in kinds and owner_of(line) == half.name]
        assert (action.usd or 0.0) == pytest.approx(total_usd(lines), abs=0.005)
    assert plan.money.total_usd == total_usd(plan.money.lines)
    (cost,) = [each for each in plan.actions if each.kind == "cost"]
    assert cost.usd == plan.money.total_usd
    made_up = [each.usd or 0.0 for each in plan.actions if each.kind in ("rent", "use", "also")]
    assert sum(made_up) == pytest.approx(plan.money.total_usd, abs=0.01)
    assert plan.first_year_usd and plan.first_year_usd.value == plan.money.total_usd
    need_offers_that_exist(plan)
    if plan.building:
        housed = {group.name: group.node_count for group in plan.building.racks}
        assert housed.items() <= {half.name: half.machine.node_count for half in plan.halves}.items()
    for service in plan.serving:
        need_leases_that_make_it_up(service, plan)
        if service.pools:
            sizes = [pool.replica.accelerator_count * pool.replica_count for pool in service.pools]
            held = service.machine.accelerator_count
            assert max(sizes) <= held < sum(sizes) + service.machine.accelerators_per_node


def need_leases_that_make_it_up(service: ServicePlan, plan: Plan) -> None:
    """A year of what is held and the rest of the hours are all that a service pays rent for."""
    machine, cost = service.machine, service.cost_usd_per_year
    if plan.money is None or cost is None or machine.price is None:
        return
    lines = [line for line in plan.money.lines if line.category == "rent" and owner_of(line) == service.name]
    assert len(lines) == 1 + (machine.base_price is not None)
    listed = sum(line.quantity * line.unit_usd for line in lines)
    assert listed == pytest.approx(cost.value, abs=0.02)
    hours = machine.node_count * machine.accelerators_per_node * machine.held_fraction * YEAR_H
    assert sum(line.quantity for line in lines) == pytest.approx(hours)
    assert machine.usd_per_accelerator_h * hours == pytest.approx(cost.value)
    if machine.base_price:
        (action,) = [each for each in plan.actions if each.kind == "rent" and each.name == service.name]
        assert f"{machine.base_node_count} {machine.base_price.provider}" in action.text
        assert lines[0].quantity == machine.base_node_count * machine.accelerators_per_node * YEAR_H
        assert 0 < machine.base_node_count <= machine.node_count * machine.held_fraction


def need_offers_that_exist(plan: Plan) -> None:
    """No more of an offer than it has, alone or together, and no job over several nodes without a fabric."""
    shared: dict[tuple[str, ...], list[tuple[PriceUsed, int]]] = {}
    for half in plan.halves:
        machine = half.machine
        for price, count in leases(half):
            if price.quantity is None:
                assert price.term in (CONTRACT, "reserved_1y", "reserved_3y") or price.kind == "your quote"
            else:
                assert price.kind == "your quote" or price.term == "on_demand"
                assert count <= price.quantity
                account = price.provider, machine.accelerator, price.region
                shared.setdefault(account, []).append((price, count))
            assert price.term != CONTRACT or f"{count:,} GPUs" in price.gate
            assert (price.usd_per_accelerator_h.source.value == "a") == (price.term == CONTRACT)
            assert not price.gate or price.gate in " ".join(half.warnings)
        if isinstance(half, TrainingPlan) and half.cost_usd and (price := machine.price):
            least_usd = price.least_h * machine.accelerator_count * price.usd_per_accelerator_h.value
            assert half.cost_usd.value >= least_usd * (1 - 1e-9)
            assert (price.least_h > 0) == (price.term == CONTRACT)
        if half in plan.training and machine.node_count > 1 and machine.price:
            assert machine.fabric not in NO_FABRIC and machine.fabric_bytes_per_s
    for sharers in shared.values():
        count = sum(count for _, count in sharers)
        if count > max(price.quantity or 0 for price, _ in sharers):
            assert all(
                "for a quote" in price.gate and f"{count:,} GPUs" in price.gate for price, _ in sharers
            )


def leases(half: TrainingPlan | ServicePlan) -> Iterator[tuple[PriceUsed, int]]:
    """Each price with its accelerators at most at once."""
    machine = half.machine
    held = machine.base_node_count * machine.accelerators_per_node
    if machine.base_price:
        yield machine.base_price, held
    if machine.price:
        yield machine.price, machine.accelerator_count - held


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_have_one_answer(examples: dict[str, Plan], name: str) -> None:
    need_one_answer(examples[name])


def test_a_base_is_held_and_the_rest_comes_by_the_hour_where_that_saves(examples: dict[str, Plan]) -> None:
    """Two quotes of the same machines: the year's for what always works, the other for the peak."""
    services = examples["portfolio"].serving
    assert all(each.machine.base_price for each in services)
    assert {each.machine.base_price.term for each in services if each.machine.base_price} == {"reserved_1y"}
    assert {each.machine.price.term for each in services if each.machine.price} == {"on_demand"}


def test_machines_that_are_taken_to_be_simple_keep_a_date_as_surely(examples: dict[str, Plan]) -> None:
    """A run was moved to fewer machines of the others, on which it ended in time by the middle alone."""
    plan = examples["portfolio"]
    assert plan.confidence and not plan.confidence.not_reached
    assert all((run.run.deadline_holds_probability or 0.0) >= 0.8 for run in plan.training)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(MODELS),
    st.sampled_from(SUPPLIES),
    st.floats(0.5, 60.0),
    st.sampled_from([1.0, 2.5, 5.0]),
    st.sampled_from([1, 3]),
    st.booleans(),
)
def test_any_spec_has_one_answer(
    planned: Planned, model: str, supply: str, rate: float, peak: float, zones: int, trains: bool
) -> None:
    batch = "      nightly: {traffic: {tokens_per_day: 200 Mtok}, slo: {finish_within: 6 h}}\n"
    training = "training: {name: tune, kind: lora, tokens: 200 Mtok, deadline: 5 d}\n" if trains else ""
    header = f"name: any\nmodel: {model}\n{training}"
    need_one_answer(
        planned(
            f"{header}serving:\n    name: serve\n    zones: {zones}\n    classes:\n"
            f"      chat: {{traffic: {{rate: {rate:.3g} /s, peak: {peak}x}}, slo: {{e2e_p95: 60 s}}}}\n"
            f"{batch if trains else ''}{supply}\n"
        )
    )


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["lambda", "nebius", "primeintellect", "hyperstack", "cudo", "seeweb"]),
    st.integers(1, 3),
    st.sampled_from([1.0, 20.0, 80.0]),
    st.booleans(),
)
def test_runs_and_services_together_take_no_more_of_an_offer_than_it_has(
    planned: Planned, provider: str, runs: int, rate: float, is_named: bool
) -> None:
    on = ", on: 1x8xH100-SXM" if is_named else ""
    entries = "".join(
        f"  - {{name: run{at}, kind: lora, tokens: 200 Mtok, deadline: 2 d{on}}}\n" for at in range(runs)
    )
    shop = f"{{providers: [{provider}], terms: [on_demand]}}"
    try:
        plan = planned(
            f"name: many\nmodel: llama-3.1-8b\ntraining:\n{entries}serving:\n  name: serve\n  classes:\n"
            f"    chat: {{traffic: {{rate: {rate:g} /s}}, slo: {{e2e_p95: 60 s}}}}\n"
            f"supply: {{shop: {shop}}}\n"
        )
    except InfeasibleError:
        reject()
    need_offers_that_exist(plan)
    limits = {("lambda", "H100-SXM5-80GB"): 8, ("primeintellect", "H100-SXM5-80GB"): 8}  # offer_capacity.csv
    for half in plan.halves:
        price = half.machine.price
        assert price
        if price.term == "on_demand":
            assert half.machine.accelerator_count <= limits.get((provider, half.machine.accelerator), 64)


SHORT = "kind: finetune, tokens: 20 Mtok, deadline: 2 d"


@pytest.mark.parametrize(
    ("shop", "provider", "term", "paid"),
    [
        ("providers: [lambda]", "lambda", CONTRACT, "lambda contract, 14.0 d paid"),  # as its clusters say
        ("providers: [lambda, azure]", "azure", "on_demand", ""),  # dearer by the hour, and not bound
    ],
)
def test_a_short_run_is_where_no_contract_outlasts_it(
    planned: Planned, shop: str, provider: str, term: str, paid: str
) -> None:
    plan = planned(
        f"name: short\nmodel: llama-3.1-70b\ntraining: {{{SHORT}}}\n"
        f"supply: {{shop: {{{shop}, accelerators: [H100-SXM]}}}}\n"
    )
    (run,) = plan.training
    assert run.machine.price and (run.machine.price.provider, run.machine.price.term) == (provider, term)
    assert paid in plan.actions[0].text and (" paid" in plan.actions[0].text) == bool(paid)
    need_one_answer(plan)


def test_contracts_are_left_out_where_the_spec_says_so(planned: Planned) -> None:
    supply = "supply: {shop: {providers: [lambda, nebius], accelerators: [H100-SXM], exclude: [contract]}}\n"
    plan = planned(f"name: short\nmodel: llama-3.1-70b\ntraining: {{{SHORT}}}\n{supply}")
    assert [half.machine.price.term for half in plan.halves if half.machine.price] == ["on_demand"]
    header = "name: long\nmodel: llama-3.1-70b\ntraining: {tokens: 700 Gtok, deadline: 30 d}\n"
    with pytest.raises(InfeasibleError, match="within the deadline"):
        planned(f"{header}{supply}")
    (run,) = planned(f"{header}{supply.replace('exclude: [contract]', 'exclude: [community]')}").training
    assert run.machine.price and run.machine.price.term == CONTRACT


def test_what_an_account_does_not_give_to_all_is_asked_for_once(planned: Planned) -> None:
    on = "kind: lora, tokens: 200 Mtok, deadline: 5 d, on: 1x8xH100-SXM"
    plan = planned(
        f"name: two\nmodel: llama-3.1-8b\ntraining: [{{name: a, {on}}}, {{name: b, {on}}}]\n"
        "serving: {name: serve, classes: {chat: {traffic: {rate: 2 /s}, slo: {e2e_p95: 60 s}}}}\n"
        "supply: {shop: {providers: [nebius], terms: [on_demand], accelerators: [H100-SXM]}}\n"
    )
    asked = "18 GPUs for a, b, serve together, accounts start at 16"
    assert {half.machine.price.gate for half in plan.halves if half.machine.price} == {
        f"ask nebius for a quota: {asked}"
    }
    risks = [each.text for each in plan.actions if each.kind == "risk"]
    assert [text for text in risks if "GPUs" in text] == [f"{asked}: ask nebius for a quota"]


@pytest.mark.parametrize("provider", ["cudo", "hyperstack", "verda", "primeintellect", "lambda"])
def test_named_machines_that_a_provider_does_not_join_are_a_contract_or_said(
    planned: Planned, provider: str
) -> None:
    """They kept the named node's fabric at the price of single hosts, some without a word."""
    header = "name: named\nmodel: llama-3.1-8b\ntraining: {tokens: 2 Gtok, on: 4x8xH100-SXM}\n"
    shop = f"providers: [{provider}]"
    plan = planned(f"{header}supply: {{shop: {{{shop}}}}}\n")
    (price,) = [half.machine.price for half in plan.halves]
    assert price and price.term == CONTRACT and "32 GPUs" in price.gate
    assert any(
        "32 GPUs" in each.text and provider in each.text for each in plan.actions if each.kind == "risk"
    )
    need_one_answer(plan)
    plan = planned(f"{header}supply: {{shop: {{{shop}, exclude: [contract]}}}}\n")
    (price,) = [half.machine.price for half in plan.halves]
    assert price and price.term == "on_demand" and f"ask {provider} for one fabric" in price.gate
