"""Quantities follow their laws, and refuse what they cannot be asked."""

import json
import shlex
from math import comb

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.cli.running import twofold
from twofold.core.errors import InfeasibleError, TwofoldError
from twofold.perf.constants import load_constants
from twofold.verdicts.quantities import quoted
from twofold.verdicts.quantities_cluster import (
    left_after_zone,
    passes,
    servers_for,
    stuck_share,
    sum_error,
    wait_share,
)
from twofold.verdicts.quantities_training_run import gpus_for_flops, time_for_flops
from twofold.verdicts.table import load_claims
from twofold.verdicts.verdicts import Judged, Verdict, compute, judge
from twofold.verdicts.world import World

WORLD = World(load_catalog(), load_constants())


def value(text: str) -> float:
    found = compute(text, WORLD)
    assert isinstance(found, (int, float))
    return float(found)


def test_a_storm_of_cold_starts_saturates_one_store() -> None:
    """Fifty replicas of 140 GB from one store of 12 GB/s take nearly ten minutes."""
    assert value("loading_s(140 * GB, 50, 12 * GB)") == pytest.approx(583.3, rel=0.001)


@given(st.floats(0.01, 0.99))
def test_one_server_waits_as_the_textbook_says(utilisation: float) -> None:
    assert wait_share(WORLD, 1, utilisation) == pytest.approx(utilisation / (1 - utilisation))


@given(st.integers(1, 40), st.floats(0.05, 0.95))
def test_a_larger_pool_of_the_same_load_waits_less(servers: int, utilisation: float) -> None:
    assert wait_share(WORLD, servers + 1, utilisation) <= wait_share(WORLD, servers, utilisation)


@given(st.floats(0.5, 60.0), st.sampled_from([0.01, 0.1, 1.0]))
def test_the_fewest_servers_keep_the_wait_and_one_less_does_not(load: float, wait: float) -> None:
    count = servers_for(WORLD, load, wait)
    assert wait_share(WORLD, count, load / count) <= wait
    fewer = count - 1
    assert fewer <= load or wait_share(WORLD, fewer, load / fewer) > wait


@settings(max_examples=25)
@given(st.integers(1, 5), st.data())
def test_blocked_starts_are_those_in_which_no_job_is_whole(needs: int, data: st.DataObject) -> None:
    gpus = data.draw(st.integers(needs, 2 * needs - 1))
    orders = [bits for bits in range(1 << (2 * needs)) if bits.bit_count() == needs]
    first = (1 << gpus) - 1  # the starts that find an accelerator
    whole = sum(
        (bits & first).bit_count() == needs or (~bits & first).bit_count() == needs for bits in orders
    )
    assert len(orders) == comb(2 * needs, needs)
    assert stuck_share(WORLD, gpus, needs) == pytest.approx(1 - whole / len(orders))


@given(st.integers(1, 500), st.integers(1, 12))
def test_a_zone_takes_its_share_and_no_more(replicas: int, zones: int) -> None:
    left = left_after_zone(WORLD, replicas, zones)
    assert left <= replicas * (zones - 1) / zones
    assert left > replicas * (zones - 1) / zones - 1


def test_wider_sums_err_less_and_bf16_stops_growing() -> None:
    errors = [sum_error(WORLD, form, 4096) for form in ("fp32", "fp16", "bf16")]
    assert errors == sorted(errors)
    assert errors[0] < 1e-4
    assert sum_error(WORLD, "bf16", 8192) > sum_error(WORLD, "bf16", 4096)


def test_a_request_passes_once_for_its_prompt_and_once_for_each_further_token() -> None:
    assert passes(WORLD, 1000, 1) == 1
    assert passes(WORLD, 20_000, 200) == 3 + 199


def test_machines_and_time_of_the_same_work_agree() -> None:
    count = gpus_for_flops(WORLD, 1e24, "H100-SXM", 30.0, 0.4)
    assert time_for_flops(WORLD, 1e24, "H100-SXM", count, 0.4) == pytest.approx(30 * 86400)


def test_weights_caches_and_states_are_what_their_formats_count() -> None:
    assert value("weights('llama-3.1-8b')") == pytest.approx(
        2 * value("parameters('llama-3.1-8b')"), rel=0.01
    )
    assert value("training_state('llama-3.1-8b')") == pytest.approx(18 * value("parameters('llama-3.1-8b')"))
    assert value("kv_cache('llama-3.1-70b', 1000)") == 1000 * 327_680
    assert value("kv_cache_without_groups('llama-3.1-70b', 1000)") == 8 * value(
        "kv_cache('llama-3.1-70b', 1000)"
    )


