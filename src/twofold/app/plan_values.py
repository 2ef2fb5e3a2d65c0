"""A plan's JSON as the plan that it was written from: the inverse of `plan_to_dict`."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from twofold.app.plan_files import PlanSource, plan_data
from twofold.contracts.results import Plan

hints_of = cache(get_type_hints)


def plan_value(source: PlanSource) -> Plan:
    """The plan of a Plan, its data, or its file. Raises InputError where it is broken."""
    if isinstance(source, Plan):
        return source
    plan: Plan = _value(plan_data(source), Plan)
    return plan


def _value(data: Any, kind: Any) -> Any:
    """Data that `plan_data` found sound, as its kind."""
    if isinstance(kind, UnionType):
        wanted = [each for each in get_args(kind) if each is not NoneType]
        return None if data is None else _value(data, wanted[0])
    if is_dataclass(kind) and isinstance(kind, type):
        return _part(data, kind)
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else arguments
        return tuple(_value(item, one) for item, one in zip(data, kinds, strict=True))
    if get_origin(kind) is dict:
        return {key: _value(item, arguments[1]) for key, item in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    return data


def _part(data: Mapping[str, Any], kind: type) -> Any:
    hints = hints_of(kind)
    known = [field.name for field in fields(kind) if field.name in data]
    return kind(**{name: _value(data[name], hints[name]) for name in known})
