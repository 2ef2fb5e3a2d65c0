from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from twofold.answer.context import Context
from twofold.answer.serving_choice import ClassLoad, choose_serving, class_load, main_pool, success_of
from twofold.answer.serving_plan import SHARED_POOL, pool_text
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.service import LatencyClass, Service
from twofold.core.estimate import exact
from twofold.perf.constants import Constants


def latency_class(folder: Path | None = None, **traffic: object) -> LatencyClass:
    return LatencyClass.model_validate({"traffic": traffic}, context={"folder": folder})


def test_interactive_traffic_is_carried_at_its_peak() -> None:
    load = class_load("chat", latency_class(rate="40 /s", peak="2.5x"))
    assert (load.mean_rate_per_s, load.peak_per_s, load.traffic.rate_per_s) == (40, 100, 100)
    assert not load.is_batch


def test_work_by_the_day_is_a_mean_rate_and_a_window() -> None:
    given_class = LatencyClass.model_validate(
        {
            "traffic": {
                "tokens_per_day": "864 Mtok",
                "input": {"mean": "900 tok"},
                "output": {"mean": "100 tok"},
            },
            "slo": {"finish_within": "6 h"},
        }
    )
    load = class_load("batch", given_class)
    assert load.mean_rate_per_s == pytest.approx(10.0)
    assert load.peak_per_s == pytest.approx(40.0)  # a day's work in a quarter of it
    assert load.is_batch and load.traffic.rate_per_s == pytest.approx(10.0)


def stated(slo: dict[str, str]) -> LatencyClass:
    return LatencyClass.model_validate({"traffic": {"rate": "1 /s"}, "slo": slo})


def told(name: str, pool: tuple[str, ...], **seconds: float) -> tuple[float | None, bool | None]:
    """What a plan says of whole answers of one class of a pool with these percentiles of first tokens."""
    classes = {
        "chat": stated({"ttft_p95": "1 s", "success": "99 %"}),
        "batch": stated({"finish_within": "6 h"}),
    }
    loads: dict[str, ClassLoad] = {each: class_load(each, spec) for each, spec in classes.items()}
    figures = {f"ttft_{which}": exact(value, "s") for which, value in seconds.items()}
    entry = Service.model_construct(classes=classes)
    found = success_of(loads[name], [loads[each] for each in pool], entry, figures)
    return found.predicted_fraction, found.met


def test_steady_traffic_is_turned_away_where_first_tokens_come_after_the_time_out() -> None:
    assert told("chat", ("chat",), p95=10.0, p99=60.0) == (pytest.approx(0.99), True)
    assert told("chat", ("chat",), p95=60.0, p99=70.0) == (pytest.approx(0.95), False)
    assert told("chat", ("chat",), p95=0.2, p99=0.4) == (1.0, True)
    assert told("chat", ("chat",), p95=0.2, p99=0.2)[1] and not told("chat", ("chat",), p95=1e3, p99=1e3)[1]
    assert told("chat", ("chat",)) == (None, None)


def test_work_of_a_day_waits_for_its_first_token_unless_it_shares_a_pool() -> None:
    assert told("batch", ("batch",), p95=600.0, p99=900.0) == (1.0, True)
    assert not told("batch", ("chat", "batch"), p95=600.0, p99=900.0)[1]


def test_a_trace_brings_its_own_rate_and_lengths(tmp_path: Path) -> None:
    rows = "".join(f"{second},{100 + second % 3},50\n" for second in range(600))
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + rows, "utf-8")
    load = class_load("documents", latency_class(tmp_path, trace="trace.csv", scale="2x"))
    assert load.mean_rate_per_s == pytest.approx(2.0, rel=0.02)
    assert load.traffic.lengths.input_tokens == pytest.approx(101.0)
    assert load.traffic.lengths.output_spread == pytest.approx(0.0, abs=0.02)


def test_two_stocks_of_one_part_are_both_considered(planned: Callable[[str], Plan]) -> None:
    plan = planned("""
name: stocks
model: llama-3.1-8b
serving:
  classes:
    c: {traffic: {rate: 100 /s, peak: 2x, input: 2000 tok, output: 300 tok}, slo: {ttft_p95: 1 s}}
supply: {own: [{node: DGX-H100, count: 8}, {node: a3-highgpu-8g, count: 1}]}
""")
    service = plan.serving[0]
    assert service.machine.node == "DGX-H100" and service.machine.accelerator_count > 8
    assert service.cost_usd_per_year is None  # its own: nothing rented


SHARED = """
name: shared
serving:
  model: llama-3.1-8b
  on: 1x8xH100-SXM
  classes:
    chat:
      traffic: {rate: 4 /s, input: {mean: 700 tok}, output: {mean: 250 tok}}
      slo: {ttft_p95: 2 s, tpot_p95: 60 ms}
    search:
      traffic: {rate: 2 /s, input: {mean: 900 tok}, output: {mean: 200 tok}}
      slo: {ttft_p95: 2 s, tpot_p95: 60 ms}
"""


def test_classes_of_one_pool_say_that_its_replicas_are_counted_once(planned: Callable[[str], Plan]) -> None:
    (service,) = planned(SHARED).serving
    texts = {each.replica_text for each in service.classes}
    assert len(texts) == 1 and f"{SHARED_POOL} chat and search" in texts.pop()
    assert len({each.replica_count for each in service.classes}) == 1
    assert service.replica_count < sum(each.replica_count for each in service.classes) + 2


def test_a_service_is_shown_by_the_pool_that_people_wait_for_and_others_name_their_model(
    catalog: Catalog, constants: Constants
) -> None:
    spec = parse_spec(SHARED, "twofold.yaml")
    context = Context(spec, catalog, constants, draw_factors(constants), None)
    (entry,) = spec.services
    choice = choose_serving(entry, context)
    (pool,) = choice.fleet.pools
    chat = replace(pool, classes=("chat",))
    night = replace(pool, classes=("night",), count=replace(pool.count, needed=99), variant="llama-3.2-1b")
    fleet = replace(choice.fleet, pools=(night, chat))
    assert main_pool(fleet, choice.loads) is chat
    assert pool_text(night, choice).endswith("model llama-3.2-1b")
    assert "model" not in pool_text(chat, choice) and SHARED_POOL not in pool_text(chat, choice)
