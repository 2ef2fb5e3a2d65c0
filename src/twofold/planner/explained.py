"""Why a number of a plan is what it is, down to sources, and what differs between two plans, path by path."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isclose
from textwrap import wrap
from typing import Any

from twofold.answer import paths
from twofold.core.data import from_data
from twofold.core.display import format_estimate, format_si, likely
from twofold.core.errors import InputError
from twofold.core.estimate import Estimate

WIDTH = 100
LEAVES_SHOWN = 40

Derivations = Mapping[str, dict[str, Any]]


def explain(plan: dict[str, Any], path: str) -> tuple[str, ...]:
    """The lines of the tree of one path of a plan's JSON, at most 100 columns wide.

    A path without a derivation of its own lists what stands below it. Raises InputError for an unknown path.
    """
    known = {row["path"]: row for row in plan["derivations"]}
    if path not in known:
        return _listing(plan, path)
    formula = known[path]["formula"]
    head = _wrapped(f"{path} = {_value_text(plan, known, path)}", "", "│  ")
    formulas = _wrapped(f"= {formula}", "│  ", "│  ") if formula else []
    return (*head, *formulas, *_branches(known, known[path], "", {path}))


def _listing(plan: dict[str, Any], path: str) -> tuple[str, ...]:
    node = paths.resolve(plan, path)
    if not paths.children(node):
        return tuple(_wrapped(f"{path} = {_leaf_text(plan, path, node)}", "", "   "))
    below = [(f"{path}.{key}" if path else key, leaf) for key, leaf in paths.leaves(node)]
    texts = (f"{key} = {_leaf_text(plan, key, leaf)}" for key, leaf in below[:LEAVES_SHOWN])
    lines = (line for text in texts for line in _wrapped(text, "", "   "))
    more = len(below) - LEAVES_SHOWN
    return (path, *lines, *([f"… and {more} more"] if more > 0 else []))


def _leaf_text(plan: dict[str, Any], path: str, leaf: Any) -> str:
    """A leaf as people read it: a number with the unit of its name, an estimate with range and letter."""
    if paths.is_estimate(leaf):
        return format_estimate(from_data(Estimate, leaf))
    if leaf is None or leaf == [] or leaf == {}:
        return "none"
    if isinstance(leaf, float):
        unit = paths.unit_of(path)
        if unit == "probability":
            return likely(leaf, _asked(plan, path))
        return f"{leaf:,.6g}" if unit is None else format_si(leaf, unit)
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        return f"{leaf:,}"
    return str(leaf)


def _asked(plan: dict[str, Any], path: str) -> float | None:
    """What a probability is held against: its rung's confidence, or what the plan asks of each goal."""
    above, _, name = path.rpartition(".")
    if name == "probability":
        rung: dict[str, float] = paths.resolve(plan, above)
        return rung.get("confidence")
    sure: dict[str, float] = plan.get("confidence") or {}
    return sure.get("asked_fraction") if name.endswith("holds_probability") else None


def _value_text(plan: dict[str, Any], known: Derivations, path: str) -> str:
    """The value at a path; a step of a derivation that is no field of the plan shows what its user shows."""
    try:
        return _leaf_text(plan, path, paths.resolve(plan, path))
    except InputError:
        used = (item["text"] for row in known.values() for item in row["inputs"] if item["path"] == path)
        return next(used, "")


def _branches(known: Derivations, derivation: dict[str, Any], indent: str, shown: set[str]) -> list[str]:
    """The inputs of a derivation, each with what it follows from; what was shown above is not repeated."""
    lines: list[str] = []
    inputs = derivation["inputs"]
    for index, item in enumerate(inputs):
        stroke, under = ("└─", "   ") if index == len(inputs) - 1 else ("├─", "│  ")
        deeper, again = indent + under, item["path"] in shown
        below = None if again else known.get(item["path"])
        text = f"{item['label']} {item['text']}".strip()
        if again:
            text = f"{item['label']} {item['text']} (above)"
        elif not item["path"]:
            text += f" ({' '.join(word for word in (item['source'], item['reference']) if word)})"
        elif below and below["formula"]:
            text += f" = {below['formula']}"
        lines += _wrapped(text, f"{indent}{stroke} ", f"{deeper}{'│  ' if below else '   '}")
        if below:
            shown.add(item["path"])
            lines += _branches(known, below, deeper, shown)
    return lines


def _wrapped(text: str, first: str, following: str) -> list[str]:
    """The text in lines of the screen's width behind the tree's strokes."""
    return wrap(text, WIDTH, initial_indent=first, subsequent_indent=following, break_on_hyphens=False)


DERIVED = ("derivations", "defaults")  # follow from the rest: left out unless asked


@dataclass(frozen=True, slots=True)
class Change:
    """One leaf that differs. None stands for a leaf that one plan lacks; estimates differ by range too."""

    path: str
    old: Any
    new: Any
    relative_change_fraction: float | None  # of the middle; None: either is no number, or the old is 0


def diff(old: dict[str, Any], new: dict[str, Any], also: Iterable[str] = ()) -> tuple[Change, ...]:
    """The leaves of two plans (as `to_data` or `read_plan` give them) that differ, in plan order.

    Digests, ranges and sources count; the top-level parts in `DERIVED` only when named in `also`.
    """
    wanted = set(also)
    found = []
    for plan in (old, new):
        asked = {key: value for key, value in plan.items() if key not in DERIVED or key in wanted}
        rows = plan.get("derivations", []) if "derivations" in wanted else []
        found.append(dict(paths.leaves(asked)) | {f"derivations.{row['path']}": row for row in rows})
    before, after = found
    every = [*before, *(path for path in after if path not in before)]
    changes = []
    for path in every:
        if not _same(before.get(path), after.get(path)):  # what is in neither differs in nothing
            first, second = _middle(before.get(path)), _middle(after.get(path))
            relative = second / first - 1 if first and second is not None else None
            changes.append(Change(path, before.get(path), after.get(path), relative))
    return tuple(changes)


def _same(old: Any, new: Any) -> bool:
    """Whether two leaves are equal, numbers but for the rounding of sums in another order."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return all(_same(old[key], new[key]) for key in old)
    if isinstance(old, float) and isinstance(new, float):
        return isclose(old, new, rel_tol=1e-12)
    return bool(old == new)


def _middle(value: Any) -> float | None:
    number = value["value"] if paths.is_estimate(value) else value
    return float(number) if isinstance(number, (int, float)) and not isinstance(number, bool) else None
