"""What each team had of a cluster, held against its quota."""

from collections.abc import Mapping

from twofold.contracts.results import TeamFigures
from twofold.twin.cluster.tally import Tally


class _Team:
    """One team. Mutable."""

    __slots__ = ("contended_s", "held_count", "held_s", "queued_count", "waits")

    def __init__(self) -> None:
        self.held_count = self.queued_count = 0
        self.held_s = self.contended_s = 0.0
        self.waits = Tally()


class TeamAccounts:
    """Accelerator-seconds by team. Mutable.

    Shares are taken over the time in which every team with a quota had jobs waiting: only then does a share
    below the quota mean that a team was kept from it.
    """

    def __init__(self, quotas: Mapping[str, float]) -> None:
        self._quotas = quotas
        self._teams: dict[str, _Team] = {team: _Team() for team in quotas}
        self._hungry_count = 0  # teams with a quota and with jobs waiting
        self._now_s = 0.0

    def queue(self, team: str, change: int, now_s: float) -> None:
        """So many more jobs of it wait."""
        one = self._at(team, now_s)
        before = one.queued_count
        one.queued_count += change
        if team in self._quotas:
            self._hungry_count += (one.queued_count > 0) - (before > 0)

    def hold(self, team: str, change: int, now_s: float) -> None:
        """It has so many more accelerators."""
        self._at(team, now_s).held_count += change

    def waited(self, team: str, waited_s: float) -> None:
        """A job of it started for the first time."""
        self._teams[team].waits.add(waited_s)

    def _at(self, team: str, now_s: float) -> _Team:
        elapsed_s = now_s - self._now_s
        if elapsed_s > 0:
            contended = 0 < len(self._quotas) == self._hungry_count
            for one in self._teams.values():
                one.held_s += one.held_count * elapsed_s
                if contended:
                    one.contended_s += one.held_count * elapsed_s
            self._now_s = now_s
        found = self._teams.get(team)
        if found is None:
            found = self._teams[team] = _Team()
        return found

    def shares(self, now_s: float) -> tuple[TeamFigures, ...]:
        """All teams until now, by name."""
        if self._teams:
            self._at(next(iter(self._teams)), now_s)
        total_s = sum(one.contended_s for team, one in self._teams.items() if team in self._quotas)
        whole = sum(self._quotas.values())
        rows = []
        for team, one in sorted(self._teams.items()):
            quota = self._quotas[team] / whole if team in self._quotas and whole else None
            share = one.contended_s / total_s if total_s and quota is not None else None
            rows.append(TeamFigures(team, one.held_s / 3600, quota, share, one.waits.p95))
        return tuple(rows)
