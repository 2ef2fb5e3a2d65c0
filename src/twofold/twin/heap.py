"""What is to happen when: a heap of float seconds whose ties go by the order in which they were pushed."""

import heapq
from typing import Any

# When, number, kind, subject; numbers are unique, so subjects never compare.
Due = tuple[float, int, int, Any]
DEAD_MIN_COUNT = 4096  # cancelled entries that may lie about before the heap is swept


class Heap:
    """Future events. Mutable. Every push has a number of its own, by which it can be cancelled.

    A cancelled entry stays until its time or until half of the heap is cancelled, so that memory is bounded
    by what is still to come.
    """

    __slots__ = ("_dead", "_due", "_number")

    def __init__(self) -> None:
        self._due: list[Due] = []
        self._dead: set[int] = set()
        self._number = 0

    def push(self, at_s: float, kind: int, subject: Any) -> int:
        """Let something happen at `at_s`, after all that was pushed for the same time before."""
        self._number = number = self._number + 1
        heapq.heappush(self._due, (at_s, number, kind, subject))
        return number

    def cancel(self, number: int) -> None:
        """It is not to happen. Only for what has neither happened nor been cancelled."""
        self._dead.add(number)
        if len(self._dead) > DEAD_MIN_COUNT and 2 * len(self._dead) > len(self._due):
            self._due = [due for due in self._due if due[1] not in self._dead]
            heapq.heapify(self._due)
            self._dead.clear()

    # HOT: per event; to look first and pop then was 1.4 times slower
    def pop_until(self, until_s: float) -> Due | None:
        """Take the next thing, if it happens until then; None: nothing does."""
        due, dead = self._due, self._dead
        while dead and due and due[0][1] in dead:
            dead.discard(heapq.heappop(due)[1])
        return heapq.heappop(due) if due and due[0][0] <= until_s else None
