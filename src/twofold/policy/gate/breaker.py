"""One circuit per replica: when it is sent nothing, and when it is trusted again. Pure values and functions.

Which failures count is the gate's to say: one that the request may have caused is not the replica's.

Closed      Requests flow. A refused connection opens at once; `failure_limit` other failures within
            `failure_window_s` open too. So a dead process costs one refused attempt or one probe, whichever
            comes first, and a sick one `failure_limit` attempts.
Open        Nothing is sent until `until_s`; each opening lasts twice as long as the one before, up to
            `open_s_max`, until an answer of a closed circuit's replica ends well.
Half-open   An open circuit whose `until_s` has passed: a probe decides. Answered, it closes; failed, it opens
            again.

Every probe and every sent request remembers the circuit's `era`, which each opening ends: what was sent
before an opening says nothing about what came after it, so its outcome is not counted, whenever it arrives.
"""

from dataclasses import dataclass, replace
from enum import Enum

from twofold.policy.gate.events import Cause
from twofold.policy.gate.settings import GateSettings

DOUBLINGS_MAX = 64  # far beyond any open_s_max; keeps 2**n finite


class CircuitState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Circuit:
    """What is remembered of one replica's failures."""

    until_s: float | None = None  # None: closed
    era: int = 0  # openings so far, and starts of the replica under this name
    opened_count: int = 0  # openings since an answer last ended well
    failed_at_s: tuple[float, ...] = ()  # within the window; fewer than failure_limit


def state_of(circuit: Circuit, now_s: float) -> CircuitState:
    """Which of the three states a circuit is in."""
    if circuit.until_s is None:
        return CircuitState.CLOSED
    return CircuitState.OPEN if now_s < circuit.until_s else CircuitState.HALF_OPEN


def after_request_failed(
    circuit: Circuit, era: int, cause: Cause, now_s: float, settings: GateSettings
) -> Circuit:
    """The circuit after an attempt sent in `era` failed; one that is not closed waits for its probe."""
    if era != circuit.era or circuit.until_s is not None:
        return circuit
    recent = (*(at_s for at_s in circuit.failed_at_s if now_s - at_s < settings.failure_window_s), now_s)
    if cause is Cause.REFUSED or len(recent) >= settings.failure_limit:
        return _opened(circuit, now_s, settings)
    return replace(circuit, failed_at_s=recent)


def after_probe_failed(
    circuit: Circuit, era: int, cause: Cause, now_s: float, settings: GateSettings
) -> Circuit:
    """The circuit after a probe sent in `era` failed: half-open, it opens again; closed, it counts."""
    if era == circuit.era and state_of(circuit, now_s) is CircuitState.HALF_OPEN:
        return _opened(circuit, now_s, settings)
    return after_request_failed(circuit, era, cause, now_s, settings)


def after_probe_answered(circuit: Circuit, era: int, now_s: float) -> Circuit:
    """The circuit after a probe sent in `era` was answered: half-open, it closes."""
    if era != circuit.era or state_of(circuit, now_s) is not CircuitState.HALF_OPEN:
        return circuit
    return replace(circuit, until_s=None)


def after_response_ended(circuit: Circuit, era: int) -> Circuit:
    """The circuit after an answer sent in `era` ended well: the next opening is short again.

    A probe alone does not do this: a replica that accepts connections and fails requests would flap.
    """
    if era != circuit.era or circuit.until_s is not None or not circuit.opened_count:
        return circuit
    return replace(circuit, opened_count=0)


def _opened(circuit: Circuit, now_s: float, settings: GateSettings) -> Circuit:
    open_s = min(settings.open_s * 2.0 ** min(circuit.opened_count, DOUBLINGS_MAX), settings.open_s_max)
    return Circuit(now_s + open_s, circuit.era + 1, circuit.opened_count + 1)
