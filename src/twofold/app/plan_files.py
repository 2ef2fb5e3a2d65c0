"""Plans that come back as files: whole and of their schema, or refused with the path that is not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twofold.contracts.results import Plan, read_plan
from twofold.core import DataError, InputError, from_data, to_data

PlanSource = Plan | Path | str | Mapping[str, Any]


def plan_data(source: PlanSource) -> dict[str, Any]:
    """A plan as plain data, from a Plan, its data, or the file that `twofold plan --out` wrote.

    Raises InputError for what is no plan, or is one that somebody changed by hand.
    """
    if isinstance(source, Plan):
        made: dict[str, Any] = to_data(source)
        return made
    data = dict(source) if isinstance(source, Mapping) else read_plan(Path(source))
    plan_value(data)
    return data


def plan_value(source: PlanSource) -> Plan:
    """The plan of a Plan, its data, or its file. Raises InputError where it is broken."""
    if isinstance(source, Plan):
        return source
    data = source if isinstance(source, Mapping) else read_plan(Path(source))
    try:
        return from_data(Plan, data, more=True)
    except DataError as error:
        raise InputError(
            f"this plan is broken at `{error.path}`",
            hint="write it again with `twofold plan SPEC --out FILE`",
        ) from error
