"""Keeps small gradients of fp16 above zero: the loss is scaled up, steps that overflow are left out.

Every rank decides by the norm over all ranks, so that all decide alike, and a resumed run goes on with the
scale that it had.
"""

from dataclasses import dataclass

import torch

FIRST_SCALE = 2.0**16
GROWS_AFTER_STEPS = 2000  # without an overflow
LARGEST_SCALE = 2.0**24


@dataclass(slots=True)
class LossScale:
    """The scale of a run in fp16; of any other, 1 for ever. Mutable."""

    scale: float
    good_steps: int = 0

    @classmethod
    def of(cls, precision: str) -> "LossScale":
        """As a run of this precision begins."""
        return cls(FIRST_SCALE if precision == "fp16" else 1.0)

    def heard(self, *, is_finite: bool) -> bool:
        """Whether a step with such gradients counts; the scale of the next one follows."""
        if self.scale == 1.0:
            return True
        if not is_finite:
            self.scale, self.good_steps = max(2.0, self.scale / 2), 0
            return False
        self.good_steps += 1
        if self.good_steps >= GROWS_AFTER_STEPS:
            self.scale, self.good_steps = min(LARGEST_SCALE, 2 * self.scale), 0
        return True

    def state(self) -> torch.Tensor:
        """What a checkpoint keeps of it."""
        return torch.tensor([self.scale, float(self.good_steps)], dtype=torch.float64)

    def restore(self, state: torch.Tensor) -> None:
        """Go on as a checkpoint says."""
        self.scale, self.good_steps = float(state[0]), int(state[1])
