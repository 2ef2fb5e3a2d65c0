"""How long an attempt may be silent before it has failed: by what was promised and what is believed.

The driver's clock decides; the formulas stand here, so that nothing is waited for by a constant of its own.
"""

import math

from twofold.policy.gate.fleet_view import Request
from twofold.policy.gate.settings import Beliefs
from twofold.policy.machine import record

LEAST_S = 2.0  # below, a pause of the machine would be taken for a dead replica
GOAL_RATIO = 3.0  # of what was promised or believed: later than that nobody expects it
STALL_RATIO = 10.0  # of one token's time: others' prompts share its steps


@record
class Patience:
    """Of one attempt; infinite where its class promises nothing, and the driver's own bounds hold."""

    first_s: float = math.inf  # from sending to the first token
    between_s: float = math.inf  # from one piece of an answer to the next
    whole_s: float = math.inf  # from sending to the end of an answer that comes in one piece


NO_PROMISE = Patience()


def patience_of(request: Request, beliefs: Beliefs, longest_tokens: int = 0) -> Patience:
    """Of a request's latest attempt, as it was sent.

    Formula  reading  unread tokens of the replica · input_token_s
             token    max(TPOT goal, output_token_s)
             first    max(2 s, 3 · max(TTFT goal, reading + first_token_s))
             between  max(2 s, 10 · token + 3 · max(reading, longest_tokens · input_token_s))
             whole    max(first, 3 · (E2E goal; without one: first / 3 + output limit · token))
    Why      a replica that hangs accepts connections: only silence tells. Three times a p95 that was promised
             is silence, not bad luck; where a longer queue is known, it is waited for. A replica that reads
             others' prompts writes nothing meanwhile, and the longest may come right after this was sent.
    Limits   a class with a goal for whole answers alone has that as its goal for the first token.
    """
    kind, replica = request.kind, request.attempt.replica
    goal_s = kind.ttft_slo_s or kind.e2e_slo_s
    if goal_s is None:
        return NO_PROMISE
    reading_s = replica.unread_input_tokens * beliefs.input_token_s
    longest_s = longest_tokens * beliefs.input_token_s
    first_s = max(LEAST_S, GOAL_RATIO * max(goal_s, reading_s + beliefs.first_token_s))
    token_s = max(kind.tpot_slo_s or 0.0, beliefs.output_token_s)
    between_s = max(LEAST_S, STALL_RATIO * token_s + GOAL_RATIO * max(reading_s, longest_s))
    answered_s = kind.e2e_slo_s or first_s / GOAL_RATIO + request.output_limit_tokens * token_s
    return Patience(first_s, between_s, max(first_s, GOAL_RATIO * answered_s))
