"""What the CPU tiers before a service did under our own load: read from the gateway's log of requests."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from twofold.contracts.results import loop
from twofold.contracts.results.serving import TierPlan
from twofold.core.estimate import Estimate, Source, exact
from twofold.live.control.admin_client import gateway_state
from twofold.live.gateway.request_log import requests_log
from twofold.live.line_file import written_files
from twofold.rehearse.loads import tier_figure


def tiers_measured(state: Path, names: Sequence[str], since: str) -> tuple[loop.TierMeasured, ...]:
    """The latencies of the tiers named, of requests that arrived since, as the log writes its times."""
    took: dict[str, list[float]] = {name: [] for name in names}
    for told in _logged(requests_log(state), since) if names else ():
        for name, seconds in told.items():
            if name in took:
                took[name].append(seconds)
    worst = (gateway_state(state) or {}).get("bottleneck") if names else None
    return tuple(
        loop.TierMeasured(name, len(values), _quantile(values, 0.5), _quantile(values, 0.95), name == worst)
        for name, values in took.items()
        if values
    )


def tier_rows(
    planned: Sequence[TierPlan],
    measured: Sequence[loop.TierMeasured],
    at: str,
    twin: Mapping[str, Estimate],
) -> Iterator[loop.Row]:
    """A row for each tier of an open load: its p95, waiting and work."""
    found = {each.name: each for each in measured}
    for each in planned:
        told = exact(each.p95_s, "s", Source.ASSUMED)
        seen = found[each.name].p95_s if each.name in found else None
        name = f"{at}: tier {each.name} p95"
        yield loop.Row("serving", name, "s", told, seen, None, twin.get(tier_figure(each.name)))


def tier_notes(planned: Sequence[TierPlan], measured: Sequence[loop.TierMeasured]) -> Iterator[str]:
    """Which tier held requests up."""
    goals_s = {each.name: each.goal_s for each in planned}
    for each in measured:
        if each.is_bottleneck:
            goal = f" of {1e3 * goals_s[each.name]:.0f}" if each.name in goals_s else ""
            late = f"p95 {1e3 * each.p95_s:.0f}{goal} ms"
            yield f"CPU tier {each.name} was the bottleneck of the open load: {late}, waiting and work"


def _logged(path: Path, since: str) -> Iterator[dict[str, float]]:
    """Of all its files: a long load is more than one of them holds."""
    for file in written_files(path):
        try:
            lines = file.read_bytes().splitlines()
        except OSError:  # it was the oldest, and is deleted by now
            continue
        for line in lines:
            try:
                told = json.loads(line)
            except ValueError:  # the last line may be half written
                continue
            is_of_tiers = isinstance(told, dict) and isinstance(told.get("tiers_s"), dict)
            if is_of_tiers and told.get("at", "") >= since:
                yield told["tiers_s"]


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]
