"""Where a number of a plan comes from: a tree down to catalogue rows, constants and the spec."""

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from twofold.answer import children, is_estimate, leaves, resolve, unit_of
from twofold.core import Estimate, InputError, format_estimate, format_si, from_data

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
    node = resolve(plan, path)
    if not children(node):
        return (f"{path} = {leaf_text(path, node)}",)
    below = [(f"{path}.{key}" if path else key, leaf) for key, leaf in leaves(node)]
    lines = [f"{key} = {leaf_text(key, leaf)}" for key, leaf in below[:LEAVES_SHOWN]]
    more = len(below) - LEAVES_SHOWN
    return (path, *lines, *([f"… and {more} more"] if more > 0 else []))


def leaf_text(path: str, leaf: Any) -> str:
    """A leaf as people read it: a number with the unit of its name, an estimate with range and letter."""
    if is_estimate(leaf):
        return format_estimate(from_data(Estimate, leaf))
    if leaf is None or leaf == [] or leaf == {}:
        return "none"
    if isinstance(leaf, float):
        unit = unit_of(path)
        return f"{leaf:,.6g}" if unit is None else format_si(leaf, unit)
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        return f"{leaf:,}"
    return str(leaf)


def _value_text(plan: dict[str, Any], known: Derivations, path: str) -> str:
    """The value at a path; a step of a derivation that is no field of the plan shows what its user shows."""
    try:
        return leaf_text(path, resolve(plan, path))
    except InputError:
        used = (item["text"] for row in known.values() for item in row["inputs"] if item["path"] == path)
        return next(used, "")


def _branches(known: Derivations, derivation: dict[str, Any], indent: str, shown: set[str]) -> list[str]:
    """The inputs of a derivation, each with what it follows from; what was shown above is not repeated."""
    lines: list[str] = []
    inputs = derivation["inputs"]
    for index, item in enumerate(inputs):
        last = index == len(inputs) - 1
        deeper = f"{indent}{'   ' if last else '│  '}"
        below = known.get(item["path"])
        again = item["path"] in shown
        text = f"{item['label']} {item['text']} (above)" if again else _input_text(item, below)
        lines += _wrapped(
            text, f"{indent}{'└─' if last else '├─'} ", f"{deeper}{'│  ' if below and not again else '   '}"
        )
        if below and not again:
            shown.add(item["path"])
            lines += _branches(known, below, deeper, shown)
    return lines


def _wrapped(text: str, first: str, following: str) -> list[str]:
    """The text in lines of the screen's width behind the tree's strokes."""
    return wrap(text, WIDTH, initial_indent=first, subsequent_indent=following, break_on_hyphens=False)


def _input_text(item: dict[str, Any], below: dict[str, Any] | None) -> str:
    text = f"{item['label']} {item['text']}".strip()
    if not item["path"]:
        return f"{text} ({' '.join(word for word in (item['source'], item['reference']) if word)})"
    return f"{text} = {below['formula']}" if below and below["formula"] else text
