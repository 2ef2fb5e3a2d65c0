import re

import pytest

from twofold.contracts.results.plan import Plan


def test_a_half_on_its_own_fleet_is_as_planned(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        for cell in plan.cross:
            if cell.half != cell.fleet:
                continue
            if cell.half == "training":
                run = next(run for run in plan.training if run.name == cell.name)
                assert (cell.wall_s, cell.cost_usd) == (run.run.total_s, run.cost_usd)
            else:
                service = next(service for service in plan.serving if service.name == cell.name)
                assert cell.cost_usd == service.cost_usd_per_year


def test_a_service_on_training_nodes_may_use_parts_of_them(examples: dict[str, Plan]) -> None:
    plan = examples["finetune"]
    elsewhere = next(cell for cell in plan.cross if (cell.half, cell.fleet) == ("serving", "training"))
    home = plan.serving[0].cost_usd_per_year
    # An 8B model needs one H100 a replica, not the eight of a node: a few times an L40S, not twelve times.
    assert home and elsewhere.cost_usd and elsewhere.cost_usd.value < 5 * home.value


def test_replicas_that_cannot_rest_are_paid_all_year_elsewhere_too(examples: dict[str, Plan]) -> None:
    """Two replicas, one a spare, stand at every hour: the own fleet's hours of rest are none of theirs."""
    plan = examples["finetune"]
    elsewhere = next(cell for cell in plan.cross if (cell.half, cell.fleet) == ("serving", "training"))
    price = plan.training[0].machine.price
    assert plan.serving[0].machine.held_fraction < 1.0 and price and elsewhere.cost_usd
    hours = elsewhere.cost_usd.value / price.usd_per_accelerator_h.value
    assert hours == pytest.approx(2 * 8760, rel=0.02)


def test_what_does_not_fit_says_why(examples: dict[str, Plan]) -> None:
    refused = [cell for plan in examples.values() for cell in plan.cross if not cell.feasible]
    assert refused
    assert all("misses" in cell.text or "does not fit" in cell.text for cell in refused)


def test_a_share_more_is_of_the_two_costs_that_stand_beside_each_other(examples: dict[str, Plan]) -> None:
    said = 0
    for plan in examples.values():
        for cell in plan.cross:
            told = re.search(r"\(([+-][\d,]+) %\)", cell.text)
            if cell.half == "serving" and told and cell.cost_usd:
                home = next(each for each in plan.serving if each.name == cell.name).cost_usd_per_year
                assert home
                share = 100 * (cell.cost_usd.value / home.value - 1)
                assert float(told[1].replace(",", "")) == pytest.approx(share, abs=0.51)
                said += 1
    assert said
