"""What differs between two plans, path by path."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from twofold.answer import is_estimate, leaves

DERIVED = ("derivations", "defaults")  # follow from the rest: left out unless asked


@dataclass(frozen=True, slots=True)
class Change:
    """One leaf that differs. None stands for a leaf that one plan lacks; estimates differ by range too."""

    path: str
    old: Any
    new: Any
    relative_change_fraction: (
        float | None
    )  # of the middle; None where either is not a number, or the old is 0


def diff(old: dict[str, Any], new: dict[str, Any], also: Iterable[str] = ()) -> tuple[Change, ...]:
    """The leaves of two plans (as `to_data` or `read_plan` give them) that differ, in plan order.

    Digests, ranges and sources count; the top-level parts in `DERIVED` only when named in `also`.
    """
    wanted = set(also)
    before, after = (
        dict(leaves({key: value for key, value in plan.items() if key not in DERIVED or key in wanted}))
        for plan in (old, new)
    )
    for plan, found in ((old, before), (new, after)):
        if "derivations" in wanted:
            found |= {f"derivations.{row['path']}": row for row in plan.get("derivations", [])}
    paths = [*before, *(path for path in after if path not in before)]
    return tuple(
        Change(path, before.get(path), after.get(path), _relative(before.get(path), after.get(path)))
        for path in paths
        if path not in before or path not in after or before[path] != after[path]
    )


def _relative(old: Any, new: Any) -> float | None:
    first, second = (_middle(value) for value in (old, new))
    return second / first - 1 if first and second is not None else None


def _middle(value: Any) -> float | None:
    number = value["value"] if is_estimate(value) else value
    return float(number) if isinstance(number, (int, float)) and not isinstance(number, bool) else None
