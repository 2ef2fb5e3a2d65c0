import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.cluster import TeamQuota
from twofold.policy.cluster.fair_share import IDLE_TEAMS_MAX, Teams, TeamUse


@given(st.lists(st.tuples(st.floats(0.0, 1e6), st.integers(0, 100)), max_size=8), st.floats(1.0, 1e6))
def test_use_counts_the_same_in_one_step_or_many(steps: list[tuple[float, int]], half_life_s: float) -> None:
    one, many, now_s = TeamUse(TeamQuota("a")), TeamUse(TeamQuota("a")), 0.0
    for past_s, used_count in steps:
        one.used_count = many.used_count = used_count
        for part in range(1, 5):
            many.advance(now_s + past_s * part / 4, half_life_s)
        now_s += past_s
        one.advance(now_s, half_life_s)
    assert one.decayed_accelerator_s == pytest.approx(many.decayed_accelerator_s, rel=1e-6, abs=1e-6)


def test_what_was_used_counts_half_after_a_half_life() -> None:
    use = TeamUse(TeamQuota("a", weight_ratio=2.0), decayed_accelerator_s=1000.0)
    use.advance(50.0, 50.0)
    assert use.decayed_accelerator_s == pytest.approx(500.0) and use.share == pytest.approx(250.0)


def test_steady_use_settles_at_count_times_half_life() -> None:
    use = TeamUse(TeamQuota("a"), used_count=8)
    use.advance(1e6, 100.0)
    assert use.decayed_accelerator_s == pytest.approx(8 * 100.0 / 0.693147, rel=1e-5)


@pytest.mark.parametrize(
    ("quota", "firm", "preemptible"),
    [((None, None), None, None), ((10, None), 6, None), ((10, 2), 2, 2), ((10, 20), 6, 20)],
)
def test_what_a_team_may_still_have(
    quota: tuple[int | None, int | None], firm: int | None, preemptible: int | None
) -> None:
    use = TeamUse(TeamQuota("a", *quota), used_count=10, firm_count=4)
    assert (use.left_count(False), use.left_count(True)) == (firm, preemptible)


def test_what_is_beyond_the_quota_is_borrowed() -> None:
    use = TeamUse(TeamQuota("a", 10), used_count=14)
    assert use.borrowed_count == 4 and not use.within_quota(0)
    assert TeamUse(TeamQuota("a"), used_count=14).borrowed_count == 0


def test_teams_nobody_named_are_forgotten_when_they_are_idle() -> None:
    teams = Teams((TeamQuota("named"),), 10.0)
    for index in range(5000):
        teams.of(f"passing-{index}", float(index))
    busy = teams.of("busy", 5000.0)
    busy.used_count = 1
    for index in range(5000):
        teams.of(f"more-{index}", 5000.0 + index)
    assert len(teams) < 200 and teams.of("busy", 1e4) is busy


def test_of_too_many_teams_those_that_used_most_are_remembered() -> None:
    teams = Teams((), 1e9)
    for index in range(6000):
        teams.of(f"team-{index}", 0.0).decayed_accelerator_s = 1e6 + index
    assert len(teams) <= 2 * IDLE_TEAMS_MAX + 64
    assert teams.of("team-5999", 0.0).decayed_accelerator_s > 1e6
    assert teams.of("team-0", 0.0).decayed_accelerator_s == 0.0
