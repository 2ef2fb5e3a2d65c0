"""What becomes of each request at the gateway, for counters, a log of requests and traces.

It is told by the driver what the gate is told and answers, keeps what is open by id, and hands on one
`Outcome` per request when it ends. Nothing here decides, waits or may fail a request.
"""

import time
from collections.abc import Callable, Iterable

from twofold.live.gateway.answers import Used
from twofold.live.gateway.kept_answers import WholeAnswer
from twofold.live.gateway.openai_requests import GenerationRequest
from twofold.live.line_file import LineFile
from twofold.policy.gate import events
from twofold.policy.gate.settings import OverflowSettings

OPEN_MAX = 1 << 16  # requests that are followed at once; beyond, the oldest is forgotten and counted
FINISHED, REFUSED, FAILED, LEFT = "finished", "refused", "failed", "left"
NO_CLASS = "(none)"  # of a request that was turned away before anybody asked for its class
CLIENT_LEFT_STATUS = 499  # as servers write it: nobody was there to be answered
BAD_GATEWAY = 502


class Outcome:
    """One request from its arrival to its end. Mutable until it has ended.

    HOT: per request. Frozen, and written anew at each step, it took three times as long; a dataclass sets all
    these when it is made, of which most stay.
    """

    outcome: str = ""
    reason: str = ""
    status: int = 0
    output_tokens: int = 0
    ttft_s: float | None = None
    e2e_s: float = 0.0
    replica_id: str = ""
    attempts: int = 0
    given_again: bool = False  # by what was kept of an earlier answer
    usd: float | None = None  # that the hosted API asks for it; None: it was not sent there
    asked: GenerationRequest | None = None  # of one whose text is kept …
    answer: WholeAnswer | None = None  # … and of one that was answered whole
    tiers_s: dict[str, float] | None = None  # that it took in each CPU tier; None: it passed none
    zone: str = ""  # where its client is, as that says

    def __init__(
        self,
        request_id: str,  # as its client, or we, named it
        path: str,  # that was asked, of the protocol's
        tenant: str,
        class_name: str,
        arrived_s: float,  # monotonic
        input_tokens: int | None = None,  # as the engine counted, else as guessed from the prompt
    ) -> None:
        self.request_id, self.path, self.tenant, self.class_name = request_id, path, tenant, class_name
        self.at_s = time.time() - (time.monotonic() - arrived_s)  # of its arrival, seconds since 1970
        self.arrived_s = arrived_s
        self.input_tokens = input_tokens

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds of a token after the first; None where there was none, or none was seen begin."""
        if self.ttft_s is None or self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


Sink = Callable[[Outcome], None]


class Telemetry:
    """Mutable: the requests that are open, and what was counted beside them."""

    def __init__(
        self,
        sinks: Iterable[Sink] = (),
        overflow: OverflowSettings | None = None,
        mistaken: Callable[[Exception], None] | None = None,  # told of a sink's mistake; None: it is raised
    ) -> None:
        self.sinks, self._overflow, self._mistaken = list(sinks), overflow, mistaken
        self.hedge_count = self.retry_count = self.forgotten_count = 0
        self.degrade_level = 0
        self.logs: dict[str, LineFile] = {}  # beside the gate's own, by what they are of
        self.release: tuple[str, float] | None = None  # under trial: its version and share
        self._open: dict[int, Outcome] = {}
        self._next: Outcome | None = None

    def arrives(self, asked: tuple[str, str], arrived: events.RequestArrived, now_s: float) -> None:
        """The gate is about to be told of a request, its name and path; the next unknown one is it."""
        self._next = Outcome(*asked, arrived.tenant, arrived.class_name, now_s, arrived.input_tokens)
        self._next.zone = arrived.zone

    def decided(self, effect: events.Decision | events.GiveUp, now_s: float) -> None:
        """What becomes of a request, or of an attempt of it."""
        asked = self._open.get(effect.request_id)
        if asked is None:
            if (asked := self._next) is None:
                return
            self._next = None
            if len(self._open) >= OPEN_MAX:
                del self._open[next(iter(self._open))]
                self.forgotten_count += 1
            self._open[effect.request_id] = asked
        if isinstance(effect, events.Send):
            asked.attempts, asked.replica_id = asked.attempts + 1, effect.replica_id
            if self._overflow is not None and effect.replica_id == self._overflow.replica_id:
                asked.usd = self._overflow.usd(asked.input_tokens or 0, 0)  # its prompt, should it break off
        elif isinstance(effect, events.Refuse):
            self._end(effect.request_id, REFUSED, effect.reason.value, effect.status, now_s)
        elif isinstance(effect, events.GiveUp):
            self._end(effect.request_id, FAILED, effect.cause.value, BAD_GATEWAY, now_s)

    def keep_text(self, request_id: int, request: GenerationRequest) -> None:
        """The text of this one is to be kept."""
        asked = self._open.get(request_id)
        if asked is not None:
            asked.asked = request

    def keep_answer(self, request_id: int, answer: WholeAnswer | None) -> None:
        """With this answer, which is about to end."""
        asked = self._open.get(request_id)
        if asked is not None:
            asked.answer = answer

    def passed(self, told: events.TierPassed) -> None:
        """A request is through a CPU tier."""
        asked = self._open.get(told.request_id)
        if asked is not None:
            asked.tiers_s = {**(asked.tiers_s or {}), told.tier: told.took_s}

    def again(self, *, hedged: bool) -> None:
        """An attempt after the first: beside it, or in its place."""
        if hedged:
            self.hedge_count += 1
        else:
            self.retry_count += 1

    def started(self, request_id: int, now_s: float) -> None:
        """The first token came."""
        asked = self._open.get(request_id)
        if asked is not None and asked.ttft_s is None:
            asked.ttft_s = now_s - asked.arrived_s

    def wrote(self, request_id: int, output_tokens: int) -> None:
        """So much of an answer has come: the hosted API asks for it, be the rest cut off or not wanted."""
        asked = self._open.get(request_id)
        if asked is not None and self._overflow and asked.replica_id == self._overflow.replica_id:
            asked.usd = self._overflow.usd(asked.input_tokens or 0, output_tokens)

    def ended(
        self,
        request_id: int,
        replica_id: str,
        status: int,
        tokens: tuple[int | None, int],  # read, where the engine said so, and written
        now_s: float,
    ) -> None:
        """The whole answer came; a status other than 200 is the engine's refusal."""
        asked = self._open.get(request_id)
        if asked is None:
            return
        read, asked.output_tokens = tokens
        if read is not None:
            asked.input_tokens = read
        asked.replica_id = replica_id or asked.replica_id
        if self._overflow is not None and asked.replica_id == self._overflow.replica_id:
            asked.usd = (
                self._overflow.usd(asked.input_tokens or 0, asked.output_tokens) if status == 200 else 0.0
            )
        answered = status == 200
        self._end(request_id, FINISHED if answered else REFUSED, "" if answered else "engine", status, now_s)

    def given_again(self, request_id: int, used: Used, now_s: float) -> None:
        """An answer that was kept is given: all of it at once, from no replica."""
        asked = self._open.get(request_id)
        if asked is not None:
            asked.given_again, asked.ttft_s = True, now_s - asked.arrived_s
            self.ended(request_id, "", 200, (used.input_tokens, used.output_tokens), now_s)

    def left(self, request_id: int, now_s: float) -> None:
        """The client left."""
        self._end(request_id, LEFT, "client-left", CLIENT_LEFT_STATUS, now_s)

    def turned_away(self, asked: tuple[str, str], tenant: str, status: int, reason: str) -> None:
        """A request that the gate never heard of: it could not be read, or asked for what is not there."""
        told = Outcome(*asked, tenant, NO_CLASS, time.monotonic())
        told.outcome = REFUSED
        told.status, told.reason = status, reason or "bad-request"
        self._hand_on(told)

    def lost_lines(self) -> dict[str, int]:
        """Of each log beside the gate's, the lines that no disk would take."""
        return {name: log.lost_lines for name, log in self.logs.items()}

    def steered(self, effect: events.Effect) -> None:
        """What the gate says of answers that get worse and of releases."""
        match effect:
            case events.Degrade():
                self.degrade_level = effect.level
            case events.StageRelease():
                self.release = effect.version, effect.share
            case events.PromoteRelease():
                self.release = effect.version, 1.0
            case events.RollBackRelease():
                self.release = effect.version, 0.0

    def _end(self, request_id: int, outcome: str, reason: str, status: int, now_s: float) -> None:
        asked = self._open.pop(request_id, None)
        if asked is None:
            return
        asked.outcome, asked.reason, asked.status = outcome, reason, status
        asked.e2e_s = now_s - asked.arrived_s
        self._hand_on(asked)

    def _hand_on(self, outcome: Outcome) -> None:
        for sink in self.sinks:
            try:
                sink(outcome)
            except Exception as error:
                if self._mistaken is None:
                    raise
                self._mistaken(error)  # it fails no request, and no other sink
        outcome.asked = outcome.answer = None  # who keeps the outcome for a while keeps no text
