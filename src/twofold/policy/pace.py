"""How fast the fleet serves by now, learnt from what it served. Mutable, of fixed size.

Beliefs say what a token should take; what requests took says how long places are held, how far beliefs are
off, and how much later than predicted the unluckiest of those that waited began.
"""

import math
from dataclasses import dataclass, field

from twofold.policy.settings import Beliefs

MEMORY_COUNT = 100  # requests over which means are taken
STEP = 0.05  # of a quantile's logarithm, per request
FACTOR_MAX = 10.0  # that beliefs may be off by, either way
MARGIN_MAX = 8.0  # of a prediction
MARGIN_FLOOR_S = 0.05  # added to both sides of a comparison: small times are not judged by their ratio


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
class LogQuantile:
    """Follows a quantile of positive values by small steps of its logarithm.

    Source  Robbins & Monro 1951: a step up of `q` for each larger value and down of `1 - q` for each smaller
            one stands still where a share of `q` is smaller.
    """

    fraction: float
    log: float = 0.0
    log_min: float = -math.inf
    log_max: float = math.inf

    def add(self, log: float) -> None:
        """Fold in the logarithm of a value; infinity: longer than can be known."""
        step = STEP * (self.fraction if log > self.log else self.fraction - 1.0)
        self.log = min(max(self.log + step, self.log_min), self.log_max)


@dataclass(slots=True)
class ClassPace:
    """What is known of one class."""

    margin: LogQuantile
    output_tokens: Mean = field(default_factory=Mean)


class Pace:
    """What requests took: fed when they begin and when they free their place."""

    def __init__(self, attained_fraction: float, class_names: tuple[str, ...]) -> None:
        self.classes = {
            name: ClassPace(LogQuantile(attained_fraction, 0.0, 0.0, math.log(MARGIN_MAX)))
            for name in class_names
        }
        self._place_s, self._place_tokens = Mean(), Mean()
        self._output_token_s = Mean()
        self._began_s, self._believed_s = Mean(), Mean()

    def began(self, believed_s: float, took_s: float) -> None:
        """An attempt began `took_s` after it was sent; beliefs had said `believed_s`."""
        self._began_s.add(took_s)
        self._believed_s.add(believed_s)

    def waited(self, class_name: str, predicted_s: float, took_s: float) -> None:
        """A request that had to wait began this long after it came; infinity: it never did."""
        ratio = (took_s + MARGIN_FLOOR_S) / (predicted_s + MARGIN_FLOOR_S)
        self.classes[class_name].margin.add(math.log(ratio))

    def freed(self, tokens: int, held_s: float) -> None:
        """A request of so many tokens left its place after so long."""
        self._place_s.add(held_s)
        self._place_tokens.add(float(tokens))

    def finished(self, class_name: str, output_tokens: int, wrote_s: float | None) -> None:
        """An answer ended, `wrote_s` after it began."""
        self.classes[class_name].output_tokens.add(float(output_tokens))
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
        lately, token_s = self.classes[class_name].output_tokens, self._output_token_s
        tokens = min(lately.value, output_limit_tokens) if lately.count else output_limit_tokens
        return tokens * (token_s.value if token_s.count else beliefs.output_token_s)

    def wait_s(self, ahead_tokens: float, share: float, place_count: int) -> float | None:
        """Predicted seconds until a place is free behind so many tokens; None: nothing is known yet.

        Formula  (ahead_tokens / tokens + 1) · held_s / (places · share)
        Why      full places free one another every `held_s / places` (Little's law), each for a request of
                 the mean size; `share` is the part of them that this request may count on.
        """
        if not self._place_s.count or not place_count:
            return None
        ahead = ahead_tokens / self._place_tokens.value if self._place_tokens.value > 0 else 0.0
        return (ahead + 1.0) * self._place_s.value / (place_count * share)

    def margin(self, class_name: str) -> float:
        """What to multiply a prediction by, so that the wanted share of requests is within it."""
        return math.exp(self.classes[class_name].margin.log)