def test_a_batch_shares_one_reading_of_dense_weights_and_touches_more_experts() -> None:
    assert value("weights_read_fraction('llama-3.1-8b', 32)") == 1 / 32
    lone, pair = (value(f"weights_read_fraction('mixtral-8x7b', {batch})") for batch in (1, 2))
    assert lone / 2 < pair < lone


def test_more_requests_need_no_fewer_machines() -> None:
    counts = [value(f"gpus_for_rate('llama-3.1-8b', 'H100-SXM', {rate})") for rate in (1, 10, 100)]
    assert counts == sorted(counts)


def test_a_revoked_order_binds_nobody_nor_what_rests_on_it() -> None:
    assert compute("in_force('EO 14110')", WORLD) is False
    assert compute("in_force('FISMA 2014')", WORLD) is True


def test_rules_weigh_less_on_a_larger_cluster() -> None:
    shares = [value(f"rules_uplift('fedramp-high', {count})") for count in (64, 512, 4096)]
    assert shares == sorted(shares, reverse=True)


def test_a_regime_adds_the_premium_of_its_regions_to_its_items() -> None:
    """At 100,000 accelerators the items weigh little: what is left is the authorised region's price."""
    prices = [each for each in WORLD.catalog.prices_for("H100-SXM5-80GB") if each.term == "on_demand"]
    gov = min(
        (each for each in prices if each.provider == "aws" and each.region.startswith("us-gov")),
        key=lambda each: each.usd_per_accelerator_h,
    )
    same = min(
        each.usd_per_accelerator_h for each in prices
        if each.provider == "aws" and each.instance == gov.instance
    )  # fmt: skip
    premium = gov.usd_per_accelerator_h / same - 1
    assert premium > 0.1
    assert value("rules_uplift('il5', 100000)") > premium
    assert value("rules_uplift('air-gapped', 100000)") < premium


def test_a_record_that_must_be_durable_waits_longer() -> None:
    waits = [value(f"log_wait_s('fedramp-high', '{how}')") for how in ("asynchronous", "synchronous")]
    assert 0 < waits[0] < waits[1]


@pytest.mark.parametrize(
    "text",
    [
        "replicas(1, 0)",
        "train('llama-3.1-8b', 5)",
        "train('llama-3.1-8b', '8xH100-SXM', layout='tp=x')",
        "train('llama-3.1-8b', '8xH100-SXM', layout='foo=1')",
        "train('llama-3.1-8b', '8xH100-SXM', recompute='maybe')",
        "train('llama-3.1-8b', '8xH100-SXM', True)",
        "serve('llama-3.1-8b', '1xL4', concurrency=-1)",
        "serve('llama-3.1-8b', '1xL4', rate=0)",
        "decode_step('llama-3.1-8b', '1xL4', 1.5)",
        "heat_imbalance('L4')",
        "hardware_price('x')",
        "storage('x')",
        "training_gain('llama-3.1-8b', '1x8xH100-SXM', 'magic')",
        "limit('llama-3.1-8b', '1xH100-SXM', quantile='p12')",
        "sum_error('int4', 10)",
        "rack('DGX-H100', 'steam')",
        "gpus_for_flops(1, 'H100-SXM', 0, 1)",
    ],
)
def test_what_cannot_be_asked_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(TwofoldError) as refused:
        compute(text, WORLD)
    assert refused.value.exit_code == 2


def test_a_queue_without_end_has_no_wait() -> None:
    with pytest.raises(InfeasibleError):
        wait_share(WORLD, 2, 1.0)
    assert compute("wait_share(2, 1.0)", WORLD) is None


def test_the_nearer_of_two_regions_answers_first_the_surer_the_farther_the_other() -> None:
    shares = [value(f"nearer_is_faster({km} * thousand)") for km in (100, 1000, 8000)]
    assert 0.5 < shares[0] < shares[1] < shares[2] <= 1.0
    there, back = (
        value(f"distance('{a}', '{b}')")
        for a, b in [("azure:eastus", "azure:japaneast"), ("azure:japaneast", "azure:eastus")]
    )
    assert there == pytest.approx(back) and 1.0e7 < there < 1.2e7


