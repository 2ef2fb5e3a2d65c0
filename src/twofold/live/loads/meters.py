"""What the machine tells beside a load: memory of a process with its children, energy by RAPL or NVML.

Energy is that of this machine, so it is asked for only where the server runs here. A counter that nobody may
read, or that is not there, is None: nothing is made up.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from twofold.core.errors import ValueRefusedError
from twofold.core.nvidia import watts

RAPL = Path("/sys/class/powercap")
EVERY_S = 0.25
NVIDIA_EVERY_S = 1.0


@dataclass(slots=True)
class Meters:
    """Meters that run while a load does: `with Meters(...) as meters`. Mutable."""

    pid: int | None = None
    reads_energy: bool = False
    rapl: Path = RAPL
    memory_before_bytes: int | None = None
    memory_peak_bytes: int | None = None
    energy_j: float | None = None
    energy_source: str = ""  # RAPL, NVML
    _watts: list[tuple[float, float]] = field(default_factory=list)
    _counters: dict[Path, int] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> "Meters":
        if self.pid is not None:
            self.memory_before_bytes = self.memory_peak_bytes = memory_bytes(self.pid)
            self._start(self._watch_memory)
        if self.reads_energy:
            self._counters = rapl_counters(self.rapl)
            self._start(self._watch_power)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if len(self._watts) > 1:
            pairs = zip(self._watts, self._watts[1:], strict=False)
            drawn_j = sum((then - now) * (a + b) / 2 for (now, a), (then, b) in pairs)
            self.energy_j, self.energy_source = drawn_j, "NVML"
        elif self._counters:
            self.energy_j, self.energy_source = rapl_j(self._counters, rapl_counters(self.rapl)), "RAPL"

    def _start(self, watch: Callable[[], None]) -> None:
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _watch_memory(self) -> None:
        while not self._ended.wait(EVERY_S):
            now_bytes = memory_bytes(self.pid or 0, must_live=False)
            if now_bytes is not None:
                self.memory_peak_bytes = max(self.memory_peak_bytes or 0, now_bytes)

    def _watch_power(self) -> None:
        """From the first moment to the last: a short load would lose its ends."""
        while True:
            at_s, is_last = time.monotonic(), self._ended.is_set()
            drawn_w = watts()  # which takes a while
            if drawn_w is not None:
                self._watts.append((at_s, drawn_w))
            if drawn_w is None or is_last:
                return
            self._ended.wait(NVIDIA_EVERY_S)


def memory_bytes(pid: int, must_live: bool = True) -> int | None:
    """What a process and all below it hold of memory, shared pages counted with each.

    None where it has ended, or ValueRefusedError if it must live.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        total = 0
        for each in (process, *process.children(recursive=True)):
            try:
                total += each.memory_info().rss
            except psutil.NoSuchProcess:
                if each is process:
                    raise
        return total
    except (psutil.Error, ValueError, OverflowError) as error:
        if must_live:
            what = f"no process {pid} that may be read"
            raise ValueRefusedError(what, hint="`--pid` is that of the server") from error
        return None


def rapl_counters(root: Path) -> dict[Path, int]:
    """Energy of each processor package in microjoules, by the folder that tells it; none that is barred."""
    found = {}
    for folder in sorted(root.glob("intel-rapl:*")):
        if folder.name.count(":") == 1:  # a package; what it is made of has a second number
            try:
                found[folder] = int((folder / "energy_uj").read_text())
            except (OSError, ValueError):
                continue
    return found


def rapl_j(before: dict[Path, int], after: dict[Path, int]) -> float | None:
    """Joules between two readings, counters that began anew included; None where one is missing."""
    used_uj = 0
    for folder, began in before.items():
        if folder not in after:
            return None
        moved = after[folder] - began
        if moved < 0:
            try:
                moved += int((folder / "max_energy_range_uj").read_text())
            except (OSError, ValueError):
                return None
        used_uj += moved
    return used_uj / 1e6
