"""Checkpoints beside the training: the state is copied, then written while the steps go on.

What a save blocks is the copy. It goes into the same memory each time, from tensors that are found once: a
search for them by name and new memory each took longer than the copy.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from twofold.live.training.checkpoints import complete, prune, remove, step_folder, step_of
from twofold.live.training.digesting import DigestingWriter
from twofold.live.training.sealing import CHECKPOINTS
from twofold.live.training.train_job import NOT_SAVED
from twofold.live.training.training_record import append_event


@dataclass(slots=True)
class StateCopy:
    """Weights and moments of a rank as they were at the last save, in its machine's memory. Mutable.

    Both stay where they are from step to step. Moments of a weight appear with its first gradient: then all
    are looked for again.
    """

    find: Callable[[], dict[str, Any]]  # the weights, and the optimiser's state by their names
    optimiser: torch.optim.Optimizer
    is_accelerator: bool = False
    _stager: DefaultStager = field(init=False)
    _copy: dict[str, Any] = field(default_factory=dict)
    _places: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])  # of the copy, and of what it is of
    _moments_count: int = -1

    def __post_init__(self) -> None:
        self._stager = DefaultStager(StagingOptions(self.is_accelerator, False, False, self.is_accelerator))

    def taken(self) -> dict[str, Any]:
        """The state as it is now; the copy before is written over."""
        moments_count = sum(map(len, self.optimiser.state.values()))
        with torch.no_grad():
            if moments_count != self._moments_count:
                found = self.find()
                self._copy = self._stager.stage(found)
                self._places = _tensors(self._copy), _tensors(found)
                self._moments_count = moments_count
                return self._copy
            torch._foreach_copy_(*self._places, non_blocking=self.is_accelerator)
        if self.is_accelerator:
            torch.cuda.synchronize()
        groups = zip(self._copy["optimiser"]["param_groups"], self.optimiser.param_groups, strict=True)
        for kept, group in groups:
            kept.update({name: value for name, value in group.items() if name != "params"})
        return self._copy


def _tensors(state: Mapping[str, Any]) -> list[torch.Tensor]:
    """This rank's part of each tensor, in the order of the tree."""
    return [
        each.to_local() if isinstance(each, DTensor) else each
        for each in pytree.tree_leaves(state)
        if isinstance(each, torch.Tensor)
    ]


@dataclass(slots=True)
class Saver:
    """Writes checkpoints of one rank, one at a time, in a process group of its own.

    On the training's own group the saving thread and the training would interleave collectives, and hang.
    """

    run: Path
    rank: int
    group: Any
    copy: StateCopy
    key: bytes = field(repr=False)  # that seals them
    _finisher: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _pending: Future[None] | None = None

    def save(self, step: int, own: Mapping[str, Any]) -> None:
        """Copy the state and start writing it; waits for the save before, if it still runs.

        `own` is what is made anew for each checkpoint: random numbers, scales.
        """
        asked_s = time.perf_counter()
        self.wait()
        began_s = time.perf_counter()
        state = {**self.copy.taken(), **own}
        folder = step_folder(self.run / CHECKPOINTS, step)
        written = dcp.async_save(
            state, storage_writer=DigestingWriter(folder), process_group=self.group, async_stager=_Taken()
        )
        blocked_s = time.perf_counter() - asked_s
        self._pending = self._finisher.submit(self._finish, written, folder, began_s, blocked_s)

    def wait(self) -> None:
        """Until nothing is being written."""
        if self._pending is not None:
            self._pending.result()
        self._pending = None

    def _finish(self, written: Any, folder: Path, began_s: float, blocked_s: float) -> None:
        """One that cannot be written is told of at once, for a queue waits for it, and training goes on."""
        try:
            written.result()  # on rank 0: when every rank has written and the index is there
            size_bytes = complete(folder, self.key) if self.rank == 0 else 0
        except (OSError, dcp.CheckpointException) as error:  # of all ranks alike: the library tells each
            if self.rank == 0:
                reason = " ".join(str(error).split())[-300:]
                with suppress(OSError):  # a part of one would keep the disk full
                    remove(folder)
                append_event(self.run, NOT_SAVED, step=step_of(folder), reason=reason)
            return
        if self.rank == 0:
            facts = {"step": step_of(folder), "size_bytes": size_bytes, "blocked_s": blocked_s}
            append_event(self.run, "checkpoint", **facts, write_s=time.perf_counter() - began_s)
            prune(folder.parent, self.key)


class _Taken:
    """What the library asks to copy a state that was copied already."""

    should_synchronize_after_execute = False

    def stage(self, state: dict[str, Any]) -> dict[str, Any]:
        """The copy itself."""
        return state

    def synchronize_staging(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is held."""
