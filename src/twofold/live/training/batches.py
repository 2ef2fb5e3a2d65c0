"""The sequences that a rank trains on and is judged by, as tensors, read ahead of the steps."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from twofold.live.training.data_order import TokenStream, held_out
from twofold.live.training.data_preparing import first_order
from twofold.live.training.data_reader import Reader
from twofold.live.training.data_staging import Pin, Stager, read_settings
from twofold.live.training.train_job import WAITING

Batch = tuple[torch.Tensor, torch.Tensor]  # inputs, and the token after each


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches of a rank from a step on."""

    stager: Stager
    reader: Reader
    stream: TokenStream

    def files_read(self, tokens: int) -> list[int]:
        """The files that the first `tokens` of the stream lie in, by number."""
        return self.stream.shards_until(tokens)

    def next(self) -> Batch:
        """Of the next step."""
        inputs, targets = self.reader.get()
        return inputs, targets

    def close(self) -> None:
        """End what reads ahead."""
        self.stager.close()
        self.reader.close()


def stager_of(run: Path, seed: int, tell: Callable[..., None], *, is_leader: bool) -> Stager:
    """What opens the run's shards; `tell` hears of each file that was staged or is waited for, as events."""
    settings = read_settings(run)

    def told(pin: Mapping[str, Any]) -> None:
        tell("staged", **{name: pin[name] for name in asdict(Pin("", "", 0, "", 0, 0, 0.0, 0.0))})

    def waiting(file: str) -> None:
        tell(WAITING, file=file)

    return Stager(run, settings, first_order(len(settings.files), seed), is_leader, told, waiting)


def batches_of(
    stager: Stager, job: Mapping[str, Any], rank: int, rank_count: int, first_step: int
) -> Batches:
    """This rank's batches: its even share of each step's sequences, in the stream's order."""
    stream = TokenStream(stager.open, len(stager.settings.files), job["seed"])
    count, length = job["global_batch_sequences"], job["sequence_tokens"]
    share = count // rank_count

    def make(step: int) -> Batch:
        first = (step - 1) * count + rank * share
        return as_batch(np.stack([stream.sequence(first + at, length) for at in range(share)]))

    return Batches(stager, Reader(make, first_step, job["steps"]), stream)


def held_out_batch(stager: Stager, job: Mapping[str, Any], rank: int, rank_count: int) -> Batch | None:
    """This rank's share of what is evaluated; None where the data has too few sequences for every rank."""
    first = stager.open(stager.order[0])
    found = list(held_out(first, job["sequence_tokens"], job["evaluation_sequences"]))
    share = len(found) // rank_count
    return as_batch(np.stack(found[rank * share : (rank + 1) * share])) if share else None


def as_batch(rows: Any) -> Batch:
    """Sequences, one token longer than they are read, as what is read and what is to be said."""
    whole = torch.from_numpy(rows)
    return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()
