"""Replicas that were asked for and are not there yet: which will not come, and when to ask again. Mutable.

Law  After a failed start nothing is started for `start_backoff_s`, twice as long after each further one, up
     to `start_backoff_s_max`, until one comes. One that is silent for `start_s_max` has failed.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from twofold.policy.gate.settings import StartSettings

DOUBLINGS_MAX = 64  # far beyond any start_backoff_s_max; keeps 2**n finite


@dataclass(slots=True)
class Starts:
    """Of one pool, by one machine. `pending` is for reading: since when, and where or what, by id."""

    settings: StartSettings
    pending: dict[str, tuple[float, str]] = field(default_factory=dict)
    failed_count: int = 0  # since one last came
    not_before_s: float = 0.0

    def asked(self, replica_id: str, now_s: float, what: str) -> None:
        """One is started."""
        self.pending[replica_id] = (now_s, what)

    def came(self, replica_id: str) -> float | None:
        """One is ready. Since when it was awaited; None: it was not started here."""
        awaited = self.pending.pop(replica_id, None)
        if awaited is None:
            return None
        self.failed_count = 0
        return awaited[0]

    def failed(self, replica_id: str, now_s: float) -> bool:
        """One will not come. Whether it was started here."""
        if self.pending.pop(replica_id, None) is None:
            return False
        settings = self.settings
        pause_s = settings.start_backoff_s * 2.0 ** min(self.failed_count, DOUBLINGS_MAX)
        self.failed_count += 1
        self.not_before_s = now_s + min(pause_s, settings.start_backoff_s_max)
        return True

    def forget(self, replica_ids: Collection[str]) -> None:
        """Of these nothing is awaited any more."""
        self.pending = {name: each for name, each in self.pending.items() if name not in replica_ids}

    def given_up(self, now_s: float) -> None:
        """Those that were awaited for too long have failed."""
        for name in [n for n, (at_s, _) in self.pending.items() if now_s - at_s > self.settings.start_s_max]:
            self.failed(name, now_s)
