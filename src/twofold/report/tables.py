"""Tables of an answer, made of the data that `--json` prints: each array of objects there is one.

So a table has the names of the data, and the pages that describe these describe it. Objects within a row are
laid beside each other, `price.usd_per_accelerator_h`; arrays within it are tables below, whose rows begin
with what they belong to. A figure has its range and its letter in the columns behind it.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from twofold.answer import paths
from twofold.core.tables import Cell, Table, joined, table_of

ALL_IN_ONE = "answer"  # the one row of whatever stands in no array
NAMES = ("name", "id", "metric", "path", "what", "text", "value")  # what a row is called by in tables below
# By schema: names that people ask by and where they stand in the data. The first that there is comes first.
CALLED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "twofold/plan/1": {
            "bill": "money.lines",
            "actions": "actions",
            "goals": "serving.classes.slos",
            "runs": "training",
            "services": "serving",
            "levers": "money.detail.levers",
            "owning": "money.owning.lines",
        },
        "twofold/compare/1": {"halves": "rows"},
        "twofold/estimate-train/1": {"layouts": "layouts", "step": "step_parts", "memory": "memory_parts"},
        "twofold/estimate-serve/1": {
            "replicas": "replicas",
            "layouts": "layouts",
            "formats": "formats",
            "switches": "switches",
            "latency": "latency_budget",
            "memory": "memory_parts",
        },
        "twofold/ladder/1": {"ladder": "ladders.rungs"},
        "twofold/simulation/1": {
            "differences": "comparison.differences",
            "goals": "classes.slos",
            "jobs": "training.runs",
        },
        "twofold/sweep/1": {"sweep": "points"},
        "twofold/validation/1": {"errors": "groups"},
        "twofold/diff/1": {"changes": "changes"},
        "twofold/claims/1": {"claims": "claims"},
        "twofold/calibration/1": {"factors": "stacks.factors", "figures": "stacks.figures"},
    }
)


def tables_of(data: Mapping[str, Any]) -> tuple[Table, ...]:
    """Every table of an answer's data, under the names that people call them by; the main one first."""
    rows: dict[str, list[dict[str, Cell]]] = {}
    units: dict[str, dict[str, set[str]]] = {}
    for path, row in _rows(data, "", 1, {}):
        rows.setdefault(path, []).append({name: cell for name, (cell, _) in row.items()})
        for name, (_, unit) in row.items():
            units.setdefault(path, {}).setdefault(name, set()).add(unit)
    asked = CALLED.get(str(data.get("schema")), {})
    called = {path: name for name, path in asked.items() if path in rows}
    called = called or {path: name for name, path in asked.items() if data.get(path) == []}  # nothing changed
    held = [path for path in rows if path in units and path != ALL_IN_ONE]
    return tuple(
        table_of(called.get(path, path), rows.get(path, ()), _single(units.get(path, {})))
        for path in dict.fromkeys((*called, *held, ALL_IN_ONE))
    )


Row = dict[str, tuple[Cell, str]]  # a value and its unit, by column


def _rows(node: Mapping[str, Any], path: str, number: int, owners: Row) -> Iterator[tuple[str, Row]]:
    """The row of a node with the path of its table, then the rows of all that lies below it."""
    row, below = dict(owners), []
    for name, value in _flat(node):
        if entries := _entries(value):
            below.append((f"{path}.{name}" if path else name, entries))
        elif paths.is_estimate(value):
            row |= _figure(name, value)
        elif value != []:
            row[name] = (joined(value) if isinstance(value, list) else value, _unit(name))
    yield path or ALL_IN_ONE, row
    called = next((node[each] for each in NAMES if isinstance(node.get(each), str)), number)
    own = {**owners, path: (called, "")} if path else owners
    for inner, entries in below:
        for each, entry in enumerate(entries, 1):
            yield from _rows(entry, inner, each, own)


def _flat(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values with their names, those of objects within beside them; a figure with its range is one value."""
    for name, value in node.items():
        if isinstance(value, dict) and not paths.is_estimate(value):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _entries(value: Any) -> list[dict[str, Any]]:
    """The rows that an array is a table of; none of plain values, which one cell holds."""
    if not isinstance(value, list):
        return []
    if any(isinstance(each, dict) for each in value):
        return [each if isinstance(each, dict) else {"value": each} for each in value]
    if not all(isinstance(each, list) for each in value):
        return []
    if all(len(each) == 2 and not isinstance(each[1], dict | list) for each in value):
        return [{"name": first, "value": second} for first, second in value]
    return [{"parts": each} for each in value]


def _figure(name: str, figure: Mapping[str, Any]) -> Row:
    """A number with its 80 % range and its letter; its unit where the name does not end with it."""
    unit = figure["unit"].removeprefix("memory ")
    told = {"unit": (unit, "")} if unit and _unit(name) != unit else {}
    ends = {"low": (figure["low"], unit), "high": (figure["high"], unit), **told}
    ends["source"] = (figure["source"], "")
    return {name: (figure["value"], unit), **{f"{name}_{end}": cell for end, cell in ends.items()}}


def _unit(name: str) -> str:
    """As an `Estimate` has it."""
    unit = paths.unit_of(f".{name}") or ""
    return "fraction" if unit == "probability" else unit.removeprefix("memory ")


def _single(units: Mapping[str, set[str]]) -> dict[str, str]:
    """The units of columns that have one alone."""
    return {name: next(iter(found)) for name, found in units.items() if len(found) == 1}
