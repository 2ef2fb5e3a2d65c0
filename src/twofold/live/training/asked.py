"""Checkpoints that a queue asks a run for, on all its ranks at one step.

The file `save` below the run holds another text each time. Rank 0 alone looks, once a step, and tells the
others; outside of a queue nobody looks, and nothing is sent.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

from twofold.live.processes import QUEUE
from twofold.live.training.train_job import SAVE


@dataclass(slots=True)
class AskedSaves:
    """Of one rank. Mutable: it knows what was answered; what was asked of an earlier attempt is old."""

    run: Path
    rank: int
    in_queue: bool = field(default_factory=lambda: QUEUE in os.environ)
    _answered: str = field(init=False)

    def __post_init__(self) -> None:
        self._answered = self._text()

    def now(self) -> bool:
        """Whether a checkpoint is to be written after this step; to be called by every rank at every step."""
        if not self.in_queue:
            return False
        told = torch.zeros(1, dtype=torch.uint8)
        if self.rank == 0:
            text = self._text()
            told[0], self._answered = int(text != self._answered), text
        dist.broadcast(told, src=0)
        return bool(told.item())

    def _text(self) -> str:
        try:
            return (self.run / SAVE).read_text("utf-8")
        except OSError:
            return ""
