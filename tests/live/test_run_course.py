"""A run over time: what its lines say happened, and when, held against the lines themselves."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.live.test_training_record import LINE
from twofold.contracts.results.loop import RunCourse, Stretch
from twofold.live.training.run_course import STRETCHES_MOST, course_of
from twofold.live.training.training_record import StepLine, active_s

NIGHT_S = 40_000.0


def _at(steady_s: float) -> dict[str, Any]:
    return {"at_s": 1e9 + steady_s, "steady_s": steady_s, "boot": "a"}


def _line(launch: int, attempt: int, step: int, steady_s: float) -> StepLine:
    times = {"at_s": 1e9 + steady_s, "steady_s": steady_s}
    return replace(LINE, launch=launch, attempt=attempt, step=step, **times)


def _killed_and_taken_up() -> tuple[list[StepLine], list[dict[str, Any]]]:
    """Steps 1 to 4, killed, from 2 on again until it is told to stop; taken up after a night."""
    lines = [_line(1, 0, step, 10.0 + step) for step in range(1, 5)]
    lines += [_line(1, 1, step, 20.0 + step) for step in range(3, 7)]
    lines += [_line(2, 0, step, NIGHT_S + step) for step in range(7, 10)]
    me = {"launch": 1, "rank": 0, "process_id": 1}
    events = [
        {"event": "launched", "launch": 1, **_at(5.0)},
        {"event": "worker", "attempt": 0, **me, **_at(7.0)},
        {"event": "worker", "attempt": 7, **me, **_at(7.0), "boot": "of another host"},
        {"event": "checkpoint", "step": 2, "size_bytes": 9, "write_s": 0.5, **_at(13.0)},
        {"event": "killed", "rank": 1, "launch": 1, "attempt": 0, "after_step": 4, **_at(14.6)}
        | {"sent_at_s": 1e9 + 14.5, "sent_steady_s": 14.5},
        {"event": "worker", "attempt": 1, **me, **_at(18.0)},
        {"event": "checkpoint-failed", "step": 5, "reason": "no room", **_at(25.5)},
        {"event": "checkpoint", "step": 6, "size_bytes": 9, "write_s": 1.0, **_at(27.5)},
        {"event": "stopped", "step": 6, "launch": 1, **_at(28.0)},
        {"event": "launched", "launch": 2, **_at(NIGHT_S)},
        {"event": "published", **_at(NIGHT_S + 12.0)},
    ]
    return lines, events


def test_every_stretch_begins_and_ends_where_the_lines_say() -> None:
    lines, events = _killed_and_taken_up()
    found = course_of(lines, events)
    assert found == RunCourse(
        (
            Stretch("starting", 0.0, 5.0, 0),  # from the launch to a second before step 1 was done
            Stretch("training", 5.0, 9.0, 4),
            Stretch("checkpoint", 7.5, 8.0, 2),
            Stretch("killed", 9.5, 18.0, 4, "rank 1"),  # to the first step that is done after it
            Stretch("starting", 13.0, 17.0, 2),
            Stretch("training", 17.0, 21.0, 6),
            Stretch("not saved", 20.5, 20.5, 5, "no room"),
            Stretch("checkpoint", 21.5, 22.5, 6),
            Stretch("stopped", 23.0, 23.0, 6),
            Stretch("launched again", 23.0, 23.0, 6),
            Stretch("starting", 23.0, 29.0, 6),  # step 7 is done 7 s after the launch, in a second
            Stretch("training", 29.0, 32.0, 9),
        )
    )


def test_an_attempt_that_died_by_itself_ends_with_its_last_sign_of_life() -> None:
    lines, events = _killed_and_taken_up()
    by_itself = course_of(lines, [each for each in events if each["event"] != "killed"])
    (died,) = [each for each in by_itself.stretches if each.what == "died"]
    assert (died.from_s, died.until_s, died.step) == (9.0, 18.0, 4)
    silent = [line for line in lines if (line.launch, line.attempt) != (1, 0)]
    first = course_of(silent, [each for each in events if each["event"] != "killed"]).stretches
    (died,) = [each for each in first if each.what == "died"]
    assert (died.from_s, died.until_s, died.step) == (0.0, 18.0, None)


def test_of_very_many_checkpoints_every_nth_is_kept() -> None:
    lines, events = _killed_and_taken_up()
    saved = [
        {"event": "checkpoint", "step": step, "size_bytes": 9, "write_s": 0.001, **_at(NIGHT_S + 0.01 * step)}
        for step in range(10, 10 + 2 * STRETCHES_MOST)
    ]
    found = course_of(lines, [*events, *saved])
    kept = [each for each in found.stretches if each.what == "checkpoint"]
    assert found.checkpoint_every == 3 and len(kept) == (2 * STRETCHES_MOST + 2) // 3
    assert found.left_out_count == 0


@given(
    st.lists(
        st.lists(
            st.lists(st.floats(0.01, 30.0), max_size=4).map(tuple),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=3,
    ),
    st.floats(0.0, 1e5),
)
def test_no_stretch_is_outside_the_run_and_workers_do_one_thing_at_a_time(
    launches: list[list[tuple[float, ...]]], night_s: float
) -> None:
    """Launches of attempts of steps, each with its seconds; between launches lies a night."""
    lines: list[StepLine] = []
    events: list[dict[str, Any]] = []
    now_s, step = 100.0, 0
    for launch, attempts in enumerate(launches, 1):
        now_s += night_s
        events.append({"event": "launched", "launch": launch, **_at(now_s)})
        for attempt, steps in enumerate(attempts):
            now_s += 1.0
            worker = {"event": "worker", "launch": launch, "attempt": attempt, "rank": 0}
            events.append({**worker, **_at(now_s)})
            for step_s in steps:
                now_s, step = now_s + step_s, step + 1
                lines.append(replace(_line(launch, attempt, step, now_s), step_s=step_s))
            events.append({"event": "checkpoint", "step": step, "write_s": 9.0, **_at(now_s)})
    found, worked_s = course_of(lines, events).stretches, active_s(lines, events)
    assert all(-1e-9 <= each.from_s <= each.until_s + 1e-9 <= worked_s + 1e-6 for each in found)
    at_work = [each for each in found if each.what in ("starting", "training")]
    assert all(one.until_s <= other.from_s + 1e-6 for one, other in pairwise(at_work))
    trained_s = sum(each.until_s - each.from_s for each in found if each.what == "training")
    assert abs(trained_s - sum(line.step_s for line in lines)) <= 1e-5 * (1 + worked_s)
    assert sum(each.what == "died" for each in found) == sum(len(each) - 1 for each in launches)
    assert sum(each.what == "launched again" for each in found) == len(launches) - 1
