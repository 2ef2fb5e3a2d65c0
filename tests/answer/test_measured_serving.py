import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist

import pytest

from twofold.answer.paths import is_estimate, leaves
from twofold.contracts.results.plan import Confidence, Plan
from twofold.contracts.rows.measured_rows import read_service_rows
from twofold.core.data import to_data
from twofold.core.errors import FileError, InfeasibleError, InputError, TableError, ValueRefusedError
from twofold.inference.measured import MeasuredService

Planned = Callable[[str], Plan]


def spec(path: Path, goal: str = "300 ms", on: str = "  on: 1xL40S\n") -> str:
    return f"""
name: vision
serving:
  name: embed
  model: {{measured: {path}}}
  classes:
    images: {{traffic: {{rate: 100 /s, peak: 2x}}, slo: {{e2e_p95: {goal}}}}}
{on}"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("batch_size,service_s\n1,0.010\n8,0.040\n32,0.120\n", "utf-8")
    return path


def test_measured_batches_become_replicas_within_the_goal(planned: Planned, rows: Path) -> None:
    service = planned(spec(rows)).serving[0]
    images = service.classes[0]
    assert images.slos[0].met and images.peak_per_s == 200
    assert images.rate_per_replica_per_s.value <= 32 / 0.120
    assert service.cost_usd_per_year and service.machine.accelerator == "L40S"
    assert images.percentiles["e2e_p95"].source.value == "m"


def test_a_tighter_goal_takes_more_replicas(planned: Planned, rows: Path) -> None:
    loose, tight = (planned(spec(rows, goal)).serving[0].replica_count for goal in ("2 s", "40 ms"))
    assert tight > loose


def test_its_numbers_have_derivations_too(planned: Planned, rows: Path) -> None:
    data = to_data(planned(spec(rows)))
    known = {row["path"] for row in data["derivations"]}
    assert [path for path, leaf in leaves(data) if is_estimate(leaf) and path not in known] == []


@pytest.mark.parametrize("sure", [50, 95])
def test_counts_of_a_class_are_recomputed_from_the_numbers_of_their_formulas(
    planned: Planned, wide: Path, sure: int
) -> None:
    text = goals(wide, "e2e_p99: 100 ms").replace("rate: 100 /s", "rate: 4000 /s")
    plan = planned(f"{text}confidence: {sure} %\n")
    (images,) = plan.serving[0].classes
    told = {row.path.rpartition(".")[2]: row for row in plan.derivations if ".classes.images." in row.path}
    numbers = re.findall(r"[\d,.]+\d", told["holds_until_per_s"].formula)
    count, rate_per_s = (float(each.replace(",", "")) for each in numbers)
    assert count == images.replica_count
    assert count * rate_per_s == pytest.approx(images.holds_until_per_s.value, rel=1e-5)
    formula = told["replica_count"].formula
    found = re.search(r"⌈([\d,.]+) / \(([\d,.]+) × ([\d,.]+)\)⌉$", formula)
    assert found
    peak, filled, carried = (float(each.replace(",", "")) for each in found.groups())
    assert peak == images.peak_per_s and carried == rate_per_s
    middle = math.ceil(peak / (filled * carried))
    if sure == 50:
        assert middle == images.replica_count
    else:  # the fewest with which the goal holds so surely, and more than the middle takes
        chances = [float(each) / 100 for each in re.findall(r"([\d.]+) %", formula)]
        assert chances[0] == 0.95 and chances[1] >= 0.95 > chances[2]
        for replicas, chance in zip((count, count - 1), chances[1:], strict=True):
            assert chance_by_hand(wide, 0.1, peak / replicas) == pytest.approx(chance, abs=0.02)
        assert middle < images.replica_count
    labels = {
        row: [each.label for each in told[row].inputs] for row in ("replica_count", "holds_until_per_s")
    }
    assert labels["holds_until_per_s"] == ["replicas", "rate per replica"]
    assert labels["replica_count"][:2] == ["peak", "filled"]
    assert told["holds_until_per_s"].inputs[0].path == told["replica_count"].path


def test_a_goal_below_one_batch_is_infeasible(planned: Planned, rows: Path) -> None:
    with pytest.raises(InfeasibleError, match="embed"):
        planned(spec(rows, "5 ms"))


def test_machines_must_be_named(planned: Planned, rows: Path) -> None:
    with pytest.raises(ValueRefusedError, match="not where"):
        planned(spec(rows, on=""))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "measured rows need the columns `batch_size` and `service_s`"),
        ("batch_size,service_s\n1,x\n", "2:3: error[E-table]: `x` is not a number above 0"),
        ("batch_size,service_s\n", "no measured rows"),
    ],
)
def test_bad_rows_name_their_place(planned: Planned, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as caught:
        planned(spec(path))
    errors = getattr(caught.value, "errors", [caught.value])
    assert all(isinstance(error, TableError) for error in errors)
    assert says in "\n".join(map(str, errors))


def test_a_missing_file_is_an_input_error(planned: Planned, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        planned(spec(tmp_path / "none.csv"))


def test_work_by_the_day_says_when_it_is_done(planned: Planned, rows: Path) -> None:
    day = "images: {traffic: {tokens_per_day: 10 Gtok, input: 900 tok, output: 100 tok}"
    promised = "slo: {finish_within: 6 h}}"
    head = spec(rows).split("    images")[0]
    images = planned(f"{head}    {day}, {promised}\n  on: 1xL40S\n").serving[0].classes[0]
    (promise,) = images.slos
    assert promise.metric == "finish_within" and promise.met
    requests_a_day = 10e9 / 1000
    carried_per_s = images.replica_count * 0.98 * 32 / 0.120  # the most that is planned with
    assert promise.predicted.value == pytest.approx(requests_a_day / carried_per_s, rel=0.01)


def test_what_rows_do_not_hold_is_null_and_never_nought(planned: Planned, rows: Path) -> None:
    service = to_data(planned(spec(rows)))["serving"][0]
    unknown = [
        "parameters", "memory_bytes", "kv_bytes_per_token", "kv_utilisation_fraction", "batch_limit",
        "cold_start_s", "warm_pool_count", "output_tokens_per_s_per_accelerator", "output_tokens_per_j",
        "peak_ratio", "communication_exposed_fraction", "pooling_loss_fraction", "network_bytes_per_token",
        "all_to_all_bytes_per_token",
    ]  # fmt: skip
    assert {name: service[name] for name in unknown} == dict.fromkeys(unknown)
    layout = [service["replica"][name] for name in ("tp", "pp", "ep", "dp", "weights_format", "engine")]
    assert layout == [None] * 6
    images = service["classes"][0]
    lengths = "input_tokens", "output_tokens", "knee_per_s", "usd_per_1k_output_tokens"
    assert [images[name] for name in lengths] == [None] * 4
    assert [path for path, leaf in leaves(service) if is_estimate(leaf) and leaf["value"] == 0] == []


def test_tokens_have_a_cost_where_the_spec_says_their_number(planned: Planned, rows: Path) -> None:
    said = spec(rows).replace("rate: 100 /s", "rate: 100 /s, input: 9 tok, output: 7 tok")
    service = planned(said).serving[0]
    images = service.classes[0]
    assert (images.input_tokens, images.output_tokens) == (9, 7)
    assert service.cost_usd_per_year and images.usd_per_1k_output_tokens
    tokens_per_y = 100 * 7 * 365 * 86400
    paid = images.usd_per_1k_output_tokens.value * tokens_per_y / 1e3
    assert paid == pytest.approx(service.cost_usd_per_year.value)


def goals(path: Path, slo: str) -> str:
    return spec(path).replace("slo: {e2e_p95: 300 ms}", f"slo: {{{slo}}}")


def test_each_goal_is_judged_on_its_own_quantile(planned: Planned, rows: Path) -> None:
    images = planned(goals(rows, "e2e_p50: 100 ms, e2e_p95: 300 ms, e2e_p99: 1 s")).serving[0].classes[0]
    assert [(slo.metric, slo.limit_s) for slo in images.slos] == [
        ("e2e_p50", 0.1),
        ("e2e_p95", 0.3),
        ("e2e_p99", 1.0),
    ]
    assert all(slo.met and slo.predicted == images.percentiles[slo.metric] for slo in images.slos)


def test_a_loose_median_does_not_size_the_fleet_of_a_tail(planned: Planned, rows: Path) -> None:
    tight = planned(goals(rows, "e2e_p99: 30 ms")).serving[0].replica_count
    mixed = planned(goals(rows, "e2e_p50: 50 ms, e2e_p99: 2 s")).serving[0].replica_count
    smallest = planned(goals(rows, "e2e_p50: 50 ms")).serving[0].replica_count
    assert mixed == smallest < tight


WIDE = """batch_size,service_s
1,0.010
1,0.014
8,0.040
8,0.056
32,0.120
32,0.168
"""


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    path = tmp_path / "wide.csv"
    path.write_text(WIDE, "utf-8")
    return path


def chance_by_hand(path: Path, goal_s: float, rate_per_s: float) -> float:
    """Of 400 further runs at even quantiles, the share that keeps an E2E p99, by the latency of each."""
    service = MeasuredService.of(read_service_rows(path))
    normal, held = NormalDist(), 0
    for index in range(400):
        z = normal.inv_cdf((index + 0.5) / 400) / normal.inv_cdf(0.9)
        latency = service.slowed(service.spread_factor**z).latency(rate_per_s)
        assert latency is not None
        held += float(latency.p99_s) <= goal_s
    return held / 400


@pytest.mark.parametrize("goal_s", [0.1, 10.0])
def test_a_service_is_as_large_as_its_confidence_asks(planned: Planned, wide: Path, goal_s: float) -> None:
    """Rows differ between runs: who asks to be surer pays for more, and no more than that takes."""
    counts = []
    for sure in (0.5, 0.9, 0.99):
        text = goals(wide, f"e2e_p99: {goal_s} s").replace("rate: 100 /s", "rate: 4000 /s")
        plan = planned(f"{text}confidence: {100 * sure:g} %\n")
        (service,) = plan.serving
        (images,) = service.classes
        rungs = {rung.confidence: rung for rung in plan.ladder if rung.name == service.name}
        assert set(rungs) == {0.5, 0.8, 0.95, sure}
        own = rungs[sure]
        assert own.probability == images.slos[0].holds_probability >= sure
        assert own.replica_count == images.replica_count
        assert service.cost_usd_per_year and own.usd_per_year == service.cost_usd_per_year.value
        taken = [rung.replica_count for _, rung in sorted(rungs.items())]
        assert taken == sorted(taken)
        by_hand = chance_by_hand(wide, goal_s, 8000 / own.replica_count)
        assert own.probability == pytest.approx(by_hand, abs=0.02)
        if own.replica_count > rungs[0.5].replica_count:
            assert chance_by_hand(wide, goal_s, 8000 / (own.replica_count - 1)) <= sure + 0.01
        counts.append(own.replica_count)
    assert counts[0] < counts[1] < counts[2]


def test_a_goal_holds_below_the_peak_too_where_larger_batches_are_faster(
    planned: Planned, tmp_path: Path
) -> None:
    """At the peak batches are large and fast; at half of it they are of the slow size between."""
    path = tmp_path / "falling.csv"
    path.write_text("batch_size,service_s\n1,0.010\n8,0.060\n32,0.020\n", "utf-8")
    text = goals(path, "e2e_p95: 70 ms").replace("rate: 100 /s", "rate: 3000 /s")
    (plan,) = planned(f"{text}confidence: 50 %\n").serving
    (images,) = plan.classes
    service = MeasuredService.of(read_service_rows(path))
    at_peak = images.peak_per_s / images.replica_count
    for share in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0):
        met = service.latency(share * at_peak)
        assert met is not None and images.slos[0].met and float(met.p95_s) <= 0.070
    told = [each for each in plan.warnings if "less load may answer later" in each]
    assert told == [
        "`service_s` of a batch of 32 is 20 ms, of 8 60 ms: less load may answer later, so that goals are "
        "judged at every rate up to the peak"
    ]


def test_work_by_the_day_is_as_sure_as_is_asked(planned: Planned, wide: Path) -> None:
    """One chance on every line, and more replicas where more are asked for."""
    day = "images: {traffic: {tokens_per_day: 100 Gtok, input: 900 tok, output: 100 tok}"
    text = f"{spec(wide).split('    images')[0]}    {day}, slo: {{finish_within: 6 h}}}}\n  on: 1xL40S\n"
    plans = {sure: planned(f"{text}confidence: {sure} %\n") for sure in (50, 99)}
    for sure, plan in plans.items():
        (images,) = plan.serving[0].classes
        assert plan.confidence and not plan.confidence.not_reached
        (rung,) = (each for each in plan.ladder if each.confidence == sure / 100)
        assert rung.probability == images.slos[0].holds_probability >= sure / 100 and not rung.binds
    assert plans[50].serving[0].replica_count < plans[99].serving[0].replica_count


def test_what_no_number_of_replicas_makes_surer_is_said(planned: Planned, wide: Path) -> None:
    """A request alone takes 12 ms of 14: in some further runs it takes longer, on however many replicas."""
    plan = planned(goals(wide, "e2e_p50: 14 ms") + "confidence: 80 %\n")
    rungs = [each for each in plan.ladder if each.name == plan.serving[0].name]
    assert {each.confidence: each.binds for each in rungs} == {
        0.5: "",
        0.8: Confidence.NOT_BY_REPLICAS,
        0.95: Confidence.NOT_BY_REPLICAS,
    }
    assert all(0.5 < each.probability < 0.8 for each in rungs)


def test_a_rung_beyond_machines_of_ones_own_says_so(planned: Planned, wide: Path) -> None:
    text = goals(wide, "e2e_p99: 100 ms").replace("rate: 100 /s", "rate: 1500 /s")
    owned = planned(f"{text}confidence: 60 %\nsupply: {{own: [{{accelerator: L40S, count: 40}}]}}\n")
    assert owned.serving[0].machine.price is None
    more = [each for each in owned.ladder if each.accelerator_count > 40]
    assert more and all("beyond your own 40" in each.gate for each in more)


def test_goals_that_the_rows_cannot_judge_say_so(planned: Planned, rows: Path) -> None:
    service = planned(goals(rows, "ttft_p95: 300 ms, tpot_p95: 1 us")).serving[0]
    first, gap = service.classes[0].slos
    assert first.metric == "ttft_p95" and first.met  # not before the end of the answer
    assert (gap.metric, gap.predicted, gap.met) == ("tpot_p95", None, None)
    said = " ".join(service.warnings)
    assert "TTFT p95 of images" in said and "`ttft_s`" in said
    assert "TPOT p95 of images" in said and "`tpot_s`" in said


def test_rows_with_first_outputs_and_gaps_judge_them(planned: Planned, tmp_path: Path) -> None:
    path = tmp_path / "speech.csv"
    path.write_text("batch_size,service_s,ttft_s,tpot_s\n1,0.5,0.05,0.01\n32,1.2,0.1,0.02\n", "utf-8")
    service = planned(goals(path, "ttft_p95: 2 s, tpot_p95: 21 ms, e2e_p99: 9 s")).serving[0]
    images = service.classes[0]
    assert all(slo.met and slo.predicted for slo in images.slos)
    assert images.percentiles["ttft_p95"].value < images.percentiles["e2e_p95"].value
    assert images.percentiles["tpot_p99"].value <= 0.02
    assert not any("measure `" in text for text in service.warnings)


def test_a_refusal_names_every_goal_that_a_lone_request_misses(planned: Planned, rows: Path) -> None:
    with pytest.raises(InfeasibleError) as caught:
        planned(goals(rows, "e2e_p50: 1 s, e2e_p99: 5 ms, ttft_p95: 4 ms"))
    said = [text for _, text in caught.value.lines]
    assert len(said) == 2 and said[0].startswith("TTFT p95") and said[1].startswith("E2E p99")


def test_a_service_s_times_and_rates_have_the_spread_of_its_rows(planned: Planned, tmp_path: Path) -> None:
    once, often = tmp_path / "once.csv", tmp_path / "often.csv"
    once.write_text("batch_size,service_s\n1,0.010\n32,0.120\n", "utf-8")
    often.write_text("batch_size,service_s\n" + "1,0.010\n1,0.0101\n32,0.120\n32,0.1205\n" * 2, "utf-8")
    assumed, measured = (planned(spec(path)).serving[0] for path in (once, often))
    for service in (assumed, measured):
        images = service.classes[0]
        figures = [*images.percentiles.values(), images.rate_per_replica_per_s, images.holds_until_per_s]
        assert all(each.low < each.value < each.high for each in figures)
    wide, narrow = (each.classes[0].percentiles["e2e_p50"] for each in (assumed, measured))
    assert wide.high / wide.low > 1.08 > narrow.high / narrow.low
    assert [any("repeated rows" in text for text in each.warnings) for each in (assumed, measured)] == [
        True,
        False,
    ]


def test_a_full_fleet_stays_finite_though_a_slower_run_would_not_carry_it(
    planned: Planned, rows: Path
) -> None:
    images = planned(goals(rows, "e2e_p95: 1 d")).serving[0].classes[0]
    assert all(0 < each.low <= each.value <= each.high < 1e6 for each in images.percentiles.values())
