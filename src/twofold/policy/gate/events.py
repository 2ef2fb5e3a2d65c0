"""What happens to the gate and what it wants done: two closed unions, each value one line of JSON.

An event holds only what a real system knows by then: an arrival has no id (the machine gives it one, and its
Send, Hold, Refuse or GiveAgain names it) and no true output length. The driver reports every attempt's end
exactly once (ended, failed, or its client left), as it does every probe's; what comes late is ignored.
"""

from enum import Enum

from twofold.policy.lines import LineFormat
from twofold.policy.machine import Woke, record


class Cause(Enum):
    """Why an attempt or a probe failed."""

    REFUSED = "refused"  # nobody listens: the process is gone
    TIMEOUT = "timeout"
    BROKEN = "broken"  # the connection was lost
    ERROR = "error"  # the replica answered 5xx


class RefusalReason(Enum):
    """Why a request was not taken."""

    FULL = "full"  # every healthy replica is at its limit: 429
    NO_REPLICA = "no-replica"  # no replica is healthy: 503
    RATE = "rate"  # its tenant or class asks too often: 429
    SLO = "slo"  # it would miss its deadline: 429
    QUEUE_FULL = "queue-full"  # its class has a bounded queue, and that is full: 429
    EXPIRED = "expired"  # it was held past its deadline: 503
    SHED = "shed"  # its class is not served under this pressure: 503
    RETRY = "retry"  # its client asked before, and no more repeats are let in: 429
    POISON = "poison"  # replicas died that had its prompt: 422
    TIER_FULL = "tier-full"  # too many wait for a place of a CPU tier: 429
    TIER_LATE = "tier-late"  # no place of a CPU tier came free in time: 503


# --- events ---


@record
class ReplicaAdded:
    """A replica may be sent requests; of a known one, all of this changes."""

    replica_id: str
    in_flight_limit: int
    zone: str = ""
    pool: str = ""
    model: str = ""
    version: str = ""


@record
class ReplicaRemoved:
    """A replica is sent nothing new; what it has runs on."""

    replica_id: str


@record
class ReplicaStartFailed:
    """A replica that StartReplica asked for will not come."""

    replica_id: str


@record
class ReplicaReported:
    """What a replica said of itself at `observed_s`, as late as it came."""

    replica_id: str
    observed_s: float
    running_count: int
    waiting_count: int
    kv_used_fraction: float


@record
class BeliefsChanged:
    """The replicas are found to be faster or slower than was believed; old work is priced anew."""

    input_token_s: float
    output_token_s: float
    first_token_s: float = 0.0


@record
class RequestArrived:
    """A client asks; the answer is exactly one Send, Hold, Refuse or GiveAgain."""

    input_tokens: int
    output_limit_tokens: int
    tenant: str = ""
    class_name: str = ""
    session_id: str = ""
    prefix_blocks: tuple[int, ...] = ()  # hashes of the prompt's leading blocks, in order
    model: str = ""
    zone: str = ""
    deadline_s: float | None = None  # on the gate's clock; None: the class's
    retry_count: int = 0  # how often its client asked for the same before, as the client says
    prompt_digest: str = ""  # equal for equal prompts; "": not told
    answer_key: str = ""  # equal for requests of equal answers; "": it may have another answer each time
    only_here: bool = False  # it asks for what the hosted API would not heed


@record
class ResponseStarted:
    """The first byte of an answer came. Attempt 0 is the latest."""

    request_id: int
    attempt: int = 0


@record
class ResponseEnded:
    """The whole answer came."""

    request_id: int
    output_tokens: int
    quality_score: float | None = None  # of a judged answer, 0 to 1
    attempt: int = 0
    input_tokens: int | None = None  # that the replica counted; None: it did not say
    answer_bytes: int = 0  # of an answer that may be kept for repeats; 0: it may not


@record
class ResponseFailed:
    """An attempt of a request failed."""

    request_id: int
    cause: Cause
    attempt: int = 0


@record
class ClientLeft:
    """Nobody waits for the answer any more."""

    request_id: int


@record
class TierAnswered:
    """A tier's server has done its work for the request."""

    request_id: int
    tier: str
    attempt: int  # of the AskTier that this is the end of
    input_tokens: int | None = None  # of the prompt as it made it; None: as it was


@record
class TierFailed:
    """A tier's server failed the request."""

    request_id: int
    tier: str
    attempt: int  # of the AskTier that this is the end of
    cause: Cause


@record
class ProbeAnswered:
    """The replica is there; whether it can also answer requests, requests show."""

    replica_id: str
    number: int  # of the Probe that this is the end of


@record
class ProbeFailed:
    """The replica is not there, or too slow to say so."""

    replica_id: str
    number: int  # of the Probe that this is the end of
    cause: Cause


@record
class ReleaseOffered:
    """A new version is to be tried on a share of a pool's requests.

    Where a gate has two pools and none is named, it is tried where somebody waits for answers, and what is
    promoted there replaces the other pool's replicas too: one release, one verdict.
    """

    version: str
    pool: str = ""


@record
class ReleaseWithdrawn:
    """The trial of a version is called off."""

    version: str


