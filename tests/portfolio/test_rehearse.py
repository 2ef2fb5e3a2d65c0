"""A portfolio on the twin: what serves is looked at, its rate corrected, the problem solved again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from twofold.portfolio.problem import CapacityOffer, Demand, PortfolioProblem, ServingRate
from twofold.portfolio.rehearse import LEAST_SHARE, ROUNDS_MAX, Rounds, TwinCheck, rounds
from twofold.portfolio.solve import Effort, solve

PRICES = {"cheap": 1.0, "middle": 2.0, "dear": 3.0, "dearest": 4.0}


def offer_of(name: str, usd_per_h: float) -> CapacityOffer:
    where: tuple[Any, ...] = ("prov", name, "H100-SXM5-80GB", 8, "", "on_demand", "virtual")
    return CapacityOffer(name, *where, usd_per_h, 0, None, 0.0, 0.0, 0.0, 0.0, "a list", "2026")


def year() -> PortfolioProblem:
    offers = tuple(offer_of(name, usd) for name, usd in PRICES.items())
    return PortfolioProblem(
        offers,
        (Demand("chat", np.full((2, 24), 50.0), None),),
        (),
        (),
        tuple(ServingRate(offer.name, "chat", "v", 10.0) for offer in offers),
        week_count=2,
    )


def played(ratios: Mapping[str, float]) -> tuple[Rounds, list[str]]:
    """The rounds, where the twin has so much of each machine's rate, and which ones it was asked for."""
    looked: list[str] = []

    def look(name: str) -> TwinCheck:
        looked.append(name)
        ratio = ratios.get(name, 1.0)
        return TwinCheck(ratio, name, "corrected" if ratio < 1 else "holds")

    problem = year()
    answer = solve(problem, effort=Effort.USUAL)
    assert answer is not None
    machines = {(offer.name, "chat"): offer.name for offer in problem.offers}
    return rounds(problem, answer, machines, look, solve), looked


def test_rates_that_hold_end_in_one_round_without_a_gap() -> None:
    found, looked = played({})
    assert looked == ["cheap"]
    assert [line.partition(":")[0] for line in found.lines] == ["round 1", "cheap", "gap +0.0 %"]
    assert found.problem.rates == year().rates


def test_what_answers_next_to_nothing_is_not_looked_at_and_that_is_said() -> None:
    problem = year()
    answer = solve(problem)
    assert answer is not None
    little = answer.served_per_s.copy()
    little[1] = little.sum(axis=0) * LEAST_SHARE / 2
    looked: list[str] = []

    def look(name: str) -> TwinCheck:
        looked.append(name)
        return TwinCheck(1.0, name, "holds")

    machines = {(offer.name, "chat"): offer.name for offer in problem.offers}
    found = rounds(problem, replace(answer, served_per_s=little), machines, look, solve)
    assert looked == ["cheap"] and "were not looked at" in found.lines[-2]


def test_a_rate_that_breaks_is_corrected_and_another_machine_takes_its_place() -> None:
    found, looked = played({"cheap": 0.25})
    assert looked == ["cheap", "middle"]
    rates = {rate.offer: rate.rate_per_unit_per_s for rate in found.problem.rates}
    assert rates == {"cheap": 2.5, "middle": 10.0, "dear": 10.0, "dearest": 10.0}
    assert found.answer.usd == pytest.approx(2.0 * 5 * 24 * 14)  # five units of `middle`
    assert found.lines[-1].startswith("gap +100.0 %")
    assert [(key, serves) for key, _, serves in found.looked] == [("cheap", False), ("middle", True)]


def test_room_makes_the_portfolio_cheaper() -> None:
    found, _ = played({"cheap": 1.25})
    assert found.answer.usd == pytest.approx(4 * 24 * 14)
    assert found.lines[-1].startswith("gap -20.0 %")


def test_there_are_three_rounds_at_most_and_the_last_says_what_was_not_tried() -> None:
    found, looked = played(dict.fromkeys(PRICES, 0.1))
    assert len(looked) == ROUNDS_MAX
    assert "were not rehearsed" in found.lines[-2]
    assert [(key, seen) for key, seen, serves in found.looked if serves] == [("dearest", None)]


def test_a_last_correction_that_brings_nothing_new_leaves_nothing_unsaid() -> None:
    found, looked = played(dict.fromkeys(("cheap", "middle", "dear"), 0.5) | {"cheap": 0.4})
    assert len(looked) < len(PRICES) and "not rehearsed" not in " ".join(found.lines)
    assert all(seen for _, seen, _ in found.looked)


def test_without_an_answer_the_last_one_stands_and_says_so() -> None:
    problem = year()
    answer = solve(problem)
    assert answer is not None
    machines = {(offer.name, "chat"): offer.name for offer in problem.offers}
    found = rounds(problem, answer, machines, lambda _: TwinCheck(0.5, "half", "corrected"), lambda _: None)
    assert found.answer is answer
    assert "no portfolio" in found.lines[-2]
    ((_, seen, serves),) = found.looked
    assert serves and seen and seen.verdict == "misses"  # its correction is nowhere
