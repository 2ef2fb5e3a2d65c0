"""Plans that come back as files: whole and of their schema, or refused with the path that is not."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from twofold.contracts.results import Plan, plan_to_dict, read_plan
from twofold.core import Estimate, InputError

PlanSource = Plan | Path | str | Mapping[str, Any]
# What JSON has for each plain kind; a flag is no number.
PLAIN: Mapping[type, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (int, float),
    NoneType: (NoneType,),
}


def plan_data(source: PlanSource) -> dict[str, Any]:
    """A plan as plain data, from a Plan, its data, or the file that `twofold plan --out` wrote.

    Raises InputError for what is no plan, or is one that somebody changed by hand.
    """
    if isinstance(source, Plan):
        made: dict[str, Any] = plan_to_dict(source)
        return made
    data = dict(source) if isinstance(source, Mapping) else read_plan(Path(source))
    wrong = next(_mismatches(data, Plan, ""), None)
    if wrong is not None:
        raise InputError(
            f"this plan is broken at `{wrong}`", hint="write it again with `twofold plan SPEC --out FILE`"
        )
    return data


def _mismatches(value: Any, kind: Any, path: str) -> Iterator[str]:
    """The paths of what is not of its kind in the schema."""
    if isinstance(kind, UnionType):
        found = [list(_mismatches(value, option, path)) for option in get_args(kind)]
        yield from min(found, key=len)
    elif is_dataclass(kind):
        yield from _wrong_fields(value, kind, path)
    elif get_origin(kind) in (tuple, dict):
        yield from _wrong_items(value, kind, path)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        if value not in list(kind):
            yield path
    elif not isinstance(value, PLAIN[kind]) or (isinstance(value, bool) and kind is not bool):
        yield path


def _wrong_fields(value: Any, kind: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield path
        return
    hints = get_type_hints(kind)
    wrong = False
    for field in fields(kind):
        if field.name in value or field.default is MISSING:
            for at in _mismatches(
                value.get(field.name, MISSING), hints[field.name], _below(path, field.name)
            ):
                wrong = True
                yield at
    if kind is Estimate and not wrong and not value["low"] <= value["value"] <= value["high"]:
        yield path


def _wrong_items(value: Any, kind: Any, path: str) -> Iterator[str]:
    arguments = get_args(kind)
    if get_origin(kind) is dict:
        items = list(value.items()) if isinstance(value, dict) else None
        kinds = [arguments[1]] * len(items or [])
    else:
        items = [(str(index), item) for index, item in enumerate(value)] if isinstance(value, list) else None
        kinds = [arguments[0]] * len(items or []) if arguments[-1] is Ellipsis else list(arguments)
    if items is None or len(items) != len(kinds):
        yield path
        return
    for (key, item), one in zip(items, kinds, strict=True):
        yield from _mismatches(item, one, _below(path, key))


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
