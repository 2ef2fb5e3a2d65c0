"""What pydantic found wrong becomes our errors: each at its place, with a hint that says what to write."""

import types
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from twofold.contracts.fields import Part
from twofold.contracts.names import did_you_mean
from twofold.contracts.yaml_nodes import Mapping, Node, Scalar, Sequence
from twofold.core import InputError, MissingKeyError, Place, ShapeError, UnknownKeyError, ValueRefusedError

Location = tuple[int | str, ...]
ERROR_LIMIT = 50  # a file with more is another kind of file
_NEEDS_MAPPING = {"model_type", "model_attributes_type", "dict_type", "mapping_type"}
_NEEDS_LIST = {"tuple_type", "list_type"}


def parts_of(part: type[Part]) -> list[type[Part]]:
    """A part and every kind of part below it, each once, in the order that a reader meets them."""
    found = [part]
    for owner in found:
        inner = [part_of(field.annotation) for field in owner.model_fields.values()]
        found += [one for one in dict.fromkeys(inner) if one is not None and one not in found]
    return found


@dataclass(frozen=True, slots=True)
class _Found:
    """The last node of a location that the file has, and the key that it stands under."""

    node: Node
    key: str
    key_place: Place


def problems(error: ValidationError, root: Node, part: type[Part]) -> list[InputError]:
    """One error per thing to mend, in the order of the file."""
    found: dict[tuple[Place, str], InputError] = {}
    for details in error.errors(include_url=False):
        if details["type"] == "default_factory_not_called":  # follows from another error
            continue
        problem = _problem(details, root, part)
        assert problem.place is not None
        found.setdefault((problem.place, problem.message), problem)
    ordered = sorted(found.values(), key=lambda one: one.place or Place("", 0, 0))
    left_over = len(ordered) - ERROR_LIMIT
    if left_over <= 0:
        return ordered
    return [
        *ordered[:ERROR_LIMIT],
        InputError(f"{left_over} more mistakes", place=ordered[ERROR_LIMIT].place),
    ]


def keys_of(part: type[Part]) -> dict[str, FieldInfo]:
    """The fields by the keys that a file writes."""
    return {field.alias or name: field for name, field in part.model_fields.items()}


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


def _problem(details: ErrorDetails, root: Node, part: type[Part]) -> InputError:
    where, kind = details["loc"], details["type"]
    if kind == "extra_forbidden":
        return _unknown_key(where, root, part)
    if kind == "missing":
        return _missing_key(where, root)
    found = _found(where, root)
    place, key, shown = _place(where, found), found.key, _shown(found.node)
    carried = details.get("ctx", {}).get("error")
    if isinstance(found.node, Scalar) and not found.node.text and key:
        return ShapeError(f"`{key}` has no value", place=place, hint=getattr(carried, "hint", ""))
    if isinstance(carried, InputError):
        message = carried.message.replace(f"`{shown}`", f"`{key}: {shown}`", 1) if key else carried.message
        return type(carried)(message, place=place, hint=carried.hint)
    if kind == "literal_error":
        choices = literals(annotation_at(where, part))
        hint = did_you_mean(shown, choices, f"one of: {', '.join(choices)}")
        return ValueRefusedError(f"`{key}: {shown}` is not a choice", place=place, hint=hint)
    if kind in _NEEDS_MAPPING:
        inner = part_of(annotation_at(where, part))
        hint = f"keys: {', '.join(keys_of(inner))}" if inner else "write a name and its keys below"
        return ShapeError(f"`{key or 'a spec'}` needs keys, not {_kind(found.node)}", place=place, hint=hint)
    if kind in _NEEDS_LIST:
        return ShapeError(
            f"`{key}` needs a list, not {_kind(found.node)}", place=place, hint="write `[a, b]`"
        )
    if kind == "too_short":
        return ShapeError(f"`{key}` is empty", place=place, hint="write at least one, or leave the key out")
    return ShapeError(f"`{key}`: {details['msg']}", place=place)


def _unknown_key(where: Location, root: Node, part: type[Part]) -> InputError:
    key, owner = str(where[-1]), _found(where[:-1], root)
    inner = part_of(annotation_at(where[:-1], part))
    known = list(keys_of(inner)) if inner else []
    place = owner.node.keys.get(key, owner.key_place) if isinstance(owner.node, Mapping) else owner.key_place
    hint = did_you_mean(key, known, f"keys: {', '.join(known)}")
    return UnknownKeyError(f"`{key[:64]}` is not a key of {_owner(owner)}", place=place, hint=hint)


def _missing_key(where: Location, root: Node) -> InputError:
    owner = _found(where[:-1], root)
    hint = f"write `{where[-1]}:` below it"
    return MissingKeyError(f"{_owner(owner)} needs `{where[-1]}`", place=owner.key_place, hint=hint)


def _owner(found: _Found) -> str:
    return f"`{found.key}`" if found.key else "a spec"


def _found(where: Location, root: Node) -> _Found:
    """Follows a location through the file's own form.

    A run or service that stands alone is a list of one, so an index may have no node of its own; a model that
    stands above its runs and services is theirs.
    """
    found = _Found(root, "", root.place)
    for step in where:
        node = found.node
        if isinstance(node, Mapping) and isinstance(step, str):
            home = node if step in node.entries else root if step == "model" else None
            if not isinstance(home, Mapping) or step not in home.entries:
                break
            found = _Found(home.entries[step], step, home.keys[step])
        elif isinstance(node, Sequence) and isinstance(step, int):
            found = _Found(node.items[step], found.key, node.items[step].place)
        elif not isinstance(step, int):
            break
    return found


def _place(where: Location, found: _Found) -> Place:
    """The value's place; the key's where the value is more than a text."""
    is_value = isinstance(found.node, Scalar) and where[-1:] != ("[key]",)
    return found.node.place if is_value else found.key_place


def _shown(node: Node) -> str:
    if not isinstance(node, Scalar):
        return ""
    return node.text if len(node.text) <= 64 else node.text[:63] + "…"


def _kind(node: Node) -> str:
    if isinstance(node, Scalar):
        return f"the text `{_shown(node)}`" if node.text else "nothing"
    return "a list" if isinstance(node, Sequence) else "a mapping"


def literals(annotation: Any) -> list[str]:
    """The choices of a Literal inside an annotation."""
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    return [choice for inner in get_args(annotation) for choice in literals(inner)]
