"""What happens in a run, read as it is written: a look costs what is new, however long the run is."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold.live.training.training_record import StepLine, is_futile, objects_in, step_line, steps_path

READ_BYTES = 1 << 20  # of a file, in one look


@dataclass(slots=True)
class Tail:
    """The whole lines that a file has gained. Mutable: it knows how far it was read."""

    path: Path
    offset: int = 0

    def new(self) -> list[dict[str, Any]]:
        """Objects on new lines; what is torn or no object is passed over. A file that shrank is a new one."""
        with suppress(OSError), self.path.open("rb") as file:
            if file.seek(0, 2) < self.offset:
                self.offset = 0
            file.seek(self.offset)
            data = file.read(READ_BYTES)
            end = data.rfind(b"\n") + 1
            if not end and len(data) == READ_BYTES:
                end = READ_BYTES  # of a line that is longer than any of ours
            self.offset += end
            return objects_in(data[:end])
        return []

    def skip(self) -> None:
        """What is there by now is of before."""
        with suppress(OSError):
            self.offset = self.path.stat().st_size


@dataclass(slots=True)
class RunWatch:
    """The steps and events of one launch. Mutable; lines of earlier launches are passed over."""

    run: Path
    launch: int
    last: StepLine | None = None  # of this launch
    has_stopped: bool = False  # it was told to
    saved_count: int = 0  # whole checkpoints, of all launches
    saved_step: int = 0  # of the last one
    saved_s: float = 0.0  # that the last one took until it was whole
    _files: tuple[Tail, Tail] = field(init=False)
    _started: set[int] = field(default_factory=set)  # attempts
    _stepped: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._files = Tail(steps_path(self.run, 0)), Tail(self.run / "events.jsonl")

    def look(self) -> tuple[list[StepLine], bool]:
        """Steps of this launch that were done since the last look, and whether anything happened at all."""
        steps, events = (file.new() for file in self._files)
        found = [line for data in steps if (line := step_line(data)) and line.launch == self.launch]
        for line in found:
            self._stepped.add(line.attempt)
            self.last = line
        for event in events:
            if event.get("launch") == self.launch and event["event"] == "worker":
                self._started.add(event["attempt"])
            if event.get("event") == "checkpoint":
                self.saved_count, self.saved_s = self.saved_count + 1, float(event["write_s"])
                self.saved_step = int(event["step"])
            self.has_stopped |= event.get("launch") == self.launch and event["event"] == "stopped"
        return found, bool(steps or events)

    @property
    def is_futile(self) -> bool:
        """Whether two attempts in a row died before their first step: a third would too."""
        return is_futile(self._started, self._stepped)
