"""CPU tiers in a plan: their servers, what they add to first tokens, their price, and when they bind."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.answer.tiers import before_replicas, binding
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ClassPlan, TierPlan
from twofold.contracts.spec.reader import parse_spec
from twofold.core.errors import InfeasibleError, InputErrors, TwofoldError
from twofold.inference.stations import station_latency
from twofold.perf.types import one
from twofold.report.details import screen_lines

SPEC = """
name: assistant
confidence: 50 %
model: llama-3.1-8b
serving:
  before:
    lookup: {work: 40 ms, cores: 2, p95: 300 ms}
  classes:
    chat:
      traffic: {rate: 20 /s, peak: 2x, input: {mean: 600 tok}, output: {mean: 150 tok}}
      slo: {ttft_p95: 1500 ms, tpot_p95: 100 ms}
  on: 1xL40S
"""


def chat_of(plan: Plan) -> ClassPlan:
    [chat] = plan.serving[0].classes
    return chat


def tier_of(plan: Plan) -> TierPlan:
    [tier] = plan.serving[0].tiers
    return tier


def without(spec: str) -> str:
    start, end = spec.index("  before:"), spec.index("  classes:")
    return spec[:start] + spec[end:]


def test_the_plan_sizes_a_tier_for_the_peak_and_no_larger(planned: Callable[[str], Plan]) -> None:
    tier = tier_of(planned(SPEC))
    assert tier.peak_per_s == pytest.approx(40.0) and tier.is_sized
    assert tier.p95_s <= tier.goal_s == 0.3 and tier.holds_until_per_s >= 40.0
    fewer = station_latency(40.0, 0.04, 0.12, 2 * (tier.replica_count - 1))
    assert one(fewer.p95_s) > 0.3
    assert tier.utilisation_fraction == pytest.approx(40.0 * 0.04 / (2 * tier.replica_count))
    longer = tier_of(planned(SPEC.replace("40 ms", "80 ms")))
    assert longer.replica_count > tier.replica_count
    assert tier_of(planned(SPEC.replace("work: 40 ms", "rate: 50 /s"))) == tier, "50 /s of 2 cores is 40 ms"


def test_first_tokens_come_later_by_the_tier_and_further_ones_do_not(planned: Callable[[str], Plan]) -> None:
    with_tier, plain = planned(SPEC), planned(without(SPEC))
    ours, theirs, tier = chat_of(with_tier), chat_of(plain), tier_of(with_tier)
    assert ours.replica_count == theirs.replica_count
    for name, figure in ours.percentiles.items():
        gained_s = figure.value - theirs.percentiles[name].value
        if name.startswith("tpot"):
            assert gained_s == pytest.approx(0.0)
        else:
            assert 0.0 < gained_s <= max(tier.mean_s, getattr(tier, f"{name[-3:]}_s")) + 1e-9, name
    parts = {part.name: part.value.value for part in ours.latency_budget}
    assert list(parts)[:3] == ["edge", "gateway", "tier lookup"]
    assert parts["tier lookup"] == pytest.approx(tier.mean_s)
    before = {part.name: part.value.value for part in theirs.latency_budget}
    assert {name: value for name, value in parts.items() if name != "tier lookup"} == pytest.approx(before)
    assert sum(part.share_fraction for part in ours.latency_budget) == pytest.approx(1.0)


def test_a_tier_takes_of_the_goal_what_accelerators_must_make_up(planned: Callable[[str], Plan]) -> None:
    tight = SPEC.replace("1500 ms", "700 ms").replace("p95: 300 ms", "p95: 500 ms, replicas: 2")
    busy, plain = chat_of(planned(tight)), chat_of(planned(without(tight)))
    assert busy.rate_per_replica_per_s.value < plain.rate_per_replica_per_s.value
    assert busy.slos[0].predicted is not None and busy.slos[0].predicted.value <= 0.7


def test_a_tier_that_holds_less_than_the_replicas_is_named_the_bottleneck(
    planned: Callable[[str], Plan],
) -> None:
    busy = SPEC.replace("work: 40 ms", "work: 72 ms")
    scarce, ample = (planned(busy.replace("cores: 2", f"cores: 2, replicas: {count}")) for count in (2, 20))
    assert tier_of(scarce).is_bottleneck and not tier_of(ample).is_bottleneck
    named = [text for text in scarce.serving[0].warnings if "is the bottleneck" in text]
    assert named and "`lookup`" in named[0]
    assert not any("is the bottleneck" in text for text in ample.serving[0].warnings)
    shown = "\n".join(screen_lines(scarce, "SPEC", full=False, details=True, money=False, defaults=False))
    assert "bottleneck" in shown and "tier lookup" in shown


def test_too_few_servers_are_refused_with_how_many_would_do(planned: Callable[[str], Plan]) -> None:
    with pytest.raises(InfeasibleError) as caught:
        planned(SPEC.replace("cores: 2", "cores: 2, replicas: 1"))
    assert "CPU tier `lookup` is the bottleneck" in caught.value.message
    needed = tier_of(planned(SPEC)).replica_count
    assert ("would fit", f"replicas: {needed}") in caught.value.lines


def test_a_tier_that_takes_all_the_time_of_a_class_is_named(planned: Callable[[str], Plan]) -> None:
    with pytest.raises(InfeasibleError, match="leave class `chat` no time"):
        planned(SPEC.replace("1500 ms", "100 ms"))


def test_fewer_places_than_cores_are_fewer_at_work(planned: Callable[[str], Plan]) -> None:
    wide, narrow = (
        tier_of(planned(SPEC.replace("cores: 2", f"cores: 2{more}"))) for more in ("", ", limit: 1")
    )
    assert narrow.in_flight_limit == 1 and narrow.replica_count >= 2 * wide.replica_count - 1
    assert narrow.place_count == narrow.replica_count


def test_a_processor_without_a_price_has_none_and_what_is_no_processor_is_refused(
    planned: Callable[[str], Plan],
) -> None:
    named = planned(SPEC.replace("cores: 2", "cores: 2, on: EPYC-9654"))
    assert tier_of(named).usd_per_core_h is None
    assert any("no price for the CPU servers of lookup" in text for text in named.serving[0].warnings)
    with pytest.raises(TwofoldError, match="is no processor") as caught:
        planned(SPEC.replace("cores: 2", "cores: 2, on: L40S"))
    assert caught.value.exit_code == 2
    with pytest.raises(TwofoldError, match="has 96"):
        planned(SPEC.replace("cores: 2", "cores: 200, on: EPYC-9654"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("work: 40 ms", "work: 40 ms, rate: 3 /s", "gives `work` and `rate`"),
        ("work: 40 ms, ", "", "says no amount"),
        ("p95: 300 ms", "p95: 100 ms", "free core"),
        ("work: 40 ms", "work: 40 ms, work_p95: 10 ms", "below the mean"),
        ("p95: 300 ms", "p95: 300 ms, urls: ['ftp://h']", "no URL"),
        ("p95: 300 ms", "p95: 300 ms, replicas: 2, urls: ['http://h:1/a']", "names 1"),
        ("cores: 2", "cores: 0", "is zero"),
        ("cores: 2", "cores: 2, places: 3", "places"),
    ],
)
def test_a_tier_that_contradicts_itself_is_refused_at_its_place(old: str, new: str, says: str) -> None:
    assert old in SPEC
    with pytest.raises(InputErrors) as caught:
        parse_spec(SPEC.replace(old, new), "s.yaml")
    said = " ".join(f"{each} {each.hint}" for each in caught.value.errors)
    assert caught.value.exit_code == 2 and says in said and "s.yaml:" in said


def test_only_what_binds_first_is_marked() -> None:
    one_tier = TierPlan("a", 1, 1, 1, 10, 10.0, 0.1, 0.3, 0.1, 0.1, 0.3, 0.4, 0.5, 15.0, 0.5, is_sized=False)
    tiers = one_tier, replace(one_tier, name="b", holds_until_per_s=12.0)
    assert [each.is_bottleneck for each in binding(tiers, 1.4)] == [False, True]
    assert [each.is_bottleneck for each in binding(tiers, 1.1)] == [False, False]
    whole = before_replicas(tiers)
    assert whole is not None and one(whole.mean_s) == pytest.approx(0.2)
    assert before_replicas(()) is None and binding((), 1.0) == ()
