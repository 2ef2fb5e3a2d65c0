"""Prompts that replicas die of: a request that may be one is not given to the last replica that lives.

Which request killed a replica nobody tells the gate. So each one that was on a replica when it died is a
suspect, by the digest of its prompt: after deaths of so many replicas it is blocked for a while, and an
answer that ends well clears it. Mutable, bounded.
"""

from collections import OrderedDict

from twofold.policy.gate.events import Cause
from twofold.policy.gate.fleet_view import Attempt, FleetView
from twofold.policy.gate.settings import PoisonSettings

CLEARED = ""  # first among deaths: it was answered before, so that it takes twice as many


class Suspects:
    """Digests of prompts that were on dying replicas, and of those that were answered."""

    def __init__(self, settings: PoisonSettings) -> None:
        self.settings = settings
        self._deaths: OrderedDict[str, tuple[str, ...]] = (
            OrderedDict()
        )  # replica's number and era, the oldest first
        self._blocked_until_s: OrderedDict[str, float] = OrderedDict()

    def blocked_s(self, digest: str, now_s: float) -> float:
        """For how long nothing with this prompt is sent; 0: it may be."""
        until_s = self._blocked_until_s.get(digest, 0.0)
        if until_s > now_s:
            return until_s - now_s
        if until_s:
            del self._blocked_until_s[digest]
            self._deaths.pop(digest, None)  # it has another chance, with as many deaths as the first
        return 0.0

    def answered(self, digest: str) -> None:
        """An answer to it ended well: it kills nobody."""
        if digest:
            self._blocked_until_s.pop(digest, None)
            self._keep(digest, (CLEARED,))

    def died(self, digest: str, attempt: Attempt, now_s: float) -> bool:
        """It was on this replica when that died. Whether it is blocked from now on."""
        known = self._deaths.get(digest, ())
        if not digest:
            return False
        life = f"{attempt.replica.number} {attempt.era}"
        deaths = known if life in known else (*known, life)
        self._keep(digest, deaths)
        most = self.settings.deaths_count
        if len(deaths) < (2 * most + 1 if deaths[0] == CLEARED else most):
            return False
        self._blocked_until_s[digest] = now_s + self.settings.block_s
        while len(self._blocked_until_s) > self.settings.digest_limit_count:
            self._blocked_until_s.popitem(last=False)
        return True

    def _keep(self, digest: str, deaths: tuple[str, ...]) -> None:
        self._deaths[digest] = deaths
        self._deaths.move_to_end(digest)
        while len(self._deaths) > self.settings.digest_limit_count:
            self._deaths.popitem(last=False)


def is_death(cause: Cause, attempt: Attempt) -> bool:
    """Whether an attempt may have failed because its replica died of it.

    Why      Who refused the connection never had the request. A lost connection is a death until the replica
             proves otherwise. Silence and errors are, where the replica's circuit is open by now.
    """
    if cause is Cause.BROKEN:
        return True
    return cause is not Cause.REFUSED and attempt.replica.circuit.until_s is not None


def spares_another(view: FleetView, attempt: Attempt) -> bool:
    """Whether a healthy replica would be left if a repeat killed the one that takes it."""
    others = (each for each in view.replicas.values() if each.healthy and each is not attempt.replica)
    return sum(1 for _ in others) >= 2
