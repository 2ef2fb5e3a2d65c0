"""The loss that a training run is expected to end at, by published scaling laws.

They know nothing of a data set, a tokenizer or a recipe: they were fitted to runs of one, and say so little
of others that their loss is a yardstick between plans, not a promise.
"""

from dataclasses import dataclass
from math import inf
from typing import Self

from twofold.perf.constants import Constants

FITTED_PARAMETERS, FITTED_TOKENS = (70e6, 16e9), (5e9, 500e9)  # of the runs that both were fitted to
# The refit comes first, as the middle: it lies nearer to those runs than what their authors printed.
LAWS = ("besiroglu-2024", "hoffmann-2022")


@dataclass(frozen=True, slots=True)
class LossLaw:
    """One law's five constants: losses in nats per token."""

    entropy_nats: float  # what no model and no data take away
    parameters_nats: float  # what the size of the model leaves, times parameters^exponent
    parameters_exponent: float
    tokens_nats: float  # what the data leave, times tokens^exponent
    tokens_exponent: float

    @classmethod
    def of(cls, name: str, constants: Constants) -> Self:
        """The law of that name as the table of constants holds it."""
        return cls(
            constants.get("loss_entropy_nats", law=name),
            constants.get("loss_parameters_nats", law=name),
            constants.get("loss_parameters_exponent", law=name),
            constants.get("loss_tokens_nats", law=name),
            constants.get("loss_tokens_exponent", law=name),
        )

    def loss_nats(self, parameter_count: float, token_count: float) -> float:
        """Cross-entropy per token at the end of a pretraining run.

        Formula  E + A/N^α + B/D^β
        Why      E is the entropy of text, A/N^α what a model of N parameters cannot hold of it, B/D^β what D
                 tokens, each seen once, have not taught it.
        Units    N parameters, D tokens; nats per token of the law's own tokenizer (32,000 words).
        Source   Hoffmann et al. 2022, arXiv:2203.15556, approach 3; refitted to the same runs by Besiroglu et
                 al. 2024, arXiv:2404.10102.
        Limits   dense transformers from 70 M to 16 B parameters on 5 to 500 Gtok of web text, learning rate
                 decayed over the run; no repeated data, no later stage. Raises nothing.

        >>> law = LossLaw(1.69, 406.4, 0.34, 410.7, 0.28)
        >>> round(law.loss_nats(70e9, 1.4e12), 3)
        1.937
        """
        left_nats = self.tokens_nats / token_count**self.tokens_exponent
        return float(self._at_least_nats(parameter_count) + left_nats)

    def tokens_for(self, loss_nats: float, parameter_count: float) -> float:
        """Tokens at which such a model ends at that loss; infinite where no number of them gets it there."""
        left_nats = loss_nats - self._at_least_nats(parameter_count)
        if left_nats <= 0.0:
            return inf
        return float((self.tokens_nats / left_nats) ** (1.0 / self.tokens_exponent))

    def _at_least_nats(self, parameter_count: float) -> float:
        left_nats = self.parameters_nats / parameter_count**self.parameters_exponent
        return float(self.entropy_nats + left_nats)


def loss_laws(constants: Constants) -> tuple[LossLaw, ...]:
    """Every law, the one that is taken as the middle first."""
    return tuple(LossLaw.of(name, constants) for name in LAWS)
