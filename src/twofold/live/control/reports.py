"""What replicas are reported to be, told to the gate: once, again when it is old, and when it changed."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from twofold.live.control.observed import Watched


def report_of(replica: Watched, there: Mapping[str, Any], now_s: float) -> dict[str, Any]:
    """What an engine says of itself; of one that says nothing, what the gateway counts, as it has it."""
    said, capacity = replica.report, replica.engine.kv_capacity_tokens
    believed = min(there["kept_tokens"] / capacity, 1.0) if capacity else 0.0
    return {
        "type": "ReplicaReported",
        "replica_id": replica.replica_id,
        "observed_s": now_s,
        "running_count": _said(said.running_count if said else None, there["in_flight"]),
        "waiting_count": _said(said.waiting_count if said else None, 0),
        "kv_used_fraction": _said(said.kv_used_fraction if said else None, believed),
    }


class Reports:
    """Which of them are news. Mutable: what each replica was told to be last, and to which gateway.

    A gate that scales forgets what is older than `fresh_s`: half as old it is told the same again. One that
    does not scale never asks, so that an idle service writes nothing.
    """

    def __init__(self) -> None:
        self._told: dict[str, dict[str, Any]] = {}
        self._incarnation = ""

    def news(
        self, reports: Iterable[dict[str, Any]], incarnation: str, fresh_s: float | None
    ) -> Iterator[dict[str, Any]]:
        """Those that the gate does not know; `fresh_s` None: it forgets none."""
        if incarnation != self._incarnation:
            self._told, self._incarnation = {}, incarnation
        for report in reports:
            before = self._told.get(report["replica_id"])
            if before is None or _is_news(before, report, fresh_s):
                self._told[report["replica_id"]] = report
                yield report

    def keep(self, replica_ids: Collection[str]) -> None:
        """The others are gone, or were not told after all."""
        self._told = {name: report for name, report in self._told.items() if name in replica_ids}


def _is_news(before: Mapping[str, Any], report: Mapping[str, Any], fresh_s: float | None) -> bool:
    is_old = fresh_s is not None and report["observed_s"] - before["observed_s"] >= fresh_s / 2
    return is_old or {**before, "observed_s": 0.0} != {**report, "observed_s": 0.0}


def _said(figure: Any, otherwise: Any) -> Any:
    return otherwise if figure is None else figure
