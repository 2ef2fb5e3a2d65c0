import json

import pytest

from twofold.core.errors import ShapeError
from twofold.live.gateway.replays import entry_from_line, first_difference
from twofold.policy.gate.events import Send
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs, GateSettings


def test_a_recorded_day_is_decided_as_it_was(day_gate: Gate, day_lines: list[str]) -> None:  # INV-15
    assert first_difference(day_gate, map(entry_from_line, day_lines)) is None
    counts = day_gate.view.counts
    assert counts.arrived == sum('"RequestArrived"' in line for line in day_lines)
    assert min(counts.finished, counts.refused, counts.gave_up, counts.left, counts.ignored) > 0


def test_a_gate_that_decides_otherwise_differs_at_the_first_such_line(day_lines: list[str]) -> None:
    no_retry = Gate(GateSettings(probe_every_s=1.0, open_s=0.5, attempt_limit=1), Beliefs(0.0001, 0.02))
    difference = first_difference(no_retry, map(entry_from_line, day_lines))
    first_repeat = next(i for i, line in enumerate(day_lines, 1) if '"attempt":2' in line)
    assert difference is not None and difference[0] == first_repeat
    _, logged, replayed = difference
    assert any(isinstance(effect, Send) for effect in logged.effects)
    assert not any(isinstance(effect, Send) for effect in replayed)


def test_one_changed_effect_is_found_on_its_line(day_gate: Gate, day_lines: list[str]) -> None:
    number = next(i for i, line in enumerate(day_lines) if '"Send"' in line)
    entry = json.loads(day_lines[number])
    entry["effects"][0]["replica_id"] = "nobody"
    changed = [*day_lines[:number], json.dumps(entry), *day_lines[number + 1 :]]
    difference = first_difference(day_gate, map(entry_from_line, changed))
    assert difference is not None and difference[0] == number + 1


def test_a_torn_line_is_refused(day_gate: Gate, day_lines: list[str]) -> None:
    with pytest.raises(ShapeError):
        first_difference(day_gate, map(entry_from_line, [*day_lines[:3], day_lines[3][:20]]))


def test_an_empty_log_has_no_difference(day_gate: Gate) -> None:
    assert first_difference(day_gate, map(entry_from_line, [])) is None
