"""How fast the fleet serves by now, learnt from what it served. Mutable, of fixed size.

Beliefs say what a token should take; what requests took says how long places are held, how far beliefs are
off, and how much later than predicted the unluckiest of those that waited began.
"""

from dataclasses import dataclass
from math import inf, sqrt
from statistics import NormalDist

from twofold.policy.gate.settings import Beliefs

MEMORY_COUNT = 100  # requests over which means are taken
FACTOR_MAX = 10.0  # that beliefs may be off by, either way
STEP_SPREADS_VALUE = 0.1  # by which a margin moves per request, in spreads
SPREADS_MAX_VALUE = 10.0
SPREAD_FRACTION = 0.05  # of a prediction that is uncertain however short the queue


@dataclass(slots=True)
class Mean:
    """A running mean over about `MEMORY_COUNT` values, of fewer as long as there are fewer."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        if self.count < MEMORY_COUNT:
            self.count += 1
        self.value += (value - self.value) / self.count


@dataclass(slots=True)
class Quantile:
    """Follows a quantile of values by small steps.

    Source  Robbins & Monro 1951: a step up of `q` for each larger value and down of `1 - q` for each smaller
            one stands still where a share of `q` is smaller.
    """

    fraction: float
    value: float
    step_value: float
    low: float
    high: float = inf

    def add(self, value: float) -> None:
        """Fold in a value; infinity: larger than can be known."""
        step = self.step_value * (self.fraction if value > self.value else self.fraction - 1.0)
        self.value = min(max(self.value + step, self.low), self.high)


class Pace:
    """What requests took: fed when they begin and when they free their place."""

    def __init__(self, attained_fraction: float, class_names: tuple[str, ...]) -> None:
        normal = NormalDist().inv_cdf(attained_fraction)
        self._late_spreads = {  # by class: how late who waits begins, in spreads of the prediction
            name: Quantile(attained_fraction, normal, STEP_SPREADS_VALUE, 0.0, SPREADS_MAX_VALUE)
            for name in class_names
        }
        self._output_tokens = {name: Mean() for name in class_names}
        self._place_s, self._place_tokens = Mean(), Mean()
        self._output_token_s = Mean()
        self._began_s, self._believed_s = Mean(), Mean()

    def began(self, believed_s: float, took_s: float) -> None:
        """An attempt began `took_s` after it was sent; beliefs had said `believed_s`."""
        self._began_s.add(took_s)
        self._believed_s.add(believed_s)

    def waited(self, class_name: str, late_s: float, spread_s: float) -> None:
        """A request that had to wait began so much later than predicted; infinity: it never did."""
        self._late_spreads[class_name].add(late_s / spread_s)

    def freed(self, tokens: int, held_s: float) -> None:
        """A request of so many tokens left its place after so long."""
        self._place_s.add(held_s)
        self._place_tokens.add(float(tokens))

    def finished(self, class_name: str, output_tokens: int, wrote_s: float | None) -> None:
        """An answer ended, `wrote_s` after it began."""
        self._output_tokens[class_name].add(float(output_tokens))
        if wrote_s is not None and output_tokens > 1:
            self._output_token_s.add(wrote_s / (output_tokens - 1))

    def begin_s(self, beliefs: Beliefs, unread_tokens: float) -> float:
        """Predicted seconds from sending to the first token, with so many tokens to be read first.

        Formula  factor · (unread_tokens · input_token_s + first_token_s)
        Why      the factor is what attempts lately took over what beliefs said; it takes up prefix hits, and
                 prefills that share their steps with decoding.
        """
        factor = 1.0
        if self._believed_s.value > 0.0:
            factor = min(max(self._began_s.value / self._believed_s.value, 1 / FACTOR_MAX), FACTOR_MAX)
        return factor * (unread_tokens * beliefs.input_token_s + beliefs.first_token_s)

    def write_s(self, beliefs: Beliefs, class_name: str, output_limit_tokens: int) -> float:
        """Predicted seconds from the first token to the last: of an answer as long as its class's lately."""
        lately, token_s = self._output_tokens[class_name], self._output_token_s
        tokens = min(lately.value, output_limit_tokens) if lately.count else output_limit_tokens
        return tokens * (token_s.value if token_s.count else beliefs.output_token_s)

    def wait_s(self, ahead_tokens: float, share: float, place_count: int) -> tuple[float, float] | None:
        """Predicted seconds until a place is free behind so many tokens, and their spread; None: not known.

        Formula  (n + 1) · s and s · sqrt(n + 1), with s = held_s / (places · share), n = ahead / tokens
        Why      full places free one another every `held_s / places` (Little's law), each for a request of
                 the mean size; `share` is the part of them that this request may count on. Places that free
                 independently make a sum of n + 1 waits of mean and deviation s.
        """
        if not self._place_s.count or not place_count:
            return None
        ahead_count = ahead_tokens / self._place_tokens.value if self._place_tokens.value > 0 else 0.0
        one_s = self._place_s.value / (place_count * share)
        return (ahead_count + 1.0) * one_s, one_s * sqrt(ahead_count + 1.0)

    def late_s(self, class_name: str, spread_s: float) -> float:
        """How much later than predicted a request may begin, for the wanted share to be no later."""
        return self._late_spreads[class_name].value * spread_s
