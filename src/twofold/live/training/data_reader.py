"""Batches of a rank, made ahead of the steps that train on them."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DEPTH = 4  # steps that are read ahead


@dataclass(slots=True)
class Reader:
    """Calls `make(step)` for one step after another in a thread of its own. Mutable.

    What `make` raises is raised by `get` of that step. At most DEPTH batches wait.
    """

    make: Callable[[int], Any]
    first_step: int
    last_step: int
    _made: queue.Queue[Any] = field(default_factory=lambda: queue.Queue(DEPTH))
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    def get(self) -> Any:
        """The batch of the next step, once it is there."""
        batch = self._made.get()
        if isinstance(batch, BaseException):
            raise batch
        return batch

    def close(self) -> None:
        """Make no more."""
        self._ended.set()
        while not self._made.empty():  # one that waits for room ends
            self._made.get_nowait()

    def _read(self) -> None:
        for step in range(self.first_step, self.last_step + 1):
            if self._ended.is_set():
                return
            try:
                self._made.put(self.make(step))
            except BaseException as error:  # the step that waits for it must hear of it, whatever it is
                self._made.put(error)
                return
