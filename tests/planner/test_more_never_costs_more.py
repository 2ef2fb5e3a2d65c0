"""More time, money or choice never costs more, and more work never less (metamorphic, over random specs).

Exact where nothing is paid for simplicity; by default within what may be paid for it.
"""

from collections.abc import Callable
from math import inf

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from twofold.contracts.results.plan import Plan
from twofold.core.errors import InfeasibleError

Planned = Callable[[str], Plan]
SUPPLIES = (
    "",
    "providers: [aws]",
    "accelerators: [H100-SXM5-80GB]",
    "accelerators: [H100-SXM5-80GB, H200-SXM5-141GB]",
    "terms: [on_demand]",
    "terms: [reserved_1y]",
)
SIMPLE = {"0 %": 1.0, "10 %": 1.1}  # what may be paid for simplicity, and the most that it can make of a cost
FEW = settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
factors = st.sampled_from([1.1, 2.0, 5.0])
supplies = st.tuples(st.sampled_from(SUPPLIES), st.sampled_from(sorted(SIMPLE)))


def supply(shop: str, simplicity: str) -> str:
    return f"supply: {{simplicity: {simplicity}, shop: {{{shop}}}}}\n"


def run(tokens_m: float, days: float, shop: str, simplicity: str) -> str:
    size = f"tokens: {tokens_m:.6g} Mtok, sequence: 4096 tok, global_batch: 128 seq, deadline: {days:.6g} d"
    return f"name: any\nmodel: llama-3.1-8b\ntraining: {{{size}}}\n{supply(shop, simplicity)}"


def service(model: str, rate: float, zones: int, shop: str, simplicity: str) -> str:
    lengths = "input: {mean: 900 tok, p95: 2500 tok}, output: {mean: 200 tok, p95: 450 tok}"
    chat = f"{{traffic: {{rate: {rate:.6g} /s, {lengths}}}, slo: {{ttft_p95: 1 s, tpot_p95: 60 ms}}}}"
    header = f"name: any\nmodel: {model}\nserving:\n  zones: {zones}\n  classes: {{chat: {chat}}}\n"
    return header + supply(shop, simplicity)


def usd(planned: Planned, text: str) -> float:
    """What the first year costs; infinite where nothing is feasible."""
    try:
        plan = planned(text)
    except InfeasibleError:
        return inf
    assert plan.money
    return plan.money.total_usd


def need_no_dearer(least: float, most: float, simplicity: str) -> None:
    assert least <= most * SIMPLE[simplicity] + 0.01, (least, most)


@FEW
@given(st.sampled_from([300.0, 3e3, 3e4]), st.sampled_from([2.0, 7.0, 30.0]), factors, supplies)
def test_a_run_with_more_time_or_less_to_do_costs_no_more(
    planned: Planned, tokens_m: float, days: float, factor: float, where: tuple[str, str]
) -> None:
    usual = usd(planned, run(tokens_m, days, *where))
    need_no_dearer(usd(planned, run(tokens_m, days * factor, *where)), usual, where[1])
    need_no_dearer(usual, usd(planned, run(tokens_m * factor, days, *where)), where[1])
    need_no_dearer(usd(planned, run(tokens_m, days, "", where[1])), usual, where[1])


@FEW
@given(
    st.sampled_from(["llama-3.1-8b", "qwen3-32b", "gpt-oss-20b"]),
    st.floats(0.2, 80.0),
    st.sampled_from([1, 3]),
    factors,
    supplies,
)
def test_a_service_with_less_to_do_or_more_to_choose_from_costs_no_more(
    planned: Planned, model: str, rate: float, zones: int, factor: float, where: tuple[str, str]
) -> None:
    usual = usd(planned, service(model, rate, zones, *where))
    need_no_dearer(usual, usd(planned, service(model, rate * factor, zones, *where)), where[1])
    need_no_dearer(usd(planned, service(model, rate, zones, "", where[1])), usual, where[1])


@FEW
@given(st.floats(0.2, 80.0), st.sampled_from([1.01, 3.0]), supplies)
def test_a_larger_budget_changes_nothing(
    planned: Planned, rate: float, factor: float, where: tuple[str, str]
) -> None:
    text = service("llama-3.1-8b", rate, 1, *where)
    usual = usd(planned, text)
    assume(usual < inf)
    budget = text.replace("simplicity:", f"budget: {usual * factor + 1:.0f} $, simplicity:")
    assert usd(planned, budget) == usual


def test_what_is_compared_is_feasible(planned: Planned) -> None:
    """Where nothing does it all costs are infinite, and any comparison holds: these are not."""
    for shop in SUPPLIES:
        assert usd(planned, service("llama-3.1-8b", 5.0, 1, shop, "0 %")) < inf, shop
        assert usd(planned, run(300.0, 30.0, shop, "0 %")) < inf, shop


OCI = "providers: [oci], accelerators: [MI300X, L40S, H100-SXM5-80GB]"


def test_a_machine_for_little_to_do_is_found_among_many(planned: Planned) -> None:
    """Only machines of the cheapest bandwidth were searched: large ones, where few come in small."""
    few = usd(planned, service("gpt-oss-20b", 1.9, 1, OCI, "0 %"))
    assert usd(planned, service("gpt-oss-20b", 1.9, 1, "providers: [oci]", "0 %")) <= few < inf


def test_a_run_pays_for_its_file_system_as_long_as_it_lasts(planned: Planned) -> None:
    """Fewer nodes were cheaper to rent, and dearer with what they write to for twice as long."""
    sooner, later = (
        usd(
            planned,
            f"confidence: 90 %\n{run(1e4, days, '', '0 %').replace('{tokens', '{kind: pretrain, tokens')}",
        )
        for days in (1.0, 1.1)
    )
    assert later <= sooner < inf


def test_a_budget_does_not_move_a_run_to_another_row_of_its_machine(planned: Planned) -> None:
    text = run(100.0, 20.0, "terms: [on_demand]", "0 %").replace("{tokens", "{kind: lora, tokens")
    text = text.replace("llama-3.1-8b", "llama-3.1-70b")
    usual = usd(planned, text)
    assert (
        usd(planned, text.replace("simplicity:", f"budget: {1.02 * usual + 1:.0f} $, simplicity:")) == usual
    )
