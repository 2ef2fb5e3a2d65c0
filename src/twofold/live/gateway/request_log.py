"""The log of requests: one line of JSON for each that ended, apart from what the gate was told.

`at` is its arrival, UTC; `model` is what the replica serves, on `up` the digest of the artefact. No prompt
and no answer is in it. Lines are written a few times a second, not per request: kill -9 loses the last ones,
which the gate's own log has.
"""

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePath

from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.telemetry import Outcome
from twofold.live.line_file import LineFile, wall_text
from twofold.policy.machine import json_text

FLUSH_EVERY_S = 0.2
FLUSH_LINES = 256  # that wait at most
NAMES = (
    *("at", "request_id", "path", "tenant", "class", "model", "outcome", "status", "reason"),
    *("input_tokens", "output_tokens", "ttft_s", "e2e_s", "replica", "attempts", "cache", "usd"),
)
_LINE = (
    "{" + ",".join(f'"{name}":%s' for name in NAMES) + "}"
)  # HOT: per request; a dict took three times as long


class RequestLog:
    """The writer. Mutable: it holds the lines since the last flush; lives in one event loop."""

    def __init__(self, file: LineFile, replicas: Mapping[str, GatewayReplica], model: str) -> None:
        self.file, self._replicas, self._model = file, replicas, model
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    def saw(self, outcome: Outcome) -> None:
        """One request ended."""
        self.file.append(line_of(outcome, self._replicas.get(outcome.replica_id), self._model))
        self._waiting += 1
        if self._waiting >= FLUSH_LINES:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self._flush)

    def stop(self) -> None:
        """Write what waits, and close."""
        if self._timer is not None:
            self._timer.cancel()
        self.file.stop()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._waiting = None, 0
        self.file.flush()


@lru_cache(maxsize=256)  # HOT: per request; a replica's model is a path, one of few
def _name_of(model: str) -> str:
    return PurePath(model).name


def line_of(outcome: Outcome, replica: GatewayReplica | None, model: str) -> str:
    """Its line: what is not known is null, seconds are to the microsecond."""
    values = (
        wall_text(outcome.at_s),
        outcome.request_id,
        outcome.path,
        outcome.tenant,
        outcome.class_name,
        _name_of(replica.model) if replica else model,
        outcome.outcome,
        outcome.status,
        outcome.reason,
        outcome.input_tokens,
        outcome.output_tokens,
        None if outcome.ttft_s is None else round(outcome.ttft_s, 6),
        round(outcome.e2e_s, 6),
        outcome.replica_id,
        outcome.attempts,
        "hit" if outcome.given_again else "",
        None if outcome.usd is None else round(outcome.usd, 9),
    )
    return _LINE % tuple(map(json_text, values))
