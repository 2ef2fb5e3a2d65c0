"""What teams may have and have used, and in which order their jobs wait."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.cluster.events import JobSubmitted
from twofold.policy.cluster.gang_queue import IDLE_TEAMS_MAX, GangQueue, Job, Teams, TeamUse, aged_priority
from twofold.policy.cluster.settings import TeamQuota

AGING_S = 100.0


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
    assert len(teams._uses) < 200 and teams.of("busy", 1e4) is busy


def test_of_too_many_teams_those_that_used_most_are_remembered() -> None:
    teams = Teams((), 1e9)
    for index in range(6000):
        teams.of(f"team-{index}", 0.0).decayed_accelerator_s = 1e6 + index
    assert len(teams._uses) <= 2 * IDLE_TEAMS_MAX + 64
    assert teams.of("team-5999", 0.0).decayed_accelerator_s > 1e6
    assert teams.of("team-0", 0.0).decayed_accelerator_s == 0.0


def job_that_waits(team: str, priority: int, sequence: int, submitted_s: float = 0.0) -> Job:
    submitted = JobSubmitted(f"{team}-{sequence}", team, 8, 8, priority, 3600.0, 60.0, 60.0, True)
    return Job(submitted, sequence, submitted_s)


def everybody(_: Job) -> bool:
    return True


def nobody_used_anything(_: Job) -> tuple[bool, float]:
    return False, 0.0


JOBS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=20)


@settings(max_examples=40, deadline=None)
@given(JOBS, st.data())
def test_a_line_is_served_in_order_however_jobs_came_back(
    jobs: list[tuple[str, int]], data: st.DataObject
) -> None:
    waiting = [job_that_waits(team, priority, index) for index, (team, priority) in enumerate(jobs)]
    queue = GangQueue(100, AGING_S)
    for job in data.draw(st.permutations(waiting)):
        queue.push(job)
    order = list(queue.ordered(0.0, nobody_used_anything, everybody))
    assert order == sorted(waiting, key=lambda job: (-job.submitted.priority, job.sequence))
    for job in waiting[::2]:
        queue.remove(job)
    assert len(queue) == len(waiting[1::2])
    assert sorted(job.sequence for job in queue.ordered(0.0, nobody_used_anything, everybody)) == [
        job.sequence for job in waiting[1::2]
    ]


def test_teams_within_their_quota_come_first_then_those_that_used_least() -> None:
    queue = GangQueue(100, AGING_S)
    standing = {"over": (True, 0.0), "much": (False, 9.0), "little": (False, 1.0)}
    for index, team in enumerate(standing):
        queue.push(job_that_waits(team, 0, index))
    order = list(queue.ordered(0.0, lambda job: standing[job.submitted.team], everybody))
    assert [job.submitted.team for job in order] == ["little", "much", "over"]
    assert queue.before(order[0], order[2], 0.0, lambda job: standing[job.submitted.team])


def test_a_line_whose_first_job_may_not_start_is_left_alone() -> None:
    queue = GangQueue(100, AGING_S)
    for index, team in enumerate("aabb"):
        queue.push(job_that_waits(team, 0, index))
    order = queue.ordered(0.0, nobody_used_anything, lambda job: job.sequence != 0)
    assert [job.sequence for job in order] == [2, 3]


@given(st.floats(0.0, 1e4), st.floats(0.0, 1e4), st.integers(0, 5), st.integers(0, 5))
def test_only_so_much_later_can_anybody_overtake(one_s: float, later_s: float, one: int, other: int) -> None:
    """A job that came (difference + 1) agings later is behind, whatever its priority."""
    first = job_that_waits("a", one, 1, one_s)
    second = job_that_waits("b", other, 2, one_s + later_s)
    now_s = one_s + later_s + 12_345.0
    if later_s > (other - one + 1) * AGING_S + 1e-6:
        assert aged_priority(first, now_s, AGING_S) >= aged_priority(second, now_s, AGING_S)


def test_a_full_queue_says_so() -> None:
    queue = GangQueue(2, AGING_S)
    queue.push(job_that_waits("a", 0, 1))
    assert not queue.full
    queue.push(job_that_waits("a", 0, 2))
    assert queue.full
