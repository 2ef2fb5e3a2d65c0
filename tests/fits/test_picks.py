"""What a wrong prediction costs, on workloads small enough to reckon by hand."""

import math

import pytest

from fits.picks import FEWEST, Configuration, crossed, lines_of_picks, picked


def workload(*, bias: float, high: float = 1.2) -> list[Configuration]:
    """Eight sizes of batch: TPOT 4, 8, … 32 ms, throughput rising with it; predicted `bias` times as long."""
    each = [(4.0 * step, 100.0 * step) for step in range(1, FEWEST + 1)]
    return [Configuration(tpot, rate, bias * tpot, bias * high * tpot, rate / bias) for tpot, rate in each]


def test_a_true_prediction_breaks_nothing_and_loses_nothing() -> None:
    row = picked([workload(bias=1.0)], 20)
    assert row.workload_count == 1 and set(row.broken_fraction.values()) == {0.0}
    assert row.lost_fraction["usual"] == 0.0
    assert row.lost_fraction["sure"] == pytest.approx(1 - 4 / 5)  # 16 ms × 1.2 keeps it, 20 ms does not


def test_a_prediction_that_is_too_fast_breaks_the_limit_and_its_range_may_save_it() -> None:
    row = picked([workload(bias=0.85)], 21)  # 24 ms is predicted as 20.4, 20 ms as 17 and at most 20.4
    assert row.broken_fraction["usual"] == 1.0 and math.isnan(row.lost_fraction["usual"])
    assert (row.broken_fraction["sure"], row.lost_fraction["sure"]) == (0.0, 0.0)
    assert (row.broken_fraction["weighed"], row.lost_fraction["weighed"]) == (0.0, 0.0)


def test_the_weighed_rule_leaves_a_little_for_a_limit_that_is_likelier_kept() -> None:
    close = Configuration(19.0, 110.0, 19.9, 25.0, 110.0)  # within 20 ms as likely as not
    clear = Configuration(14.0, 100.0, 14.0, 17.0, 100.0)
    assert close.worth("usual", 20) > clear.worth("usual", 20)
    assert close.worth("weighed", 20) < clear.worth("weighed", 20)
    assert close.worth("sure", 20) == 0.0
    assert Configuration(14.0, 100.0, 21.0, 22.0, 100.0).worth("weighed", 20) == 0.0


def test_a_limit_that_all_or_none_keep_is_no_choice() -> None:
    assert picked([workload(bias=1.0)], 3).workload_count == 0
    assert picked([workload(bias=1.0)], 40).workload_count == 0


def test_without_the_figures_there_is_no_table() -> None:
    assert lines_of_picks({}) == []


def test_each_half_of_the_sources_is_picked_by_the_rule_that_the_other_chose() -> None:
    right = {(name, "m"): workload(bias=1.0, high=1.5) for name in "ac"}
    fast = {(name, "m"): workload(bias=0.85) for name in "bd"}
    careless, careful = crossed({**right, **fast})
    assert (careless.chosen_on, careless.scored_on) == (("a", "c"), ("b", "d"))
    assert careless.rule == "usual" and careless.there == (
        0.0,
        0.0,
    )  # to believe costs nothing where it is true
    assert careless.elsewhere == careless.believed and careless.believed[0] > 0
    assert careful.scored_on == ("a", "c") and careful.there[0] < careless.elsewhere[0]
    assert careful.elsewhere[0] == 0.0 < careful.elsewhere[1]


def test_one_source_alone_chooses_for_nobody() -> None:
    assert crossed({("a", "m"): workload(bias=1.0)}) == []
