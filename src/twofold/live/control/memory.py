"""What a controller could not write down: kept in memory until the disk takes it, so that it heals meanwhile.

Without it a replica that fails at once would be started at every look while the disk is full: how often it
has failed stands in the store.
"""

import sqlite3
import time
from collections import deque

from twofold.live.control.store import ReplicaRow, Store
from twofold.live.processes import say

UNTOLD = 200  # notes that wait; then the oldest go


class Memory:
    """The store, and what it refused. Mutable."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[str, ReplicaRow] = {}
        self._notes: deque[tuple[float, str, str]] = deque(maxlen=UNTOLD)
        self._said = ""
        self._down: dict[str, tuple[int, float]] = {}  # the note of each that is not there, and since when

    def replicas(self) -> dict[str, ReplicaRow]:
        """All that are wanted, as far as is known; what was refused is tried again first."""
        self._catch_up()
        return {row.replica_id: self._rows.get(row.replica_id, row) for row in self._store.replicas()}

    def put(self, row: ReplicaRow) -> None:
        """Know a replica otherwise."""
        try:
            self._store.put(row)
            self._rows.pop(row.replica_id, None)
        except sqlite3.Error as error:
            self._rows[row.replica_id] = row
            self.refused(error)

    def note(self, role: str, what: str) -> int:
        """Something happened; its number, 0 while it is not written down."""
        try:
            return self._store.note(role, what)
        except sqlite3.Error as error:
            self._notes.append((time.time(), role, what))
            self.refused(error)
            return 0

    def add_to_note(self, number: int, role: str, more: str) -> None:
        """How something that was noted went on."""
        try:
            if number:
                self._store.add_to_note(number, f"; {more}")
                return
        except sqlite3.Error as error:
            self.refused(error)
        self.note(role, more)

    def down(self, role: str, what: str, now_s: float) -> None:
        """Why it is not there, said once until it is back or nobody wants it."""
        if role not in self._down:
            self._down[role] = (self.note(role, what), now_s)

    def is_down(self, role: str) -> bool:
        """Whether that was said, and it is not back."""
        return role in self._down

    def back(self, role: str, now_s: float) -> None:
        """It is there again: what was noted ends with how long that took."""
        if role in self._down:
            number, since_s = self._down.pop(role)
            self.add_to_note(number, role, f"back after {now_s - since_s:.1f} s")

    def unwanted(self, role: str) -> None:
        """It does not come back."""
        self._down.pop(role, None)

    def refused(self, error: Exception) -> None:
        """Say it once: a look that fails is one of four a second."""
        if str(error) != self._said:
            self._said = str(error)
            say(f"the store refuses: {error}")

    def _catch_up(self) -> None:
        if not self._rows and not self._notes:
            return
        try:
            wanted = {row.replica_id: row.version for row in self._store.replicas()}
            for name, row in list(self._rows.items()):
                if wanted.get(name) == row.version:  # else it was forgotten, or is to be another one
                    self._store.put(row)
                del self._rows[name]
            while self._notes:
                at_s, role, what = self._notes[0]
                self._store.note(role, what, at_s)
                self._notes.popleft()
            self._said = ""
        except sqlite3.Error as error:
            self.refused(error)
