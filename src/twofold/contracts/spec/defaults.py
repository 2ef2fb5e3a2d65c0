"""Which values of a spec nobody wrote: every default with its path, for `plan --show-defaults`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from twofold.contracts.spec.fields import Part, Unsaid
from twofold.contracts.spec.reader import part_of
from twofold.contracts.spec.spec import Spec

# What only a model that reads and writes tokens has; rows of batches are the same whatever it says.
OF_TOKENS = (
    *("quantisation", "kv_quantisation", "engine", "weigh"),
    *("traffic.input", "traffic.output", "traffic.shared_prefix"),
)


@dataclass(frozen=True, slots=True)
class Default:
    """A value that the spec left open, as a user would write it, and what it means."""

    path: str
    text: str
    meaning: str


def defaults_used(spec: Spec) -> tuple[Default, ...]:
    """Every default that the plan rests on, in the order of the spec. What is simply absent is not listed."""
    rows = tuple(f"serving.{each.name}." for each in spec.services if each.model.measured)

    def is_of_tokens(path: str) -> bool:
        of = next((service for service in rows if path.startswith(service)), None)
        return of is not None and re.sub(r"classes\.[^.]*\.", "", path.removeprefix(of)) in OF_TOKENS

    return tuple(each for each in _defaults(spec, "") if not is_of_tokens(each.path))


def _defaults(part: Part, path: str) -> Iterator[Default]:
    written = part.model_dump(mode="json", by_alias=True)
    for name, field in type(part).model_fields.items():
        value, key = getattr(part, name), field.alias or name
        here = f"{path}.{key}" if path else key
        is_absent = value is None or (value in ((), {}) and part_of(field.annotation) is not None)
        if is_absent or name in part.idle_fields():
            continue
        is_given = name in part.model_fields_set
        if is_given or (isinstance(value, Part) and not value.model_fields_set):
            for inner_path, inner in _inner(value, here):
                yield from _defaults(inner, inner_path)
        else:
            means = (each.text for each in field.metadata if isinstance(each, Unsaid) and value == ())
            yield Default(here, next(means, None) or flat(written[key]), field.description or "")


def _inner(value: Any, path: str) -> Iterator[tuple[str, Part]]:
    """The parts inside a value; entries of a list go by their name, as they do in a plan's paths."""
    if isinstance(value, Part):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _inner(item, f"{path}.{key}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _inner(item, f"{path}.{getattr(item, 'name', index)}")


def flat(written: Any) -> str:
    """A value as a user would write it on one line."""
    if isinstance(written, dict):
        return ", ".join(f"{key} {flat(value)}" for key, value in written.items() if value is not None)
    if isinstance(written, list):
        return ", ".join(map(str, written)) or "any"
    return str(written).lower() if isinstance(written, bool) else str(written)
