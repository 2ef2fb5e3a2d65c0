"""Who keeps the cores of this machine busy while something is measured: the service and we, or others."""

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from twofold.live.processes import running

LOOK_S = 5.0  # reading all processes takes milliseconds, which a client in this process would see


@dataclass(slots=True)
class MachineWatch:
    """Looks now and then, so that of a process that is killed little is missed. Mutable: `with` it."""

    state: Path
    load_average_before: float = 0.0
    load_average_after: float = 0.0
    others_cores: float = 0.0  # on average, once it has ended
    _ours_s: dict[int, tuple[float, float]] = field(default_factory=dict)  # at first and last look
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _began: tuple[float, float] = (0.0, 0.0)  # wall time, busy seconds of the machine

    def __enter__(self) -> "MachineWatch":
        self.load_average_before = os.getloadavg()[0]
        self._began = time.monotonic(), busy_s()
        self._look(new_count_from_nothing=False)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._look()
        wall_s, used_s = time.monotonic() - self._began[0], busy_s() - self._began[1]
        ours_s = sum(last - first for first, last in self._ours_s.values())
        self.others_cores = max(0.0, used_s - ours_s) / max(wall_s, 1e-9)
        self.load_average_after = os.getloadavg()[0]

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            self._look()

    def _look(self, new_count_from_nothing: bool = True) -> None:
        """What each of our processes has used by now; one that came meanwhile used all of it meanwhile."""
        import psutil

        for process_id in (os.getpid(), *(child.process_id for child in running(self.state))):
            try:
                times = psutil.Process(process_id).cpu_times()
            except psutil.Error:
                continue
            used_s = times.user + times.system
            first_s = self._ours_s.get(process_id, (0.0 if new_count_from_nothing else used_s, 0.0))[0]
            self._ours_s[process_id] = first_s, used_s


def busy_s() -> float:
    """Seconds that all cores of this machine were busy since it started, for whomever."""
    import psutil

    times = psutil.cpu_times()
    idle_s = times.idle + getattr(times, "iowait", 0.0)
    # A guest's time is in the user's already; what a host took away is nobody's here.
    guest_s = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    stolen_s = getattr(times, "steal", 0.0)
    return float(sum(times) - idle_s - guest_s - stolen_s)
