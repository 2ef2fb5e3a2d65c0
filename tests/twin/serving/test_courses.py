"""What is kept of a serving world over time: as told, without gaps, and bounded however much is told."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.canary import Canary
from twofold.policy.gate.settings import CanarySettings
from twofold.twin.serving.courses import POINTS_MOST, SPANS_MOST, Lives, Trials
from twofold.twin.serving.fleet_state import Life

LIVES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(Life))), max_size=30)


@given(LIVES)
def test_spans_of_a_replica_fill_its_time_and_say_where_it_stood(told: list[tuple[str, Life]]) -> None:
    lives = Lives()
    for at, (name, life) in enumerate(told):
        lives.told(name, life, float(at))
    end_s = float(len(told))
    spans, steady_count, left_out_count = lives.spans(end_s)
    assert left_out_count == 0 and steady_count <= 1  # only one can be told of at 0
    for name in "abc":
        mine = sorted((each for each in spans if each.replica == name), key=lambda each: each.from_s)
        for second in range(len(told)):
            known = [life for each, life in told[: second + 1] if each == name]
            found = [each.state for each in mine if each.from_s <= second < each.until_s]
            if not known or known[-1] is Life.GONE:
                assert not found
            elif found:
                assert found == [known[-1].name.lower()]
            else:  # it is counted, since it was ready all the time
                assert steady_count and {life for each, life in told if each == name} == {Life.READY}


def test_lives_beyond_what_is_kept_are_counted() -> None:
    lives = Lives()
    for at in range(2 * SPANS_MOST):
        lives.told("a", Life.DOWN if at % 2 else Life.READY, float(at))
    spans, steady_count, left_out_count = lives.spans(2.0 * SPANS_MOST)
    assert len(spans) == SPANS_MOST and steady_count == 0
    assert len(spans) + left_out_count == 2 * SPANS_MOST


@dataclass
class _Seen:
    """A canary under trial, and what was seen of it."""

    canary: Canary = field(default_factory=lambda: Canary(CanarySettings()))
    trials: Trials = field(default_factory=Trials)


def test_a_trial_that_lasts_is_kept_in_fewer_looks_and_ends_with_its_decision() -> None:
    seen = _Seen()
    seen.canary.offered("next", "", 1.0)
    count = 5 * POINTS_MOST
    for at in range(1, count):
        seen.trials.look(seen.canary.latest.values(), [], float(at))
    seen.canary.withdrawn("next")
    decided_s = float(count)
    seen.trials.look(
        seen.canary.latest.values(), [("next", "rolled back: withdrawn", decided_s)], decided_s + 5
    )
    seen.trials.look(seen.canary.latest.values(), [], decided_s + 10)  # nothing more is noted
    (course,) = seen.trials.courses()
    assert POINTS_MOST / 2 <= len(course.at_s) <= POINTS_MOST + 1
    assert course.at_s[0] == 1.0 and course.at_s[-1] == course.decided_s == decided_s
    assert course.decision == "rolled back: withdrawn"
    steps = {b - a for a, b in zip(course.at_s[:-1], course.at_s[1:-1], strict=False)}
    assert len(steps) == 1  # evenly thinned
    assert set(course.worse_probability["failures"]) == {0.5}  # nothing was measured: even odds


def test_a_release_that_is_offered_again_has_a_trial_of_its_own() -> None:
    seen = _Seen()
    seen.canary.offered("next", "", 0.0)
    seen.trials.look(seen.canary.latest.values(), [], 1.0)
    seen.canary.withdrawn("next")
    decided = [("next", "rolled back: withdrawn", 2.0)]
    seen.trials.look(seen.canary.latest.values(), decided, 3.0)
    seen.canary.offered("next", "", 4.0)
    seen.trials.look(seen.canary.latest.values(), decided, 5.0)
    first, second = seen.trials.courses()
    assert (first.decided_s, second.decided_s) == (2.0, None)
