"""The log of requests: one line of JSON for each that ended, apart from what the gate was told.

`at` is its arrival, UTC; `model` is what the replica serves, on `up` the digest of the artefact; `endpoint`
is the hosted API's, for what went there. No prompt and no answer is in it. Lines are written a few times a
second, not per request: kill -9 loses the last ones, which the gate's own log has. Each is numbered and
hangs on the one before it, so that what is there can be shown to be what the gateway wrote.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path, PurePath

from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.telemetry import Outcome
from twofold.live.line_file import LineFile, wall_text
from twofold.policy.lines import json_text

FLUSH_EVERY_S = 0.2
FLUSH_COUNT = 128  # that wait at most


def requests_log(state: Path) -> Path:
    """The log of the service whose state this is."""
    return state / "gateway" / "requests.jsonl"


def samples_log(state: Path) -> Path:
    """The text of some of its requests, where the spec opts in."""
    return state / "gateway" / "samples.jsonl"


def key_beside(log: Path) -> Path:
    """The key of its seals: beside the state that the log is in, which is copied around and removed."""
    state = log.absolute().parent.parent
    return state.parent / f"{state.name}-log.key"


class RequestLog:
    """The writer. Mutable: it holds what ended since the last flush; lives in one event loop.

    HOT: lines are made at the flush, one after the other: made at each request's end they took twice as long.
    """

    def __init__(
        self,
        file: LineFile,
        replicas: Mapping[str, GatewayReplica],
        model: str,
        hosted: GatewayReplica | None = None,
    ) -> None:
        self.file, self._replicas, self._model, self._hosted = file, replicas, model, hosted
        self._waiting: list[tuple[Outcome, GatewayReplica | None]] = []
        self._count = 0  # that wait for the flush
        self._timer: asyncio.TimerHandle | None = None

    def line(self, outcome: Outcome, replica: GatewayReplica | None) -> str | None:
        """What is written of it and of what answered; None: nothing after all."""
        return line_of(outcome, replica, self._model)

    def _there(self, outcome: Outcome) -> GatewayReplica | None:
        """What answered it, a hosted API too."""
        hosted = self._hosted
        if hosted is not None and outcome.replica_id == hosted.replica_id:
            return hosted
        return self._replicas.get(outcome.replica_id)

    def saw(self, outcome: Outcome) -> None:
        """One request ended."""
        self._waiting.append((outcome, self._there(outcome)))
        self._waits()

    def _waits(self) -> None:
        """One more is to be written."""
        self._count += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self._flush)
        if self._count >= FLUSH_COUNT:
            self._write(self.file.write_lines)

    def stop(self) -> None:
        """Write what waits, and close."""
        try:
            self._flush()
        finally:
            self.file.stop()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._write(self.file.flush)

    def _write(self, write: Callable[[], None]) -> None:
        waiting, self._waiting, self._count = self._waiting, [], 0
        try:
            for outcome, replica in waiting:
                if (line := self.line(outcome, replica)) is not None:
                    self.file.append(line)
        finally:  # a mistake in one line loses those behind it, and no more
            write()


@lru_cache(maxsize=256)  # HOT: per request; a replica's model is a path, one of few
def _name_text(model: str) -> str:
    return json_text(PurePath(model).name)


def line_of(outcome: Outcome, replica: GatewayReplica | None, model: str) -> str:
    """Its line: what is not known is null, seconds are to the microsecond.

    HOT: per request; all that is put in is text before, which is what compiled code is fast with.
    """
    at = wall_text(outcome.at_s)
    name: str = _name_text(replica.model) if replica else json_text(model)
    ttft_s = "null" if outcome.ttft_s is None else json_text(_whole_us(outcome.ttft_s))
    e2e_s = json_text(_whole_us(outcome.e2e_s))
    tokens = json_text(outcome.input_tokens)
    cache = "hit" if outcome.given_again else ""
    usd, endpoint = "null", ""
    if outcome.usd is not None:
        usd, endpoint = json_text(round(outcome.usd, 9)), "" if replica is None else replica.base
    zone = f',"zone":{json_text(outcome.zone)}' if outcome.zone else ""
    tiers = f',"tiers_s":{json_text(_rounded(outcome.tiers_s))}' if outcome.tiers_s is not None else ""
    return (
        f'{{"at":"{at}","request_id":{json_text(outcome.request_id)},"path":{json_text(outcome.path)},'
        f'"tenant":{json_text(outcome.tenant)},"class":{json_text(outcome.class_name)},"model":{name},'
        f'"outcome":"{outcome.outcome}","status":{outcome.status},"reason":{json_text(outcome.reason)},'
        f'"input_tokens":{tokens},"output_tokens":{outcome.output_tokens},"ttft_s":{ttft_s},"e2e_s":{e2e_s},'
        f'"replica":{json_text(outcome.replica_id)},"attempts":{outcome.attempts},"cache":"{cache}",'
        f'"usd":{usd},"endpoint":{json_text(endpoint)}{zone}{tiers}}}'
    )


def _whole_us(seconds: float) -> float:
    """To the nearest microsecond. HOT: per request; `round` searches for the shortest text first."""
    return int(seconds * 1e6 + 0.5) / 1e6


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(each_s, 6) for name, each_s in seconds.items()}
