import math

from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.breaker import (
    Circuit,
    CircuitState,
    after_probe_answered,
    after_probe_failed,
    after_request_failed,
    after_response_ended,
    state_of,
)
from twofold.policy.gate.events import Cause
from twofold.policy.gate.settings import GateSettings

SETTINGS = GateSettings(failure_limit=3, failure_window_s=10.0, open_s=1.0, open_s_max=6.0)
SLOW = st.sampled_from([Cause.TIMEOUT, Cause.BROKEN, Cause.ERROR])
TIMES = st.floats(0.0, 1e6)


def failed(circuit: Circuit, now_s: float, cause: Cause = Cause.ERROR) -> Circuit:
    return after_request_failed(circuit, circuit.era, cause, now_s, SETTINGS)


@given(TIMES)
def test_a_refused_connection_opens_at_once(now_s: float) -> None:
    for judge in (after_request_failed, after_probe_failed):
        circuit = judge(Circuit(), 0, Cause.REFUSED, now_s, SETTINGS)
        assert state_of(circuit, now_s) is CircuitState.OPEN
        assert circuit.until_s == now_s + SETTINGS.open_s


@given(TIMES, st.lists(st.tuples(st.floats(0.0, 20.0), SLOW), max_size=20))
def test_other_failures_open_when_the_window_holds_the_limit(
    start_s: float, gaps: list[tuple[float, Cause]]
) -> None:
    circuit, now_s, at_s = Circuit(), start_s, []
    for gap_s, cause in gaps:
        now_s += gap_s
        at_s.append(now_s)
        circuit = failed(circuit, now_s, cause)
        full = len([t for t in at_s if now_s - t < SETTINGS.failure_window_s]) >= SETTINGS.failure_limit
        assert (circuit.until_s is not None) == full
        assert len(circuit.failed_at_s) < SETTINGS.failure_limit
        if full:
            return


def test_a_circuit_is_half_open_from_its_end_on() -> None:
    circuit = failed(Circuit(), 5.0, Cause.REFUSED)
    assert state_of(circuit, math.nextafter(6.0, 0.0)) is CircuitState.OPEN
    assert state_of(circuit, 6.0) is CircuitState.HALF_OPEN


def test_an_answered_probe_closes_only_a_half_open_circuit() -> None:
    opened = failed(Circuit(), 5.0, Cause.REFUSED)
    assert after_probe_answered(opened, opened.era, 5.9) == opened
    assert state_of(after_probe_answered(opened, opened.era, 6.0), 6.0) is CircuitState.CLOSED


def test_a_failed_probe_reopens_only_a_half_open_circuit() -> None:
    opened = failed(Circuit(), 5.0, Cause.REFUSED)
    assert after_probe_failed(opened, opened.era, Cause.REFUSED, 5.9, SETTINGS) == opened
    assert after_probe_failed(opened, opened.era, Cause.TIMEOUT, 6.0, SETTINGS).until_s == 8.0


def test_a_failure_as_old_as_the_window_is_no_longer_in_it() -> None:
    circuit = failed(failed(failed(Circuit(), 0.0), 1.0), SETTINGS.failure_window_s)
    assert state_of(circuit, 10.0) is CircuitState.CLOSED
    assert state_of(failed(circuit, 10.5), 10.5) is CircuitState.OPEN


def test_a_probe_sent_before_the_opening_neither_closes_nor_opens() -> None:
    opened = failed(Circuit(), 5.0, Cause.REFUSED)
    assert after_probe_answered(opened, opened.era - 1, 100.0) == opened
    assert after_probe_failed(opened, opened.era - 1, Cause.REFUSED, 100.0, SETTINGS) == opened


def test_requests_say_nothing_about_a_circuit_that_is_not_closed() -> None:
    opened = failed(Circuit(), 5.0, Cause.REFUSED)
    for now_s in (5.5, 7.0):
        assert failed(opened, now_s, Cause.REFUSED) == opened
        assert after_response_ended(opened, opened.era) == opened


def test_a_request_sent_before_the_opening_says_nothing_after_it() -> None:
    opened = failed(Circuit(), 5.0, Cause.REFUSED)
    closed = after_probe_answered(opened, opened.era, 6.0)
    assert after_request_failed(closed, opened.era - 1, Cause.REFUSED, 6.1, SETTINGS) == closed
    assert after_response_ended(closed, opened.era - 1) == closed


def test_each_opening_lasts_twice_as_long_up_to_the_longest() -> None:
    circuit, lasted_s = failed(Circuit(), 0.0, Cause.REFUSED), []
    for _ in range(200):
        assert circuit.until_s is not None
        now_s = circuit.until_s
        circuit = after_probe_failed(circuit, circuit.era, Cause.TIMEOUT, now_s, SETTINGS)
        assert circuit.until_s is not None
        lasted_s.append(circuit.until_s - now_s)
    assert lasted_s[:3] == [2.0, 4.0, 6.0] and set(lasted_s[3:]) == {6.0}


def test_only_an_answer_that_ended_well_makes_openings_short_again() -> None:
    opened = failed(Circuit(), 0.0, Cause.REFUSED)
    closed = after_probe_answered(opened, opened.era, 1.0)
    assert failed(closed, 2.0, Cause.REFUSED).until_s == 2.0 + 2 * SETTINGS.open_s
    proven = after_response_ended(closed, closed.era)
    assert failed(proven, 2.0, Cause.REFUSED).until_s == 2.0 + SETTINGS.open_s


def test_a_closed_circuit_has_forgotten_its_failures() -> None:
    circuit = Circuit()
    for _ in range(SETTINGS.failure_limit):
        circuit = failed(circuit, 0.0)
    closed = after_probe_answered(circuit, circuit.era, 1.0)
    assert state_of(failed(closed, 1.0), 1.0) is CircuitState.CLOSED
