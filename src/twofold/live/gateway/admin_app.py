"""The gateway's second server, for the controller alone: what happened to the fleet, and what is to be done.

POST /events    the controller tells of replicas and releases; an address comes with each ReplicaAdded
GET  /effects   what the gate wants done beyond requests, numbered; waits for it when asked to
GET  /state     what the gate knows, whom it heard when, and figures of late
GET  /metrics   its counters for Prometheus; GET /metrics/engines: those of the engines, by replica

It listens on loopback, on its own port, and asks for its own key. A restart of the gateway is seen by
`incarnation`: numbers of effects begin anew with it.
"""

import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, get_args
from urllib.parse import parse_qs

from twofold.core.data import DataError, from_data, to_data
from twofold.live import metrics_text
from twofold.live.gateway.engine_series import engine_series
from twofold.live.gateway.gateway_config import MOST, GatewayReplica, refuse_replica
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.policy.gate import events

Message = dict[str, Any]
BODY_LIMIT_BYTES = 1 << 20
WAIT_S_MAX = 30.0
COUNT_MAX = 1 << 31
CLOCKS_APART_S = 1.0
TOLD: dict[str, type[Any]] = {
    each.__name__: each for each in (*get_args(events.FleetChanged), *get_args(events.Steered))
}


class AdminApp:
    """The application. Mutable only through its driver."""

    def __init__(self, driver: GateDriver, key: str) -> None:
        self.driver, self._key = driver, f"Bearer {key}".encode()
        self.incarnation = secrets.token_hex(8)

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        status, data = await self._answer(scope, receive)
        kind = metrics_text.CONTENT_TYPE if isinstance(data, str) else b"application/json"
        body = (data if isinstance(data, str) else json.dumps(data)).encode()
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Message, receive: Callable[[], Awaitable[Message]]) -> tuple[int, Any]:
        shown = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(shown, self._key):
            return 401, {"error": "the controller's key is needed"}
        match scope["method"], scope["path"]:
            case "GET", "/state":
                beliefs = to_data(self.driver.gate.view.beliefs)
                told = {"incarnation": self.incarnation, "beliefs": beliefs}
                return 200, {**told, **self.driver.admin_state()}
            case "GET", "/metrics":
                return 200, self.driver.metrics()
            case "GET", "/metrics/engines":
                return 200, await engine_series(dict(self.driver.replicas))
            case "GET", "/effects":
                return await self._effects(scope["query_string"])
            case "POST", "/events":
                body = await _body(receive)
                return (413, {"error": "too large"}) if body is None else self._told(body)
        return 404, {"error": "there is nothing there"}

    async def _effects(self, query: bytes) -> tuple[int, Any]:
        asked = parse_qs(query.decode("latin-1"))
        try:
            after = int(asked.get("after", ["0"])[0])
            wait_s = min(float(asked.get("wait_s", ["0"])[0]), WAIT_S_MAX)
        except ValueError as error:
            return 400, {"error": str(error)}
        found = await self.driver.effects_after(after, wait_s)
        told = [[number, {"type": type(effect).__name__, **to_data(effect)}] for number, effect in found]
        return 200, {"incarnation": self.incarnation, "effects": told}

    def _told(self, body: bytes) -> tuple[int, Any]:
        """All events of a body or none: what is wrong with one says so."""
        try:
            told = json.loads(body)["events"]
            digests = [each.pop("gate_digest") for each in told if "gate_digest" in each]
            happened = [_read_event(each) for each in told]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            return 400, {"error": f"no events: {error}"}
        self.driver.told(happened)
        if (
            digests and self.driver.gate_digest
        ):  # of the gate that was built, with what it believes from now on
            self.driver.gate_digest = str(digests[-1])
        return 200, {"incarnation": self.incarnation, "told": len(happened)}


def _read_event(data: dict[str, Any]) -> tuple[events.Event, GatewayReplica | None]:
    fields = dict(data)
    kind, address = TOLD[fields.pop("type")], fields.pop("address", None)
    event = from_data(kind, fields)
    if not isinstance(event, events.ReplicaAdded):
        _refuse_nonsense(event, time.monotonic())
        return event, None
    if not isinstance(address, dict):
        raise DataError("a replica needs an `address`", "ReplicaAdded")
    known = {**address, "replica_id": event.replica_id, "in_flight_limit": event.in_flight_limit}
    replica = from_data(GatewayReplica, known)
    refuse_replica(replica)
    return event, replica


def _refuse_nonsense(event: events.Event, now_s: float) -> None:
    """Values that no fleet has, and that the gate would act on. Raises DataError."""
    match event:
        case events.ReplicaReported():
            if not (0 <= event.running_count < COUNT_MAX and 0 <= event.waiting_count < COUNT_MAX):
                raise DataError("requests are counted from 0", "running_count, waiting_count")
            if not 0.0 <= event.kv_used_fraction <= 1.0:
                raise DataError("a fraction is from 0 to 1", "kv_used_fraction")
            if event.observed_s > now_s + CLOCKS_APART_S:  # what is true from then on would stay true
                raise DataError("it lies in the future of this machine's monotonic clock", "observed_s")
        case events.AnswerScored():
            if not (0.0 <= event.score <= 1.0 and 0.0 <= event.beside_score <= 1.0):
                raise DataError("a score is from 0 to 1", "score, beside_score")
        case events.BeliefsChanged():
            if not all(0.0 <= each < MOST for each in to_data(event).values()):
                raise DataError("seconds are 0 or more", "input_token_s, output_token_s, first_token_s")


async def _body(receive: Callable[[], Awaitable[Message]]) -> bytes | None:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
        if len(body) > BODY_LIMIT_BYTES:
            return None
    return body
