"""The serving half of a shared pool, coarsely: accelerators that it needs against those that are ready."""

from twofold.twin.cluster.types import ServingFigures, ServingLoad


class ServingAccount:
    """Needed and ready accelerators over time. Mutable.

    A missing accelerator stands for requests outside their SLO: how far outside, only the fleet's own world
    says.
    """

    def __init__(self, load: ServingLoad) -> None:
        self.load = load
        self.needed_count = self.ready_count = 0
        self.slowdown_factor = 1.0
        self._now_s = self._needed_s = self._ready_s = self._missing_s = self._short_s = self._slow_s = 0.0

    def change(
        self, now_s: float, needed: int | None = None, ready: int = 0, slowdown_factor: float | None = None
    ) -> None:
        """From now on so much is needed, so many more are ready, and they are so much slower."""
        elapsed_s = now_s - self._now_s
        if elapsed_s > 0:
            missing = max(0.0, self.needed_count - self.ready_count / self.slowdown_factor)
            self._needed_s += self.needed_count * elapsed_s
            self._ready_s += self.ready_count * elapsed_s
            self._slow_s += self.ready_count * self.slowdown_factor * elapsed_s
            self._missing_s += missing * elapsed_s
            # Less than one accelerator's worth is within what a queue evens out.
            self._short_s += elapsed_s if missing >= 1.0 else 0.0
            self._now_s = now_s
        self.needed_count = self.needed_count if needed is None else needed
        self.ready_count += ready
        assert self.ready_count >= 0
        self.slowdown_factor = self.slowdown_factor if slowdown_factor is None else slowdown_factor

    def figures(self, now_s: float) -> ServingFigures:
        """Until now."""
        self.change(now_s)
        slow = self._slow_s / self._ready_s if self._ready_s else 1.0
        return ServingFigures(
            needed_h=self._needed_s / 3600,
            shortfall_h=self._missing_s / 3600,
            shortfall_s=self._short_s,
            slowdown_factor=slow,
        )
