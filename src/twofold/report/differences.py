"""What changed between two plans as lines of a table: all of it, or what matters first."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from typing import Any

from twofold.answer import paths
from twofold.core.data import from_data, to_data
from twofold.core.display import format_si, format_usd
from twofold.core.estimate import Estimate
from twofold.planner.explained import Change, diff
from twofold.report.answers import Shown
from twofold.report.figures import ranged
from twofold.report.lines import both_ends, table

_ESTIMATE = {"value", "low", "high", "unit", "source"}
HALVES = ("training", "serving")
_DIGEST_LETTERS = 12  # tell two digests apart
CHANGED = 4  # exit code
FLEETS = ("rent", "use")  # actions that name machines
NOWHERE: dict[str, Any] = {"text": None, "usd": None}
SHOWN = 20
# What a group is about, the most telling first: patterns of the end of a path.
GROUPS = {
    "totals": (
        r"^first_year_usd", r"^portfolio\.usd", r"^money\.total_usd", r"cost_usd(_per_year)?",
        r"\.run\.total_s", r"\.run\.accelerator_h",
    ),
    "asked": (
        r"\.model", r"\.tokens", r"\.rate_per_s", r"\.limit_s", r"\.deadline_s", r"\.precision",
        r"^budget_usd", r"\.regions\.\d+",
    ),
    "machines": (
        r"\.machine\.accelerator", r"\.machine\.node_count", r"\.machine\.accelerator_count",
        r"\.machine\.node", r"\.machine\.fabric", r"^portfolio\.leases\..*\.(offer|units)",
    ),
    "layouts": (
        r"\.layout\.text", r"\.replica\.text", r"\.replica_text", r"\.step_s", r"\.mfu_fraction",
        r"\.memory_bytes",
    ),
    "replicas": (r"[^.]+\.replica_count", r"\.spare_count", r"\.zones", r"\.warm_pool_count"),
    "SLOs": (r"\.slos\..*\.met", r"\.slos\..*\.predicted", r"\.holds_until_per_s"),
    "prices": (
        r"\.price\.usd_per_accelerator_h", r"\.price\.(provider|instance|region|term)",
        r"\.usd_per_1k_output_tokens", r"\.usd_per_mtok",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Move:
    """A run or service that is on other machines, or another provider's; None: in one plan alone."""

    name: str
    old: str | None  # machines, provider and terms, as the decision has them
    new: str | None
    old_usd: float | None  # of the first year; None: no price
    new_usd: float | None


def moves_of(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Move]:
    """What is rented or used elsewhere in the new plan, in its order."""
    before, after = (
        {each["name"]: each for each in plan.get("actions", ()) if each["kind"] in FLEETS}
        for plan in (old, new)
    )
    for name in dict.fromkeys((*after, *before)):
        first, second = before.get(name, NOWHERE), after.get(name, NOWHERE)
        if first["text"] != second["text"]:
            yield Move(name, first["text"], second["text"], first["usd"], second["usd"])


def move_lines(move: Move) -> list[str]:
    """Where it was and where it is, and what money that changes."""
    more = ""
    if move.old_usd is not None and move.new_usd is not None:
        usd = move.new_usd - move.old_usd
        more = f" ({'-' if usd < 0 else '+'}{format_usd(abs(usd))})"
    ends = [f"{format_usd(usd)}" if usd is not None else "" for usd in (move.old_usd, move.new_usd)]
    return [
        *both_ends(f"{move.name}: {move.old or 'not in the old plan'}", ends[0]),
        *both_ends(f"  now {move.new or 'not in the new plan'}", f"{ends[1]}{more}"),
    ]


@dataclass(frozen=True, slots=True)
class Difference(Shown):
    """What differs between two plans, in plan order; empty when nothing does. Prints what matters first."""

    schema = "twofold/diff/1"
    changes: tuple[Change, ...]
    everything: bool = False  # prints every change, in plan order
    moves: tuple[Move, ...] = ()

    @classmethod
    def between(cls, old: dict[str, Any], new: dict[str, Any], everything: bool = False) -> "Difference":
        """What differs between two plans as data."""
        return cls(diff(old, new), everything, tuple(moves_of(old, new)))

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def lines(self) -> list[str]:
        """The changes that matter most, or all of them."""
        rows = difference_lines(self.changes) if self.everything else telling_lines(self.changes)
        return [*(line for each in self.moves for line in move_lines(each)), *rows]

    @property
    def as_data(self) -> dict[str, Any]:
        """Every change, and what moved to other machines or another provider."""
        return {"changes": to_data(self.changes), "moves": to_data(self.moves)}

    @property
    def exit_code(self) -> int:
        """Whether anything changed."""
        return CHANGED if self.changes else 0


