"""Answers that are kept for exact repeats: which, for how long, and when all of them are dropped. Mutable.

The machine keeps numbers and sizes; who drives it holds the bytes under those numbers. A request has a key
only where its answer is the same each time; a key of another tenant is another key, so nothing leaks.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from twofold.policy.gate import events
from twofold.policy.gate.fleet_view import Replica, Request
from twofold.policy.gate.settings import AnswerCacheSettings

ENTRY_BYTES = 256  # that an answer counts for beside its own: keys and numbers are memory too


@dataclass(slots=True)
class _Kept:
    answer_id: int
    bytes_count: int
    kept_s: float


class AnswerCache:
    """Bounded by bytes and age; of too many the oldest go first."""

    def __init__(self, settings: AnswerCacheSettings) -> None:
        self.settings = settings
        self.era = 0  # emptied so often: what was asked in an earlier one is not kept
        self.bytes_count = 0
        self._kept: dict[tuple[str, str], _Kept] = {}  # by tenant and key, the oldest first
        self._given_ids = 0
        self._versions: set[str] = set()  # of the replicas that stay

    def hit(self, tenant: str, key: str, now_s: float) -> int | None:
        """The number of the answer to be given again; None: nothing is kept that is young enough."""
        found = self._kept.get((tenant, key))
        return None if found is None or self._is_old(found, now_s) else found.answer_id

    def keep(self, request: Request, bytes_count: int, now_s: float) -> list[events.Effect]:
        """The answer of a request that was just given by a replica."""
        settings, arrival = self.settings, request.arrival
        whole_bytes = bytes_count + ENTRY_BYTES
        if (
            request.shortened_tokens is not None
            or request.answer_era != self.era
            or whole_bytes > settings.bytes_max
        ):
            return []
        dropped = self._without(arrival.tenant, arrival.answer_key)
        while self._kept and self.bytes_count + whole_bytes > settings.bytes_max:
            dropped += self._without(*next(iter(self._kept)))
        self._given_ids += 1
        self._kept[arrival.tenant, arrival.answer_key] = _Kept(self._given_ids, whole_bytes, now_s)
        self.bytes_count += whole_bytes
        return [*_drops(dropped), events.KeepAnswer(request.request_id, self._given_ids)]

    def expired(self, now_s: float) -> list[events.Effect]:
        """Drop what is too old."""
        dropped: list[int] = []
        while self._kept and self._is_old(next(iter(self._kept.values())), now_s):
            dropped += self._without(*next(iter(self._kept)))
        return _drops(dropped)

    def emptied(self) -> list[events.Effect]:
        """Drop all: another version answers from now on, or may."""
        dropped = [kept.answer_id for kept in self._kept.values()]
        self._kept.clear()
        self.bytes_count = 0
        self.era += 1
        return _drops(dropped)

    def fleet_changed(self, staying: Iterable[Replica]) -> list[events.Effect]:
        """Replicas came or went: one of a version that was not there before is a release."""
        versions = {replica.added.version for replica in staying}
        if versions <= self._versions:
            self._versions = versions or self._versions  # who comes back alone is the one who left
            return []
        self._versions = versions
        return self.emptied()

    @property
    def is_sure(self) -> bool:
        """Whether all replicas are of one version: else nobody knows whose answer the next would be."""
        return len(self._versions) < 2

    def _is_old(self, kept: _Kept, now_s: float) -> bool:
        return now_s - kept.kept_s > self.settings.age_s

    def _without(self, tenant: str, key: str) -> list[int]:
        kept = self._kept.pop((tenant, key), None)
        if kept is None:
            return []
        self.bytes_count -= kept.bytes_count
        return [kept.answer_id]


def _drops(answer_ids: list[int]) -> list[events.Effect]:
    return [events.DropAnswers(tuple(answer_ids))] if answer_ids else []
