"""The course of a job: its phases in order, failures and checkpoints as told, and all of it bounded."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from twofold.twin.cluster.cluster_types import JobRecord
from twofold.twin.cluster.courses import CHECKPOINTS_MOST, SPANS_MOST, STATES, Followed, of_record
from twofold.twin.cluster.job import Phase

RECORD = JobRecord(
    job_id="pretrain",
    team="plan",
    accelerator_count=64,
    state="running",
    submit_s=0.0,
    started_s=10.0,
    ended_s=None,
    waited_s=10.0,
    completion_s=None,
    busy_s=1.0,
    lost_s=0.0,
    attempts=1,
    preempted_count=0,
    failures_count=0,
    checkpoints_count=0,
    slowest_node="",
    tokens_per_s=None,
    samples_per_s=None,
    placement="",
)
PHASES = st.lists(st.sampled_from([each for each in Phase if each is not Phase.ENDED]), max_size=30)


@given(PHASES)
def test_stretches_cover_the_whole_life_and_say_where_the_job_stood(phases: list[Phase]) -> None:
    followed = Followed(0.0)
    for at, phase in enumerate(phases, 1):
        followed.enters(phase, float(at))
    end_s = len(phases) + 1.0
    course = followed.course(RECORD, end_s)
    assert course.spans[0].from_s == 0.0 and course.spans[-1].until_s == end_s
    for second in range(len(phases) + 1):
        (state,) = [each.state for each in course.spans if each.from_s <= second < each.until_s]
        assert state == (STATES[phases[second - 1]] if second else "queued")
    fails = [STATES[phase] == "failed" for phase in phases]
    began = sum(now and not before for before, now in zip([False, *fails], fails, strict=False))
    assert len(course.failure_s) == began and course.left_out_count == 0


@given(st.sampled_from([1, CHECKPOINTS_MOST, CHECKPOINTS_MOST + 1, 5_000]))
def test_checkpoints_are_thinned_evenly(count: int) -> None:
    followed = Followed(0.0)
    for at in range(count):
        followed.saved(float(at))
    course = followed.course(RECORD, float(count))
    assert len(course.checkpoint_s) <= CHECKPOINTS_MOST
    assert course.checkpoint_s == tuple(map(float, range(0, count, course.checkpoint_every)))


def test_stretches_and_failures_beyond_what_is_kept_are_counted() -> None:
    followed = Followed(0.0)
    for at in range(1, 4 * SPANS_MOST, 2):
        followed.enters(Phase.RUNNING, float(at))
        followed.enters(Phase.HUNG, at + 1.0)
    course = followed.course(RECORD, 4.0 * SPANS_MOST + 1.0)
    assert len(course.spans) == len(course.failure_s) == SPANS_MOST
    told_count = 4 * SPANS_MOST + 1 + 2 * SPANS_MOST  # stretches, and failures
    assert course.left_out_count == told_count - 2 * SPANS_MOST


def test_a_job_of_others_waited_then_ran() -> None:
    assert [each.state for each in of_record(RECORD, 30.0).spans] == ["queued", "running"]
    waits = replace(RECORD, started_s=None)
    assert [(each.state, each.until_s) for each in of_record(waits, 30.0).spans] == [("queued", 30.0)]
