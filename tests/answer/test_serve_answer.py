"""The answer to a serving question: sums, tables, limits and money."""

from dataclasses import replace

import pytest

from twofold.answer.question import Variation, given
from twofold.answer.quick_serve import ServingQuestion
from twofold.answer.serve_answer import ServingEstimate, ServingTables, estimate_serving
from twofold.catalog.catalog import Catalog
from twofold.core.estimate import Estimate
from twofold.perf.constants import Constants

ALL = ServingTables(frozenset({"formats", "layouts", "switches"}), (1, 2, 4))


@pytest.fixture(params=["llama-3.1-70b", "deepseek-v3"])
def asked(request: pytest.FixtureRequest, catalog: Catalog, constants: Constants) -> ServingQuestion:
    machines = given("8xH200", catalog, constants, Variation(price_usd_per_h=3.0))
    model = catalog.model(request.param)
    return ServingQuestion(model, machines, 1000, 200, concurrency=32, weights_format="fp8")


@pytest.fixture
def answer(asked: ServingQuestion, constants: Constants) -> ServingEstimate:
    return estimate_serving(asked, constants, ALL)


def middle(estimate: Estimate | None) -> float:
    assert estimate
    return estimate.value


def test_parts_add_up(answer: ServingEstimate) -> None:  # INV-1
    held = sum(part.value.value for part in answer.memory_parts)
    assert held == pytest.approx(answer.memory_capacity_bytes)
    step = sum(part.value.value for part in answer.step_parts)
    assert step == pytest.approx(answer.step_s.value)
    for parts in (answer.memory_parts, answer.step_parts, answer.latency_budget, answer.cold_start_parts):
        assert sum(part.share_fraction for part in parts) == pytest.approx(1)
    start = sum(part.value.value for part in answer.cold_start_parts)
    assert start == pytest.approx(answer.cold_start_s.value)


def test_percentiles_rise_and_add_up_to_the_answer(answer: ServingEstimate) -> None:
    at = answer.percentiles
    for metric in ("ttft", "tpot", "e2e"):
        values = [at[f"{metric}_{quantile}"].value for quantile in ("p50", "p95", "p99")]
        assert values == sorted(values)
    assert at["e2e_p50"].value == pytest.approx(at["ttft_p50"].value + 199 * at["tpot_p50"].value, rel=0.05)


def test_rates_per_device_and_dollars_follow_from_the_whole(answer: ServingEstimate) -> None:
    tokens = answer.output_tokens_per_s
    assert answer.output_tokens_per_s_per_accelerator.value == pytest.approx(tokens.value / 8)
    assert tokens.value == pytest.approx(answer.requests_per_s.value * 200)
    assert middle(answer.usd_per_1k_output_tokens) == pytest.approx(8 * 3.0 / 3600 / tokens.value * 1e3)
    assert answer.output_tokens_per_j.value == pytest.approx(tokens.value / answer.power_w.value)
    idle_w, most_w = 8 * 75.0, 8 * 700.0
    assert idle_w <= answer.power_w.value <= most_w


def test_clients_are_where_littles_law_says(answer: ServingEstimate) -> None:
    """32 clients in a closed loop: requests/s times the time of one is 32."""
    mean_s = sum(part.value.value for part in answer.latency_budget[2:])  # queue, prefill, decode
    assert answer.requests_per_s.value * mean_s == pytest.approx(32, rel=0.02)


def test_the_chosen_layout_leads_the_table(answer: ServingEstimate) -> None:
    first = answer.layouts[0]
    replica = answer.replica
    assert (first.tp, first.pp, first.ep, first.dp) == (replica.tp, replica.pp, replica.ep, replica.dp)
    assert middle(first.tpot_s) == pytest.approx(answer.percentiles["tpot_p50"].value)
    fitting = [row for row in answer.layouts if row.fits]
    assert all(row.max_sequences >= 1 for row in fitting)


def test_the_asked_format_is_a_row_of_the_table(answer: ServingEstimate) -> None:
    row = next(row for row in answer.formats if row.weights_format == "fp8")
    assert row.weights_bytes == answer.weights_bytes
    assert middle(row.output_tokens_per_s) == pytest.approx(answer.output_tokens_per_s.value)
    assert middle(row.usd_per_1k_output_tokens) == pytest.approx(middle(answer.usd_per_1k_output_tokens))


def test_the_paged_cache_is_the_plain_one(answer: ServingEstimate) -> None:
    paged = next(row for row in answer.switches if row.name == "paged")
    held = {row.name: row.max_sequences for row in answer.switches}
    assert held["contiguous"] < held["paged"] < held["8-bit cache"]
    assert held["half the prompt shared"] > held["paged"] < held["offloaded to the host"]
    assert paged.ratio == 1
    assert paged.max_sequences == pytest.approx(answer.max_sequences.value)


def test_one_replica_is_the_answer_itself(answer: ServingEstimate) -> None:
    assert answer.replicas[0].requests_per_s.value == pytest.approx(answer.requests_per_s.value)
    assert answer.replicas[0].efficiency_fraction == 1


def test_a_given_rate_has_no_range(asked: ServingQuestion, constants: Constants) -> None:
    answer = estimate_serving(replace(asked, concurrency=None, rate_per_s=2.0), constants)
    rate = answer.requests_per_s
    assert rate.low == rate.value == rate.high == 2.0
    assert answer.percentiles["ttft_p95"].low < answer.percentiles["ttft_p95"].high


def test_scales_are_what_a_format_takes_over_its_digits(asked: ServingQuestion, constants: Constants) -> None:
    wide = estimate_serving(asked, constants)
    assert wide.scales_bytes == 0  # one scale per tensor
    narrow = estimate_serving(replace(asked, weights_format="int4"), constants)
    digits = narrow.weights_bytes - narrow.scales_bytes
    assert narrow.scales_bytes / digits == pytest.approx((4 / 128) / 0.5, rel=0.3)  # embeddings have none
    assert sum(p.value.value for p in narrow.memory_parts if p.name == "scales") > 0
