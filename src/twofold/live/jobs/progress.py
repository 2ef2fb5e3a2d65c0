"""How far a job is, by the lines that it appends: read once each, so that a long run costs no more a look.

A job that reports does as the trainer: `steps.jsonl`, and `steps-rank-N.jsonl` of other ranks, have a line
per step (`step`, `step_s`, and `communication_s`, `checkpoint_s` where it knows them); `events.jsonl` has
`checkpoint` with `write_s`, and `blocked_s` where the job went on meanwhile, and `checkpoint-failed`. It is
asked for a checkpoint by the file `save`, whose text is another one each time.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from twofold.live.training.artefact import write_whole
from twofold.live.training.run_watch import Tail
from twofold.live.training.train_job import NOT_SAVED, SAVE
from twofold.live.training.training_record import objects_in, steps_path


@dataclass(slots=True)
class Heard:
    """What a job has written since it was last listened to. Mutable while it is gathered."""

    step: int | None = None  # the latest
    steps_s: list[float] = field(default_factory=list)
    own_s: dict[int, list[float]] = field(default_factory=dict)  # by rank: work of a step, waits apart
    # Of checkpoints: until each was whole, and how long the job stood still for it; None: all the time.
    writes: list[tuple[float, float | None]] = field(default_factory=list)
    failed_count: int = 0  # checkpoints that were not written


class Listener:
    """Reads one attempt of one job. Mutable; its offsets outlive a kill in a small file beside the job."""

    def __init__(self, folder: Path, rank_count: int, kept: Path) -> None:
        self._kept = kept
        self._steps = [Tail(steps_path(folder, rank)) for rank in range(rank_count)]
        self._events = Tail(folder / "events.jsonl")

    def begin(self, attempt: int) -> None:
        """An attempt begins: lines of before are not its own."""
        for tail in self._tails:
            tail.skip()
        self.keep(attempt)

    def go_on(self, attempt: int) -> bool:
        """Read on where a killed driver stopped; False where that listened to another attempt."""
        try:
            data = json.loads(self._kept.read_text("utf-8"))
            if data["attempt"] != attempt:
                return False
            for tail, offset in zip(self._tails, data["offsets"], strict=True):
                tail.offset = int(offset)
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return True

    def keep(self, attempt: int) -> None:
        """What was read until now has been told: a line may be told twice after a kill, and none never."""
        data = {"attempt": attempt, "offsets": [tail.offset for tail in self._tails]}
        write_whole(self._kept, json.dumps(data))

    def heard(self) -> Heard:
        """What is new."""
        found = Heard()
        for rank, tail in enumerate(self._steps):
            for line in tail.new():
                step_s = _seconds(line, "step_s")
                if step_s is None:
                    continue
                waited_s = (_seconds(line, "communication_s") or 0.0) + (
                    _seconds(line, "checkpoint_s") or 0.0
                )
                found.own_s.setdefault(rank, []).append(max(step_s - waited_s, 0.0))
                if rank == 0:
                    found.steps_s.append(step_s)
                    found.step = int(line["step"]) if isinstance(line.get("step"), int) else found.step
        for line in self._events.new():
            if line.get("event") == "checkpoint":
                stall_s = _seconds(line, "blocked_s")
                found.writes.append((_seconds(line, "write_s") or stall_s or 0.0, stall_s))
            found.failed_count += line.get("event") == NOT_SAVED
        return found

    @property
    def _tails(self) -> list[Tail]:
        return [*self._steps, self._events]


@dataclass(slots=True)
class Pace:
    """Steps since the last report. Mutable."""

    steps_s: list[float] = field(default_factory=list)
    own_s: dict[int, list[float]] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)  # that write lines: a report is of all of them
    reported_s: float = float("-inf")

    def add(self, heard: Heard) -> None:
        """More steps were done."""
        self.steps_s += heard.steps_s
        for rank, times_s in heard.own_s.items():
            self.own_s.setdefault(rank, []).extend(times_s)
        self.ranks |= heard.own_s.keys()

    @property
    def is_whole(self) -> bool:
        """Whether every rank that writes lines has done a step since the last report."""
        return bool(self.steps_s) and self.own_s.keys() == self.ranks

    def report(self, now_s: float) -> tuple[float, dict[int, float]]:
        """The mean step and the mean work of each rank since the last report, which this one is."""
        means = fmean(self.steps_s), {rank: fmean(times_s) for rank, times_s in self.own_s.items()}
        self.steps_s, self.own_s, self.reported_s = [], {}, now_s
        return means


def ask_to_save(folder: Path, token: str) -> None:
    """Ask a job for a checkpoint."""
    write_whole(folder / SAVE, token)


def last_step(folder: Path) -> int | None:
    """The latest step that a job wrote down, of any attempt; None: none."""
    path = steps_path(folder, 0)
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 4096))
            found = objects_in(file.read())
    except OSError:
        return None
    return next((int(line["step"]) for line in found[::-1] if isinstance(line.get("step"), int)), None)


def _seconds(line: dict[str, Any], name: str) -> float | None:
    value = line.get(name)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e9 else None
