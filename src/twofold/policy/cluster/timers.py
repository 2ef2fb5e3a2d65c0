"""What falls due when, and which ids were known of late: both bounded by what there is."""

from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush

RECENT_IDS_MAX = 10_000


class Due(Enum):
    """What a timer is for. The id beside it is a job's, a node's, or empty."""

    SAVE = "save"  # the job's next checkpoint
    WAITED = "waited"  # for the job's checkpoint, long enough
    RESTART = "restart"  # the job's pause is over
    RELEASE = "release"  # the node's quarantine is over
    LOOK = "look"  # at the queue
    SERVING = "serving"  # look at what it should have


Key = tuple[Due, str]


@dataclass(slots=True)
class Timers:
    """One time per key, the latest set. Mutable."""

    _at_s: dict[Key, tuple[float, int]] = field(default_factory=dict)
    _heap: list[tuple[float, int, Key]] = field(default_factory=list)  # may hold what was cancelled
    _set_count: int = 0

    def __len__(self) -> int:
        return len(self._at_s)

    def set(self, due: Due, name: str, at_s: float) -> None:
        """From now on this key is due then, and not when it was."""
        self._set_count += 1
        key = (due, name)
        self._at_s[key] = (at_s, self._set_count)
        heappush(self._heap, (at_s, self._set_count, key))
        if len(self._heap) > 2 * len(self._at_s) + 64:
            self._heap = [(*entry, key) for key, entry in self._at_s.items()]
            heapify(self._heap)

    def cancel(self, due: Due, name: str) -> None:
        """The key is not due any more; one that was not is no matter."""
        self._at_s.pop((due, name), None)

    def next_at_s(self) -> float | None:
        """When the first one is due; None: there is none."""
        heap = self._heap
        while heap and self._at_s.get(heap[0][2]) != heap[0][:2]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_s: float) -> Key | None:
        """The first that is due by now, which then no longer is; equal times in the order they were set."""
        at_s = self.next_at_s()
        if at_s is None or at_s > now_s:
            return None
        key = heappop(self._heap)[2]
        del self._at_s[key]
        return key


@dataclass(slots=True)
class RecentIds:
    """The latest ids, so that one that comes again is known; old ones are forgotten. Mutable."""

    _ids: dict[str, None] = field(default_factory=dict)

    def add(self, name: str) -> None:
        self._ids.pop(name, None)
        self._ids[name] = None
        if len(self._ids) > RECENT_IDS_MAX:
            del self._ids[next(iter(self._ids))]

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def __len__(self) -> int:
        return len(self._ids)
