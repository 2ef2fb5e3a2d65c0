"""Who makes room, judged on views that a brain made."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.events import JobStarted, JobSubmitted, NodeAdded
from twofold.policy.cluster.gang_queue import Job
from twofold.policy.cluster.room import (
    Need,
    Victim,
    candidates_for,
    cost_accelerator_s,
    spare_pieces,
    victims,
)
from twofold.policy.cluster.settings import ClusterSettings, FaultSettings, PreemptionSettings, TeamQuota

NOW_S = 10_000.0


def a_brain(*quotas: TeamQuota) -> ClusterBrain:
    brain = ClusterBrain(ClusterSettings(quotas, faults=FaultSettings(spare_count=0)))
    for index in range(6):
        brain.handle(NodeAdded(f"n{index}", 4, ()), 0.0)
    return brain


def asked(name: str, size: int, **other: Any) -> JobSubmitted:
    given = {
        "team": "red",
        "minimum_count": size,
        "priority": 0,
        "preemptible": True,
        "restart_s": 20.0,
        **other,
    }
    return JobSubmitted(name, accelerator_count=size, expected_s=1e6, checkpoint_write_s=10.0, **given)


def running(brain: ClusterBrain, name: str, size: int, now_s: float = 0.0, **other: Any) -> Job:
    brain.handle(asked(name, size, **other), now_s)
    brain.handle(JobStarted(name), now_s)
    return brain.view.jobs[name]


def head(size: int, **other: Any) -> Job:
    return Job(asked("head", size, **other), 999, NOW_S)


def test_only_those_that_may_are_asked() -> None:
    brain = a_brain()
    running(brain, "low", 4)
    running(brain, "firm", 4, preemptible=False)
    running(brain, "same", 4, priority=1)
    running(brain, "above", 4, priority=2)
    running(brain, "young", 4, NOW_S - 1.0)
    assert [job.job_id for job in candidates_for(brain.view, head(4, priority=1), NOW_S)] == ["low"]
    brain.view.settings = ClusterSettings(preemption=PreemptionSettings(minimum_run_s=0.0))
    names = [job.job_id for job in candidates_for(brain.view, head(4, priority=2), NOW_S)]
    assert names == ["low", "young", "same"]
    brain.view.settings = ClusterSettings(preemption=None)
    assert candidates_for(brain.view, head(4, priority=9), NOW_S) == []


def test_what_is_borrowed_goes_first_and_no_more_than_that() -> None:
    brain = a_brain(TeamQuota("red", 8), TeamQuota("blue", 4))
    for index in range(3):
        running(brain, f"red-{index}", 4)
    running(brain, "blue-low", 4, team="blue", priority=-1)
    # Four accelerators are borrowed: one job of red, though three are of its priority.
    claims = head(4, team="green")
    assert [job.job_id for job in candidates_for(brain.view, claims, NOW_S)] == ["red-0", "blue-low"]
    # A team that is beyond its own quota claims nothing of others.
    assert candidates_for(brain.view, head(4, team="blue", priority=0), NOW_S) == [
        brain.view.jobs["blue-low"]
    ]


def test_the_cheapest_of_a_rank_goes_first() -> None:
    brain = a_brain()
    dear, cheap = running(brain, "dear", 4, restart_s=500.0), running(brain, "cheap", 4)
    assert cost_accelerator_s(cheap) == 4 * 30.0 < cost_accelerator_s(dear)
    assert [job.job_id for job in candidates_for(brain.view, head(4, priority=1), NOW_S)] == ["cheap", "dear"]


def test_an_elastic_job_gives_up_pieces_down_to_its_minimum() -> None:
    brain = a_brain()
    job = running(brain, "elastic", 12, minimum_count=5)
    assert spare_pieces(job) == (job.placement[-1],)
    [victim] = victims(brain.view, Need(16, 4), [job]) or []
    assert victim == (job, {job.placement[-1][0]})
    [victim] = victims(brain.view, Need(20, 4), [job]) or []
    assert victim == (job, None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.booleans()), max_size=8),
    st.sampled_from([1, 4, 8, 16, 24]),
)
def test_victims_make_room_and_nobody_too_many(jobs: list[tuple[int, bool]], size: int) -> None:
    brain = a_brain()
    for index, (job_size, elastic) in enumerate(jobs):
        least = max(job_size // 2, 1) if elastic else job_size
        brain.handle(asked(f"j{index}", job_size, minimum_count=least), 0.0)
        brain.handle(JobStarted(f"j{index}"), 0.0)
    view = brain.view
    candidates = [job for job in view.jobs.values() if job.placement]
    need = Need(size, view.largest_count)
    chosen = victims(view, need, candidates)

    def fits(gone: list[Victim]) -> bool:
        left = {node_id: node.free_count for node_id, node in view.nodes.items()}
        for job, given_up in gone:
            for node_id, count in job.placement:
                if given_up is None or node_id in given_up:
                    left[node_id] += count
        whole = sum(count for count in left.values() if count == 4)
        return max(left.values()) >= size if size <= 4 else whole >= size

    if fits([]):
        return  # nobody asks then
    if chosen is None:
        assert not fits([(job, None) for job in candidates])
    else:
        assert fits(chosen)
        for victim in chosen:
            assert not fits([other for other in chosen if other is not victim])
