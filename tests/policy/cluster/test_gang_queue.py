from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.cluster.events import JobSubmitted
from twofold.policy.cluster.gang_queue import GangQueue, aged_priority
from twofold.policy.cluster.job import Job

AGING_S = 100.0


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
