"""What a gate believes follows from the load that the plan expects, not from the largest batch of memory."""

from dataclasses import replace
from functools import cache

import pytest

from twofold.answer.context import Context
from twofold.answer.serving_choice import choose_serving
from twofold.answer.serving_plan import service_plan
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.serving import Pool, ServicePlan
from twofold.contracts.spec.reader import parse_spec
from twofold.gating.beliefs import MetLoad, half_full, in_flight_limit, planned_load, replica_beliefs
from twofold.inference.replica import Replica
from twofold.inference.table import ServiceTable
from twofold.perf.constants import load_constants

SPEC = """\
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  on: 1xL4
  classes:
    chat:
      traffic: {rate: 2 /s, input: 500 tok, output: {mean: 100 tok, p95: 350 tok}}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
"""


@cache
def made() -> tuple[ServicePlan, Pool, Replica, ServiceTable]:
    catalog, constants = load_catalog(), load_constants()
    context = Context(parse_spec(SPEC, "s.yaml"), catalog, constants, draw_factors(constants, 8, 0), None)
    choice = choose_serving(context.spec.services[0], context)
    plan, replica = service_plan(choice, context), choice.fleet.pools[0].replica
    return plan, plan.pools[0], replica, ServiceTable.of(replica)


def test_a_token_takes_longer_beside_more_neighbours_and_never_less_than_alone() -> None:
    _, _, replica, table = made()
    batches = (1.0, 4.0, 16.0, table.max_batch)
    found = [replica_beliefs(replica, table, MetLoad(batch, 600.0)).output_token_s for batch in batches]
    assert found == sorted(found) and found[0] > 0
    assert replica_beliefs(replica, table, MetLoad(0.0, 600.0)).output_token_s == found[0]
    assert replica_beliefs(replica, table, MetLoad(10 * table.max_batch, 600.0)).output_token_s == found[-1]


def test_the_batch_is_littles_law_at_the_peak_whatever_memory_allows() -> None:
    plan, pool, _, table = made()
    met, chat = planned_load(plan, pool, table), plan.classes[0]
    decode_s = sum(part.value.value for part in chat.latency_budget if part.name == "decode")
    needed = pool.replica_count - pool.spare_count
    assert met.batch_sequences == pytest.approx(1.0 + chat.peak_per_s * decode_s / needed)
    assert met.batch_sequences < half_full(table).batch_sequences
    assert chat.input_tokens is not None and met.context_tokens > chat.input_tokens
    roomy = replace(table, max_batch=10.0 * table.max_batch)
    assert planned_load(plan, pool, roomy) == met
    busier = replace(plan, classes=(replace(chat, peak_per_s=2.0 * chat.peak_per_s),))
    assert planned_load(busier, pool, table).batch_sequences == pytest.approx(2 * met.batch_sequences - 1)


def test_what_the_plan_does_not_know_is_met_half_full() -> None:
    plan, pool, _, table = made()
    untold = replace(plan, classes=(replace(plan.classes[0], output_tokens=None),))
    assert planned_load(untold, pool, table) == half_full(table)


def test_a_replica_is_sent_no_more_than_two_batches_and_never_nothing() -> None:
    plan, pool, _, _ = made()
    assert in_flight_limit(plan, pool, 2.0) <= 4
    assert in_flight_limit(plan, replace(pool, rate_per_replica_per_s=0.0), 64.0) == 1
