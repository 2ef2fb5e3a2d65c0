"""What happens in a run, read as it is written: a look costs what is new, however long the run is."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold.live.training.training_record import StepLine, is_futile, step_line, steps_path

READ_BYTES = 1 << 20  # of a file, in one look


@dataclass(slots=True)
class Follower:
    """Reads what is added to a file of lines. Mutable."""

    path: Path
    _offset: int = 0
    _torn: bytes = b""  # of a line that is not whole yet

    def new(self) -> list[dict[str, Any]]:
        """The objects of whole lines that were added; lines that a kill tore are left out."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(READ_BYTES)
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._torn = (self._torn + data).split(b"\n")
        found = []
        for line in lines:
            with suppress(ValueError, RecursionError):
                found.append(json.loads(line))
        return [each for each in found if isinstance(each, dict)]


@dataclass(slots=True)
class RunWatch:
    """The steps and events of one launch. Mutable; lines of earlier launches are passed over."""

    run: Path
    launch: int
    last: StepLine | None = None  # of this launch
    has_stopped: bool = False  # it was told to, and has saved
    _files: tuple[Follower, Follower] = field(init=False)
    _started: set[int] = field(default_factory=set)  # attempts
    _stepped: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._files = Follower(steps_path(self.run, 0)), Follower(self.run / "events.jsonl")

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
            self.has_stopped |= event.get("launch") == self.launch and event["event"] == "stopped"
        return found, bool(steps or events)

    @property
    def is_futile(self) -> bool:
        """Whether two attempts in a row died before their first step: a third would too."""
        return is_futile(self._started, self._stepped)
