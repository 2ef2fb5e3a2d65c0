"""Clocks, temperatures and throttling of this machine while something runs, where it tells them.

Processors tell through `/sys`: the clock of each core, sensors of hwmon, events of throttling. Accelerators
tell through the driver's tool: clocks, temperatures, and whether heat or power slows them. What a machine
hides, as virtual ones do, is None: nothing is made up.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType

from twofold.core import nvidia

SYS = Path("/sys")
EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The machine at one moment; absent is None."""

    clock_hz: float | None  # mean over its cores, or accelerators
    temperature_c: float | None  # of the hottest sensor
    throttle_count: int | None  # of all cores, since they were started
    is_throttled: bool | None = None  # now; of what has no count


def sample(root: Path = SYS) -> Sample:
    """Read what there is to read below `root`."""
    cpus = root / "devices" / "system" / "cpu"
    clocks = _numbers(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    temperatures = _numbers((root / "class" / "hwmon").glob("hwmon*/temp*_input"))
    throttles = _numbers(cpus.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
    return Sample(
        clock_hz=1e3 * sum(clocks) / len(clocks) if clocks else None,
        temperature_c=max(temperatures) / 1e3 if temperatures else None,
        throttle_count=sum(throttles) if throttles else None,
    )


def sample_accelerators(*seen: str) -> Sample:
    """Of all accelerators, or of those that words of the tool choose; all None where it does not answer."""
    clocks = nvidia.told("clocks.sm", *seen)
    return Sample(
        clock_hz=1e6 * sum(clocks) / len(clocks) if clocks else None,
        temperature_c=max(nvidia.told("temperature.gpu", *seen), default=None),
        throttle_count=None,
        is_throttled=nvidia.is_slowed(*seen),
    )


def _numbers(paths: Iterable[Path]) -> list[int]:
    found = []
    for path in paths:
        try:
            found.append(int(path.read_text()))
        except (OSError, ValueError):
            continue
    return found


@dataclass(slots=True)
class Thermals:
    """Samples taken while a run runs: `with Thermals() as thermals`. Mutable."""

    read: Callable[[], Sample] = sample
    samples: list[Sample] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @classmethod
    def of(cls, device: str) -> "Thermals":
        """Of what a run computes on: this machine's cores, or its accelerators."""
        return cls(sample if device == "cpu" else partial(sample_accelerators, *nvidia.of_seen()))

    def __enter__(self) -> "Thermals":
        self.samples.append(self.read())
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join()
        self.samples.append(self.read())

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            self.samples.append(self.read())

    @property
    def clocks_hz(self) -> list[float]:
        """Of all samples that tell one."""
        return [each.clock_hz for each in self.samples if each.clock_hz is not None]

    @property
    def temperature_c_max(self) -> float | None:
        """The hottest that it was."""
        return max(
            (each.temperature_c for each in self.samples if each.temperature_c is not None), default=None
        )

    @property
    def throttled_fraction(self) -> float | None:
        """Of the samples, or of the times between two of them, in how many it throttled."""
        told = [each.is_throttled for each in self.samples if each.is_throttled is not None]
        if told:
            return sum(told) / len(told)
        counts = [each.throttle_count for each in self.samples if each.throttle_count is not None]
        if len(counts) < 2:
            return None
        return sum(after > before for before, after in pairwise(counts)) / (len(counts) - 1)
