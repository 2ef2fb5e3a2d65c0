"""The money of a plan: the bill adds up, agrees with the first year or says why, and knows what is owned."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from twofold.building.entries import training_token_bytes
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.ledger import LineItem, Money, total_usd
from twofold.contracts.results.plan import Plan
from twofold.report.money import detail_money_lines, money_lines
from twofold.training.run import TOKEN_BYTES

Planned = Callable[[str], Plan]
NAMES = ("assistant", "moe", "finetune", "portfolio")
SERVE = """
name: s
model: llama-3.1-8b
serving:
  quantisation: [fp8, bf16]
  classes:
    chat:
      traffic: {rate: 5 /s, peak: 2x, input: {mean: 500 tok}, output: {mean: 200 tok, p95: 500 tok}}
      slo: {ttft_p95: 500 ms, tpot_p95: 50 ms}
"""
TRAIN = """
name: t
model: llama-3.1-8b
training:
  tokens: 20 Gtok
  global_batch: 256 seq
  deadline: 14 d
  on: 4x8xH100-SXM
"""
TERMS = "discount: 20 %, tax: 19 %, currency: EUR, exchange: 0.9x, downtime_cost: 1 k$/h"


def money_of(plan: Plan) -> Money:
    assert plan.money is not None
    return plan.money


@pytest.mark.parametrize("name", NAMES)
def test_the_first_year_is_the_bills_total_and_every_line_is_cited(
    examples: dict[str, Plan], name: str
) -> None:
    plan = examples[name]
    money = money_of(plan)
    assert plan.first_year_usd and plan.first_year_usd.value == money.total_usd == total_usd(money.lines)
    assert plan.first_year_usd.low < money.total_usd < plan.first_year_usd.high
    assert all(line.source and line.date for line in money.lines)
    rent = [line for line in money.lines if line.category == "rent"]
    listed = sum(line.total_usd + line.discount_usd - line.tax_usd for line in rent)
    runs = {run.name: run for run in money.runs}
    planned = sum(run.cost_usd.value * runs[run.name].runs_per_year for run in plan.training if run.cost_usd)
    planned += sum(each.cost_usd_per_year.value for each in plan.serving if each.cost_usd_per_year)
    assert listed == pytest.approx(planned, abs=0.01 * len(rent))
    assert bool(money.difference) == (abs(money.total_usd - planned) >= 0.02)


def test_a_discount_of_all_of_it_leaves_no_first_year(planned: Planned) -> None:
    """The header kept the list price where every line of the bill rounded to nothing."""
    supply = "supply: {economics: {discount: 100 %}, shop: {providers: [lambda]}}\n"
    served = "serving: {classes: {chat: {traffic: {rate: 1 /s}}}}\n"
    free = planned(f"name: free\nmodel: llama-3.1-8b\n{supply}{served}")
    assert free.serving[0].cost_usd_per_year and free.serving[0].cost_usd_per_year.value > 0
    assert free.first_year_usd and free.first_year_usd.value == 0.0


def test_spares_that_are_weighed_are_of_the_classes_that_are_named(examples: dict[str, Plan]) -> None:
    (service,) = examples["assistant"].serving
    (money,) = money_of(examples["assistant"]).services
    pool = next(pool for pool in service.pools if " and ".join(pool.classes) == money.spares_of)
    assert [step.spare_count for step in money.spares if step.planned] == [pool.spare_count]
    assert len(service.pools) > 1 and service.spare_count > pool.spare_count


def test_whose_tariff_is_a_mean_is_said_once(examples: dict[str, Plan]) -> None:
    plan, catalog = examples["assistant"], load_catalog()
    places = {f"{region.provider}:{region.name}" for region in catalog.regions()}
    used = {part.name: part.machine.price for part in (*plan.training, *plan.serving)}
    note = " ".join(each for each in plan.warnings if "mean tariff" in each)
    for name, price in used.items():
        assert price and (name in note) == (f"{price.provider}:{price.region}" not in places)


@pytest.mark.parametrize("name", NAMES)
def test_rent_of_the_bill_is_that_of_the_leases(examples: dict[str, Plan], name: str) -> None:
    plan, money = examples[name], money_of(examples[name])
    kinds = ("rent", "support", "egress")
    rented = [line for line in money.lines if line.category in kinds or "file system" in line.what]
    assert (plan.leasing is None) == (not rented)
    if plan.leasing:
        modelled = {each.name for each in plan.halves if each.parameters is not None}
        own = [line for line in rented if line.what.partition(":")[0] in modelled]
        assert plan.leasing.usd == pytest.approx(total_usd(own), abs=0.05)
        assert plan.leasing.cheapest_usd <= plan.leasing.usd * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_owned_lines_are_cited_and_sum_to_the_cent(examples: dict[str, Plan], name: str) -> None:
    owning = money_of(examples[name]).owning
    assert owning is not None
    assert owning.owned_usd == total_usd(owning.lines)
    assert all(line.source and line.date for line in owning.lines)
    for row in owning.crossings:
        assert row.owned_usd_per_accelerator_h > 0 and 0 <= row.used_fraction <= 1
        if row.rented_usd_per_accelerator_h:
            even = row.owned_usd_per_accelerator_h / row.rented_usd_per_accelerator_h
            assert row.utilisation_fraction == pytest.approx(even)


def test_discount_and_tax_stand_on_the_lines_and_explain_the_difference(planned: Planned) -> None:
    shop = "supply: {shop: {accelerators: [L40S]}"
    plain = money_of(planned(f"{SERVE}{shop}}}"))
    terms = money_of(planned(f"{SERVE}{shop}, economics: {{{TERMS}}}}}"))
    before, after = (next(line for line in each.lines if line.category == "rent") for each in (plain, terms))
    assert after.discount_usd == pytest.approx(0.2 * before.total_usd, abs=0.01)
    assert after.total_usd == pytest.approx(before.total_usd * 0.8 * 1.19, abs=0.02)
    assert "discount" in terms.difference and "tax" in terms.difference
    assert (terms.currency, terms.exchange_ratio) == ("EUR", 0.9)
    assert terms.services[0].downtime_usd_per_h == 1000.0
    assert not any("hour down" in note for note in terms.notes)
    assert any("hour down" in note for note in plain.notes)


def test_half_a_plan_has_its_half_of_the_money(planned: Planned) -> None:
    served, trained = (
        money_of(planned(f"{each}supply: {{shop: {{accelerators: [H100-SXM]}}}}")) for each in (SERVE, TRAIN)
    )
    assert not served.runs and served.services and not served.ratios
    assert not trained.services and not trained.ratios
    (run,) = trained.runs
    assert run.crossing_days is None and not run.curve and run.usd_per_mtok is not None


def test_owned_machines_cost_energy_and_are_held_against_rent(planned: Planned) -> None:
    plan = planned(f"{SERVE}supply: {{own: {{node: DGX-H100, count: 2}}}}")
    money = money_of(plan)
    assert {line.category for line in money.lines} == {"energy"}
    assert "your own machines" in money.difference
    owning = money.owning
    assert owning is not None and owning.crossings[0].rented_usd_per_accelerator_h > 0
    assert owning.rented_usd > money.total_usd * owning.years
    text = " ".join(" ".join([*money_lines(money), *detail_money_lines(money)]).split())
    assert "if bought today" in text and "yours already" in text
    assert "renting is cheaper" not in text and "owning pays" not in text


def test_one_server_of_ones_own_has_one_year_in_bill_owning_and_building(planned: Planned) -> None:  # INV-1
    plan = planned(f"{SERVE}supply: {{own: {{node: DGX-H100, count: 2}}}}")
    money, building = money_of(plan), plan.building
    assert money.owning and building
    machine = plan.serving[0].machine
    assert machine.accelerator_count < machine.node_count * machine.accelerators_per_node  # the others rest

    def year(lines: Iterable[LineItem], years: int = 1) -> list[float]:
        spent = [line for line in lines if line.category in ("energy", "cooling")]
        kwh = sum(line.quantity for line in spent if line.unit == "kWh")
        return [kwh / years, total_usd(spent) / years]

    kwh, usd = year(money.lines)
    assert kwh == pytest.approx(building.year.meter_j.value / 3.6e6)
    owning = money.owning
    for other in (year(building.bill), year(owning.lines, owning.years)):
        assert other == pytest.approx([kwh, usd], abs=0.02)
    assert plan.first_year_usd and plan.first_year_usd.value == pytest.approx(usd, abs=0.02)
    used_j = plan.serving[0].energy_j_per_year.value
    assert building.year.meter_j.value > 1.5 * used_j  # six accelerators and the host draw, too


def test_own_machines_are_held_against_rent_on_the_terms_of_rented_ones(planned: Planned) -> None:
    shop = "shop: {providers: [aws], accelerators: [H100-SXM]}"
    plan = planned(f"{SERVE}supply: {{{shop}, own: {{node: DGX-H100, count: 2}}, economics: {{tax: 10 %}}}}")
    money = money_of(plan)
    assert money.owning and not [line for line in money.lines if line.category == "rent"]
    first = money.owning.cash[0].rented_usd
    hours = plan.serving[0].machine.accelerator_count * 8760
    rent = money.owning.crossings[0].rented_usd_per_accelerator_h * hours
    assert first > rent * 1.04  # aws has support and egress on top of it
    assert plan.first_year_usd and plan.first_year_usd.value == money.total_usd


def test_owning_needs_people_for_the_platform_as_well_as_the_building(planned: Planned) -> None:
    (staff,) = (
        line
        for line in money_of(planned(f"{TRAIN}supply: {{shop: {{accelerators: [H100-SXM]}}}}")).owning.lines  # type: ignore[union-attr]
        if line.category == "staff"
    )
    assert staff.quantity > 0.5 * 5  # half a person at least, whatever the size


def test_the_network_of_bought_servers_is_the_buildings_own_bill(planned: Planned) -> None:
    text = TRAIN.replace("on: 4x8xH100-SXM", "on: {node: DGX-H100, count: 4}")
    plan = planned(f"{text}supply: {{shop: {{accelerators: [H100-SXM]}}}}")
    owning = money_of(plan).owning
    assert owning and plan.building and plan.building.networks[0].usd
    (network,) = (line for line in owning.lines if line.what.startswith("network of"))
    assert network.total_usd == pytest.approx(plan.building.networks[0].usd, rel=1e-6)


def test_a_machine_that_nobody_prices_has_no_money(examples: dict[str, Plan]) -> None:
    assert examples["laptop"].money is None


def test_a_dearer_hour_moves_the_best_number_of_spares(planned: Planned) -> None:
    counts = []
    for usd in ("1 $/h", "1 M$/h"):
        text = f"supply: {{shop: {{accelerators: [L40S]}}, economics: {{downtime_cost: {usd}}}}}"
        steps = money_of(planned(SERVE + text)).services[0].spares
        counts.append(next(step.spare_count for step in steps if step.best))
        assert sum(step.planned for step in steps) == 1
    assert counts[0] < counts[1]


def test_staff_and_years_of_the_spec_replace_what_is_assumed(planned: Planned) -> None:
    keys = "years: 3, staff: 2, salary: 100 k$, cost_of_capital: 0 %"
    text = f"{TRAIN}supply: {{shop: {{accelerators: [H100-SXM]}}, economics: {{{keys}}}}}"
    owning = money_of(planned(text)).owning
    assert owning is not None and len(owning.cash) == 3
    staff = next(line for line in owning.lines if line.category == "staff")
    assert staff.total_usd == 600_000.0 and "spec" in staff.source
    assert owning.owned_present_usd == pytest.approx(owning.owned_usd)


def test_unit_costs_lie_on_the_plans_own(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        found: Any = plan.money
        for service in found.services if found else ():
            classes = {
                one.name: one for one in next(s for s in plan.serving if s.name == service.name).classes
            }
            for one in service.classes:
                planned_class = classes[one.name]
                per_1k, tokens = planned_class.usd_per_1k_output_tokens, planned_class.output_tokens
                if not plan.serving[0].replica.weights_format:  # measured rows have no tokens
                    assert per_1k is None
                    continue
                assert per_1k and tokens
                assert one.usd_per_query.value == pytest.approx(per_1k.value * tokens / 1e3)
                assert one.usd_per_query.low <= one.usd_per_query.value <= one.usd_per_query.high


def test_the_rent_of_a_run_that_does_not_repeat_is_paid_in_the_first_year_alone(planned: Planned) -> None:
    once, repeated = (
        money_of(planned(f"{TRAIN}{line}supply: {{shop: {{accelerators: [H100-SXM]}}}}"))
        for line in ("", "  repeats: every 26 weeks\n")
    )
    assert once.owning and repeated.owning
    assert [row.rented_usd for row in once.owning.cash] == [once.total_usd, *[0.0] * 4]
    assert once.owning.rented_usd == once.total_usd
    assert [row.rented_usd for row in repeated.owning.cash] == [repeated.total_usd] * 5


@pytest.mark.parametrize(("provider", "words"), [("aws", "GB/s"), ("lambda", "lambda has none here")])
def test_a_file_system_is_the_providers_own_or_says_whose_it_is(
    planned: Planned, provider: str, words: str
) -> None:
    lines = money_of(planned(f"{TRAIN}supply: {{shop: {{providers: [{provider}]}}}}")).lines
    (line,) = (each for each in lines if "file system" in each.what)
    assert words in line.what
    assert line.source.startswith("storage.csv AWS") or provider != "aws"


def test_owned_machines_pay_the_tariff_of_their_place_or_of_the_spec(planned: Planned) -> None:
    own = "supply: {own: {node: DGX-H100, count: 2, region: aws:eu-central-1}}"
    there, stated = (
        money_of(planned(f"{SERVE}{own}{more}")) for more in ("", "\nfacility: {electricity: 0.2 $/kWh}")
    )
    assert "aws:eu-central-1" in there.lines[0].source
    assert stated.lines[0].unit_usd == 0.2 and "spec" in stated.lines[0].source
    for money in (there, stated):
        assert money.owning
        power = next(line for line in money.owning.lines if line.what.startswith("power"))
        assert power.unit_usd == money.lines[0].unit_usd
        kwh = money.lines[0].quantity
        assert money.services[0].energy_usd_per_year == pytest.approx(kwh * power.unit_usd)


def test_rules_add_their_bill_once_and_no_provider_without_authority(planned: Planned) -> None:
    shop = "supply: {shop: {accelerators: [H100-SXM, H200]}, economics: {tax: 10 %}}"
    plan = planned(f"{SERVE}{shop}\ncompliance: {{regime: fedramp-high, users: 400}}")
    money, rules = money_of(plan), plan.compliance
    assert rules is not None and rules.rent_usd > 0
    lines = [line for line in money.lines if line.category == "compliance"]
    added = total_usd(lines)
    assert added == pytest.approx(rules.first_year_usd.value - rules.rent_usd, abs=0.01)
    wages = total_usd(item.line for item in rules.items if item.category == "staff")
    tax = sum(line.tax_usd for line in lines)
    assert tax == pytest.approx(0.1 * (added - tax - wages), abs=0.01 * len(lines))
    # The total, and what it is less the lines of the rules.
    assert plan.first_year_usd and plan.first_year_usd.value == money.total_usd
    assert rules.without_usd == pytest.approx(money.total_usd - rules.first_year_usd.value, abs=0.005)
    kept = sum(line.total_usd for line in money.lines if line.category in ("storage", "egress"))
    dearer = [item.line for item in rules.items if item.category in ("provider", "region")]
    hours = dearer[0].quantity
    assert len({line.quantity for line in dearer}) == 1
    free = (plan.serving[0].machine.price.usd_per_accelerator_h.value * hours  # type: ignore[union-attr]
            - sum(line.unit_usd * hours for line in dearer if "support" not in line.what)) * 1.1  # fmt: skip
    support = rules.without_usd - kept - free
    assert -0.02 < support < 0.051 * free
    assert "compliance" in money.difference
    assert money.services[0].api is None
    assert any("fedramp-high" in note for note in money.notes)
    rest = money.total_usd - added
    assert money.owning and money.owning.cash[0].rented_usd == pytest.approx(rest, abs=0.01)


def test_a_token_of_data_weighs_the_same_wherever_it_is_counted() -> None:
    assert training_token_bytes(load_catalog()) == TOKEN_BYTES
