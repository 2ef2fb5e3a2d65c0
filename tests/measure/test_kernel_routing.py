"""The benchmark's routing keeps its rows, loads one rank most and touches no more experts than it has."""

import pytest

from twofold.measure.kernel_tables import busiest_rank


def test_balanced_routing_gives_every_rank_the_mean() -> None:
    assert busiest_rank(1024, 64, 8, 4, "balanced") == (2048.0, 16.0)


def test_one_rank_gets_all_rows() -> None:
    rows, touched = busiest_rank(4096, 128, 8, 1, "power_law_1.01")
    assert rows == pytest.approx(4096 * 8, rel=0.001)
    assert 100 < touched <= 128


def test_skewed_routing_loads_the_busiest_rank_more_the_more_ranks_share() -> None:
    load = [
        busiest_rank(4096, 128, 8, ranks, "power_law_1.2")[0] / (4096 * 8 / ranks) for ranks in (1, 8, 64)
    ]
    assert load == sorted(load)
    assert load[1] > 1.1


def test_no_expert_gets_a_token_twice() -> None:
    rows, touched = busiest_rank(16384, 8, 2, 8, "power_law_1.2")
    assert rows <= 16384 and touched == 1.0


def test_one_token_touches_its_topk_experts() -> None:
    assert busiest_rank(1, 256, 8, 1, "power_law_1.2") == (8.0, 8.0)