@pytest.mark.parametrize("rate", [1, 1000])
def test_a_pool_that_trains_in_idle_hours_costs_less_down_to_one_without_training(rate: int) -> None:
    def cost(idle: str) -> float:
        return value(f"one_shape_cost('llama-3.1-70b', 8, 'llama-3.1-8b', 0.5, {rate}, {idle})")

    assert cost("0") > cost("0.25") > cost("0.5") >= cost("1e9") > 0
    assert cost("1e9") >= 0.5  # what serving costs on its own best part is left


def test_eight_bits_train_cheaper_where_a_chip_has_units_for_them() -> None:
    def usd(gpu: str, precision: str) -> float:
        return value(f"training_usd_per_mtok('llama-3.1-8b', 1, '{gpu}', precision='{precision}')")

    assert usd("H100-SXM5-80GB", "fp8") < usd("H100-SXM5-80GB", "bf16")
    assert usd("A100-SXM4-80GB", "fp8") >= usd("A100-SXM4-80GB", "bf16")


def test_a_provider_without_prices_is_no_place_to_size_for() -> None:
    with pytest.raises(TwofoldError, match="lists no price"):
        compute("one_provider_cost('nobody', 'llama-3.1-8b', 1, 'llama-3.1-8b', 0.5)", WORLD)


CLAIMS = {claim.id: claim for claim in load_claims()}


@pytest.fixture(scope="module")
def world() -> World:
    return World(load_catalog(), load_constants())


def run(command: str) -> str:
    program, *words = shlex.split(command)
    assert program == "twofold"
    done = CliRunner().invoke(twofold, words, catch_exceptions=False)
    assert done.exit_code == 0, f"{command}\n{done.output}"
    return done.output


def telling(judged: Judged) -> float:
    """The value, in SI units, of the case that the command is about."""
    wanted = judged.verdict == Verdict.HOLDS
    return next(float(str(case.value)) for case in judged.cases if case.holds == wanted)


@pytest.mark.parametrize(
    ("identity", "shown"), [("S0-22", "72"), ("S0-21", "700"), ("S0-28", "14,300"), ("S2-13", "141")]
)
def test_a_figure_of_the_catalogue_is_shown_by_the_catalogue(identity: str, shown: str, world: World) -> None:
    judged = judge(CLAIMS[identity], world)
    assert judged.command.startswith("twofold catalog ")
    assert shown in run(judged.command)


def test_a_step_is_shown_by_estimate_with_the_same_share(world: World) -> None:
    judged = judge(CLAIMS["S4-16"], world)
    assert judged.command.startswith("twofold estimate train ")
    answer = json.loads(run(judged.command + " --json"))
    assert 100 * answer["communication_exposed_fraction"] == pytest.approx(telling(judged), rel=1e-6)


def test_a_load_is_shown_by_estimate_with_the_same_time(world: World) -> None:
    judged = judge(CLAIMS["S0-08"], world)
    assert judged.command.startswith("twofold estimate serve ")
    answer = json.loads(run(judged.command + " --json"))
    assert 1e3 * answer["percentiles"]["tpot_p50"]["value"] == pytest.approx(telling(judged), rel=0.02)


@pytest.mark.parametrize("identity", ["S0-36", "S1-10", "S3-10", "S0-63", "S2-07"])
def test_any_other_figure_is_computed_by_its_expression(identity: str, world: World) -> None:
    judged = judge(CLAIMS[identity], world)
    assert judged.command.startswith("twofold claims --compute ")
    assert run(judged.command).strip()


def test_a_shell_reads_a_quoted_expression_back() -> None:
    for text in ("catalog('L4').tdp_w", 'a "b" c', "it's $5 `x`"):
        assert shlex.split(quoted(text)) == [text]


def test_a_promise_of_none_seconds_is_none() -> None:
    """A limit on the first token alone is never bound by the time per token, and is no lower for it."""
    both = "limit('llama-3.1-70b', '4xH100-SXM', input=2000)"
    first = "limit('llama-3.1-70b', '4xH100-SXM', input=2000, tpot_s=0)"
    assert compute(f"{first}.binding", WORLD) != "tpot_s_p95" == compute(f"{both}.binding", WORLD)
    assert value(f"{first}.requests_per_s") > value(f"{both}.requests_per_s")
    assert value(f"{first}.saturation_per_s") == value(f"{both}.saturation_per_s")
