"""Which keys a part of a spec has and what is below them, for errors, defaults, schema and reference."""

import types
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from twofold.contracts.spec.fields import Part

Location = tuple[int | str, ...]  # keys and indices from the top, as pydantic counts them


def keys_of(part: type[Part]) -> dict[str, FieldInfo]:
    """The fields by the keys that a file writes."""
    return {field.alias or name: field for name, field in part.model_fields.items()}


def parts_of(part: type[Part]) -> list[type[Part]]:
    """A part and every kind of part below it, each once, in the order that a reader meets them."""
    found = [part]
    for owner in found:
        inner = [part_of(field.annotation) for field in owner.model_fields.values()]
        found += [one for one in dict.fromkeys(inner) if one is not None and one not in found]
    return found


def part_of(annotation: Any) -> type[Part] | None:
    """The one kind of part inside an annotation such as `tuple[Service, ...]`."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, Part) else None
    return next((part for part in map(part_of, get_args(annotation)) if part), None)


def annotation_at(where: Location, part: type[Part]) -> Any:
    """The annotation that a location leads to; a step that names an entry of a mapping is passed over."""
    annotation: Any = part
    is_entry_name = False
    for step in where:
        if isinstance(step, int) or is_entry_name:
            is_entry_name = False
            continue
        owner = part_of(annotation)
        field = keys_of(owner).get(step) if owner else None
        if field is None:
            return None
        annotation = field.annotation
        is_entry_name = get_origin(annotation) is dict
    return annotation


def literals(annotation: Any) -> list[str]:
    """The choices of a Literal inside an annotation."""
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    return [choice for inner in get_args(annotation) for choice in literals(inner)]