def difference_lines(changes: Sequence[Change]) -> list[str]:
    """A row per change, below the run or service that it is of, and their count; or that nothing changed."""
    if not changes:
        return ["no change"]
    rows: list[tuple[str, ...]] = []
    for owner, owned in groupby(changes, lambda change: owner_of(change.path)):
        rows += [(owner, "", "", "")] if owner else []
        rows += [difference_row(change, owner, "  " if owner else "") for change in owned]
    lines = table(("path", "old", "new", "change"), rows, numbers=(3,))
    return [*lines, count_line(len(changes))]


def count_line(count: int) -> str:
    """`3 changes`."""
    return f"{count:,} change{'s' if count > 1 else ''}"


def owner_of(path: str) -> str:
    """`training.pretrain` of its figures; nothing of what belongs to the whole plan."""
    half, *names = path.split(".")
    return f"{half}.{names[0]}" if half in HALVES and len(names) > 1 else ""


def difference_row(change: Change, owner: str, indent: str) -> tuple[str, ...]:
    """A change with its path below its owner's, both values, and by how much the middle moved."""
    path = indent + (change.path.removeprefix(f"{owner}.") if owner else change.path)
    old, new = (_text(change.path, leaf) for leaf in (change.old, change.new))
    return path, old, new, _percent(change.relative_change_fraction)


def _text(path: str, leaf: Any) -> str:
    unit = paths.unit_of(path)
    if isinstance(leaf, dict) and leaf.keys() == _ESTIMATE:
        estimate = from_data(Estimate, leaf)
        # Ratios and counts are plain numbers; memory counts in GiB.
        shown = {"1": "", "ratio": "", "B": "memory B" if ".memory_" in path else "B"}
        return ranged(
            replace(estimate, unit=shown.get(estimate.unit, estimate.unit) if unit is None else unit)
        )
    if leaf is None:
        return "–"
    if isinstance(leaf, float):
        return f"{leaf:.6g}" if unit is None else format_si(leaf, unit)
    return leaf[:_DIGEST_LETTERS] if path.startswith("digests.") else str(leaf)


def _percent(fraction: float | None) -> str:
    if not fraction:
        return ""
    return f"{100 * fraction:+,.0f} %" if abs(fraction) >= 1 else f"{100 * fraction:+.3g} %"


def telling_lines(changes: Sequence[Change]) -> list[str]:
    """At most twenty differences, by what they are about, and how many more there are."""
    if len(changes) <= SHOWN:
        return difference_lines(changes)
    chosen, groups = list(_chosen(changes))[:SHOWN], list(GROUPS)
    if not chosen:
        return [*difference_lines(changes[:SHOWN])[:-1], _more(len(changes), SHOWN)]
    rows: list[tuple[str, ...]] = []
    # Groups in their order, and in each the runs and services in the plan's.
    chosen.sort(key=lambda each: (each[0], changes.index(each[1])))
    for (group, owner), found in groupby(chosen, lambda each: (each[0], owner_of(each[1].path))):
        rows.append((f"{groups[group]} of {owner}" if owner else groups[group], "", "", ""))
        rows += [difference_row(change, owner, "  ") for _, change in found]
    lines = table(("path", "old", "new", "change"), rows, numbers=(3,))
    return [*lines, _more(len(changes), len(chosen))]


def _more(count: int, shown: int) -> str:
    return f"{count_line(count)}, {count - shown:,} more: --all"


def _chosen(changes: Sequence[Change]) -> Iterator[tuple[int, Change]]:
    """One of each group in turn, so that no group hides another; each begins with what changed most."""
    by_group: list[list[tuple[int, float, Change]]] = [[] for _ in GROUPS]
    for change in changes:
        if change.relative_change_fraction == 0.0:
            continue  # its range alone differs
        for group, patterns in enumerate(GROUPS.values()):
            rank = next((i for i, text in enumerate(patterns) if re.search(f"{text}$", change.path)), None)
            if rank is not None:
                by_group[group].append((rank, -abs(change.relative_change_fraction or 0.0), change))
                break
    sorted_groups = [
        [(group, change) for _, _, change in sorted(found, key=lambda each: each[:2])]
        for group, found in enumerate(by_group)
    ]
    for turn in zip_longest(*sorted_groups):
        yield from (each for each in turn if each is not None)
