"""Which accelerators are cut into which parts, so that a demand for parts is met with the fewest new cuts.

A cut is legal when the catalogue's rows say so; a part that nobody wants any more stays until its place is
needed, since a new cut stops whatever runs on the other parts of its accelerator.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twofold.catalog import Partition, PartitionRefused, place_parts

Cut = tuple[str, ...]  # the profiles on one accelerator, sorted; empty: it is whole


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The cuts to have, in the order of the accelerators given, and what cannot be had."""

    cuts: tuple[Cut, ...]
    refused: tuple[tuple[str, str], ...]  # profile, reason


def planned_cuts(
    profiles: Sequence[Partition], demand_counts: Mapping[str, int], cuts: Sequence[Cut]
) -> PartitionPlan:
    """The cuts that meet a demand, changing as few accelerators as this greedy order finds.

    Parts that exist are used as they are. Missing ones, the largest first, go where room is left, then in the
    place of parts that nobody wants, on accelerators that are cut anew anyway first.
    """
    rows = {row.profile: row for row in profiles}
    refused = [(name, _unknown(rows)) for name in sorted(demand_counts) if name not in rows]
    missing = Counter({name: count for name, count in demand_counts.items() if name in rows and count > 0})
    wanted: list[list[str]] = []
    for cut in cuts:
        kept = [name for name in cut if missing[name] > 0 and _used(missing, name)]
        wanted.append(kept)
    changed: set[int] = set()
    new = [list(cut) for cut in cuts]
    for name in sorted(missing.elements(), key=lambda name: (-rows[name].memory_slices, name)):
        at = _where(rows, name, new, wanted, changed)
        if at is None:
            refused.append((name, _full(rows, name, wanted)))
            continue
        if not _fits(rows, [*new[at], name]):
            new[at] = list(wanted[at])
        new[at].append(name)
        wanted[at].append(name)
        changed.add(at)
    return PartitionPlan(tuple(tuple(sorted(cut)) for cut in new), tuple(dict.fromkeys(refused)))


def _used(missing: Counter[str], name: str) -> bool:
    missing[name] -= 1
    return True


def _where(
    rows: Mapping[str, Partition],
    name: str,
    cuts: Sequence[Sequence[str]],
    wanted: Sequence[Sequence[str]],
    changed: set[int],
) -> int | None:
    """The accelerator for one more part: changed already, then the one that keeps the most wanted parts."""
    best: int | None = None
    best_key = (False, False, 0)
    for index, cut in enumerate(cuts):
        beside = _fits(rows, [*cut, name])
        if not beside and not _fits(rows, [*wanted[index], name]):
            continue
        # Packed onto those already cut, so that whole accelerators stay whole.
        key = (index in changed, beside and bool(cut), len(wanted[index]))
        if best is None or key > best_key:
            best, best_key = index, key
    return best


def _fits(rows: Mapping[str, Partition], names: Sequence[str]) -> bool:
    return not isinstance(place_parts([rows[name] for name in names]), PartitionRefused)


def _unknown(rows: Mapping[str, Partition]) -> str:
    if not rows:
        return "the accelerators cannot be partitioned"
    return f"no such profile; there are {', '.join(sorted(rows))}"


def _full(rows: Mapping[str, Partition], name: str, wanted: Sequence[Sequence[str]]) -> str:
    """Why a part found no place: said of the accelerator with the fewest wanted parts."""
    if not wanted:
        return "serving has no accelerator"
    answer = place_parts([rows[part] for part in (*min(wanted, key=len), name)])
    assert isinstance(answer, PartitionRefused), (name, wanted)
    return answer.reason
