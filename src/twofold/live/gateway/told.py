"""What a gate's log says of a span of time: who was sent what, when replicas and releases came and went."""

import re
from collections.abc import Iterator
from pathlib import Path

from twofold.live.gateway.replays import entry_from_line, read_gate_log
from twofold.policy.gate import events
from twofold.policy.machine import Entry

AT = re.compile(r'\{"now_s":([0-9.eE+-]+),')


def entries_between(log: Path, from_s: float, until_s: float) -> Iterator[Entry[events.Event, events.Effect]]:
    """Entries of a span of the machine's monotonic clock, of all gateways that ran in it, in their order."""
    for run in read_gate_log(log).runs:
        for line in run.entries:
            at = AT.match(line)
            if at is None or from_s <= float(at[1]) <= until_s:
                entry = entry_from_line(line)
                if from_s <= entry.now_s <= until_s:
                    yield entry
