"""The ladder of confidence ends where the plan stands, and measuring first saves what is left to learn."""

from itertools import pairwise
from math import exp, log
from pathlib import Path
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sure_specs import SERVE, TRAIN, Planned
from twofold.contracts.results.plan import Confidence, Rung
from twofold.planner.sureness import expected_replicas


@pytest.mark.parametrize("asked", ["50 %", "80 %", "90 %"])
def test_rungs_grow_with_confidence_and_the_plans_own_is_the_plan(planned: Planned, asked: str) -> None:
    plan = planned(f"{SERVE}confidence: {asked}\n")
    service, rungs = plan.serving[0], plan.ladder
    confidences = [rung.confidence for rung in rungs]
    assert confidences == sorted({0.5, 0.8, 0.95, float(asked[:2]) / 100})
    own = next(rung for rung in rungs if rung.confidence == float(asked[:2]) / 100)
    assert own.replica_count == service.replica_count - service.spare_count
    assert own.accelerator_count == service.machine.accelerator_count
    assert service.cost_usd_per_year and own.usd_per_year == service.cost_usd_per_year.value
    least = [slo.holds_probability or 0.0 for each in service.classes for slo in each.slos]
    assert own.probability == min(least)
    reached = [rung for rung in rungs if not rung.binds]
    for fewer, more in pairwise(reached):
        assert fewer.replica_count <= more.replica_count and (fewer.usd_per_year or 0) <= (
            more.usd_per_year or 0
        )
    assert all(rung.probability >= rung.confidence for rung in reached if rung is not own)


AGENTS = """
name: a
model: llama-3.1-8b
serving:
  on: 1xH100-SXM
  quantisation: [fp8]
  classes:
    agents:
      traffic: {rate: 20 /s, peak: 2x, input: {mean: 32 ktok}, output: {mean: 300 tok}, shared_prefix: 90 %}
      slo: {ttft_p95: 4 s, tpot_p95: 100 ms}
"""


@pytest.mark.parametrize("asked", ["50 %", "80 %", "95 %"])
def test_a_fleet_that_holds_more_surely_than_asked_is_every_rung(planned: Planned, asked: str) -> None:
    """Fewer replicas than planned were said to be enough for 95 %, below what chance is left."""
    plan = planned(f"{AGENTS}confidence: {asked}\n")
    (service,) = plan.serving
    assert min(slo.holds_probability or 0.0 for each in service.classes for slo in each.slos) > 0.95
    assert {rung.replica_count for rung in plan.ladder} == {service.replica_count - service.spare_count}
    assert len({rung.usd_per_year for rung in plan.ladder}) == 1


def test_a_rung_is_near_what_a_plan_of_that_confidence_takes(planned: Planned) -> None:
    """The machines and the layout stay as they are; a plan may find others, and replicas come whole."""
    rung = next(each for each in planned(SERVE).ladder if each.confidence == 0.5)
    again = planned(f"{SERVE}confidence: 50 %\n").serving[0]
    assert rung.replica_count == pytest.approx(again.replica_count - again.spare_count, rel=0.15)


def test_what_no_replicas_reach_is_said_and_not_bought(planned: Planned) -> None:
    tight = SERVE.replace("ttft_p95: 2 s", "ttft_p95: 800 ms")
    plan = planned(tight)
    (top,) = (rung for rung in plan.ladder if rung.confidence == 0.95)
    assert top.binds == Confidence.NOT_BY_REPLICAS
    assert top.replica_count == plan.serving[0].replica_count - plan.serving[0].spare_count


def test_a_date_is_sooner_sure_with_more_machines(planned: Planned) -> None:
    def rungs(text: str) -> list[Rung]:
        return list(planned(text).ladder)

    half, sure, surest = rungs(TRAIN)
    assert half.accelerator_count == sure.accelerator_count <= surest.accelerator_count
    assert surest.probability >= 0.95
    fixed = rungs(TRAIN.replace("deadline: 21.5 h", "deadline: 21.5 h, on: 4x8xH100-SXM"))
    assert [bool(rung.binds) for rung in fixed] == [False, True, True]
    assert len({rung.accelerator_count for rung in fixed}) == 1


BUSY = """
name: s
model: llama-3.1-8b
serving:
  quantisation: [fp8, bf16]
  classes:
    chat:
      traffic: {rate: 40 /s, peak: 3x, input: {mean: 900 tok, p95: 2500 tok}, output: {mean: 150 tok}}
      slo: {ttft_p95: 800 ms, tpot_p95: 42 ms}
"""
QUOTE = "provider,instance,accelerator,accelerator_count,region,term,usd_per_h,units_max,quoted\n"


@pytest.mark.parametrize(
    ("supply", "gate"),
    [
        ("quotes: FILE", "beyond the COUNT GPUs that few sells so: ask for a quote"),
        ("own: [{node: g6e.xlarge, count: COUNT}]", "beyond your own COUNT: own more, or rent"),
    ],
)
def test_a_rung_beyond_what_there_is_says_whom_to_ask(
    planned: Planned, tmp_path: Path, supply: str, gate: str
) -> None:
    """A quote and your own machines end somewhere: rungs above were priced as if there were more."""

    def ladder(count: int) -> list[Rung]:
        file = tmp_path / f"{count}.csv"
        file.write_text(f"{QUOTE}few,l40s-1,L40S,1,all,on_demand,0.10,{count},2026-11-10\n")
        given = supply.replace("FILE", str(file)).replace("COUNT", f"{count}")
        return list(planned(f"{BUSY}supply: {{{given}, shop: {{accelerators: [L40S]}}}}\n").ladder)

    _, own, top = ladder(1000)
    assert top.accelerator_count > own.accelerator_count and not top.gate
    _, again, beyond = ladder(own.accelerator_count)
    assert (again.accelerator_count, again.gate) == (own.accelerator_count, "")
    assert beyond.gate == gate.replace("COUNT", f"{own.accelerator_count}")


@given(
    middle=st.integers(100, 10_000),
    asked=st.floats(0.6, 0.97),
    deviation=st.floats(0.2, 1.0),
    left=st.floats(0.1, 0.95),
    slope=st.floats(0.05, 0.4),
)
def test_replicas_after_measuring_are_the_mean_of_a_lognormal(
    middle: int, asked: float, deviation: float, left: float, slope: float
) -> None:
    """With so many that rounding up is nothing: E exp(κ(a·s + b·z)) = exp(κ²a²/2 + κ·b·z)."""
    z = NormalDist().inv_cdf(asked)
    before = max(middle + 1, round(middle * exp(slope * z)))
    kappa = log(before / middle) / z
    expected = middle * exp(kappa**2 * (1.0 - left**2) / 2 + kappa * left * z)
    found = expected_replicas(before, middle, asked, deviation, left * deviation)
    assert found == pytest.approx(expected, rel=0.005, abs=1.0)
    assert expected_replicas(before, middle, asked, deviation, deviation) == before