@record
class AnswerScored:
    """A release and what runs beside it were asked the same on the side, and their answers were judged."""

    version: str  # of the release
    score: float  # of its answer: from 0, worthless, to 1
    beside_score: float  # of the other's answer
    pool: str = ""


Answered = ResponseStarted | ResponseEnded | ResponseFailed
Probed = ProbeAnswered | ProbeFailed
Steered = ReplicaStartFailed | ReleaseOffered | ReleaseWithdrawn | AnswerScored
FleetChanged = ReplicaAdded | ReplicaRemoved | ReplicaReported | BeliefsChanged
Tiered = TierAnswered | TierFailed
Event = RequestArrived | Answered | ClientLeft | Probed | Woke | FleetChanged | Steered | Tiered

# --- effects ---


@record
class Send:
    """Pass the request to the replica; `attempt` counts from 1."""

    request_id: int
    replica_id: str
    attempt: int
    output_limit_tokens: int | None = None  # None: as asked; a number: no longer than this
    model: str = ""  # "": as asked; else a permitted smaller variant


@record
class Hold:
    """Let the request wait in the gate; a Send, Refuse or GiveUp follows on a later event."""

    request_id: int


@record
class AskTier:
    """Have a tier's server work for a held request; TierAnswered or TierFailed with this attempt follows."""

    request_id: int
    tier: str
    replica_id: str
    attempt: int


@record
class TierPassed:
    """A request is through a tier: how long it waited for a place, and how long it took. To be told."""

    request_id: int
    tier: str
    wait_s: float
    took_s: float


@record
class Refuse:
    """Answer with `status` and Retry-After; nothing went to any replica."""

    request_id: int
    reason: RefusalReason
    status: int
    retry_after_s: float


@record
class GiveAgain:
    """Answer at once with what is kept under the number; nothing goes to any replica, and nothing follows."""

    request_id: int
    answer_id: int


@record
class KeepAnswer:
    """Keep the bytes of the answer that just ended, under this number."""

    request_id: int
    answer_id: int


@record
class DropAnswers:
    """Forget what is kept under these numbers."""

    answer_ids: tuple[int, ...]


@record
class GiveUp:
    """End the request with an error: 502, or an error in the stream if the answer has begun."""

    request_id: int
    cause: Cause


@record
class Cancel:
    """Stop one attempt, of which nothing is to be reported any more: a hedge was faster.

    Attempt 0 at replica "": a held request whose client left; there is nothing to stop.
    """

    request_id: int
    replica_id: str
    attempt: int


@record
class Probe:
    """Ask whether the replica is there, and give `number` back: answers may overtake each other."""

    replica_id: str
    number: int  # of the gate's turn of probes, from 1; a turn asks each replica once


@record
class OpenCircuit:
    """Nothing is sent to the replica until a probe is answered after `until_s`. To be told, not done."""

    replica_id: str
    until_s: float


@record
class CloseCircuit:
    """The replica is sent requests again. To be told, not done."""

    replica_id: str


@record
class EjectReplica:
    """The replica is an outlier and is sent nothing until then. To be told, not done."""

    replica_id: str
    until_s: float


@record
class ReadmitReplica:
    """An ejected replica is tried again. To be told, not done."""

    replica_id: str


@record
class StartReplica:
    """Start a replica under this id; ReplicaAdded when it is ready, or ReplicaStartFailed."""

    replica_id: str
    pool: str
    zone: str
    model: str
    version: str


@record
class StopReplica:
    """Let the replica finish what it has, then end it."""

    replica_id: str


@record
class StageRelease:
    """From now on this share of the requests goes to the version. To be told, not done."""

    version: str
    share: float


@record
class PromoteRelease:
    """The version passed its trial: all is to run on it. `reason`: what too few answers told to judge it."""

    version: str
    reason: str = ""


@record
class RollBackRelease:
    """The version failed its trial: nothing more is sent to it."""

    version: str
    reason: str


@record
class BlockPrompt:
    """Requests with this prompt are refused until then: replicas died that had it. To be told, not done."""

    prompt_digest: str
    until_s: float


@record
class Degrade:
    """Answers get worse (a higher level) or better. To be told, not done; each Send says what it means."""

    level: int


@record
class FailOverZone:
    """The zone is avoided. To be told, not done."""

    zone: str


@record
class RestoreZone:
    """The zone is used again. To be told, not done."""

    zone: str


Decision = Send | Hold | Refuse | GiveAgain  # the answer to a RequestArrived
Trusted = (
    OpenCircuit | CloseCircuit | EjectReplica | ReadmitReplica | FailOverZone | RestoreZone | BlockPrompt
)
Released = Send | Refuse | GiveUp  # what becomes of a request that was held
ScaledTo = StartReplica | StopReplica
Staged = StageRelease | PromoteRelease | RollBackRelease
InTiers = AskTier | TierPassed
Ended = GiveUp | KeepAnswer | DropAnswers | Cancel
Effect = Decision | Ended | InTiers | Probe | Trusted | ScaledTo | Staged | Degrade

# --- one per line ---

to_line = LineFormat[Event, Effect](Event, Effect).to_line
