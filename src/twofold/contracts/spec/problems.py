"""What pydantic found wrong becomes our errors: each at its place, with a hint that says what to write."""

from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from twofold.contracts import did_you_mean
from twofold.contracts.spec.fields import Part
from twofold.contracts.spec.keys import Location, annotation_at, keys_of, literals, part_of
from twofold.contracts.spec.yaml_nodes import Mapping, Node, Scalar, Sequence
from twofold.core import InputError, MissingKeyError, Place, ShapeError, UnknownKeyError, ValueRefusedError

ERROR_LIMIT = 50  # a file with more is another kind of file
ROMAN = {"1": "I", "2": "II", "3": "III", "4": "IV"}  # how people number tiers
SWITCHES = ("on", "off")
_NEEDS_MAPPING = {"model_type", "model_attributes_type", "dict_type", "mapping_type"}
_NEEDS_LIST = {"tuple_type", "list_type"}


@dataclass(frozen=True, slots=True)
class _Found:
    """The last node of a location that the file has, and the key that it stands under."""

    node: Node
    key: str
    key_place: Place


def problems(error: ValidationError, root: Node, part: type[Part], whole: str = "a spec") -> list[InputError]:
    """One error per thing to mend, in the order of the file; `whole` is what the file is called."""
    found: dict[tuple[Place, str], InputError] = {}
    told = error.errors(include_url=False)
    for details in told:
        if details["type"] == "default_factory_not_called" or _is_left_empty(details, told):
            continue  # follows from another error
        problem = _problem(details, root, part, whole)
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


def _is_left_empty(details: ErrorDetails, told: list[ErrorDetails]) -> bool:
    """Whether a list is too short only because what stands in it is wrong."""
    where = details["loc"]
    return details["type"] == "too_short" and any(
        len(other["loc"]) > len(where) and other["loc"][: len(where)] == where for other in told
    )


def _problem(details: ErrorDetails, root: Node, part: type[Part], whole: str) -> InputError:
    where, kind = details["loc"], details["type"]
    if kind == "extra_forbidden":
        return _unknown_key(where, root, part, whole)
    if kind == "missing":
        return _missing_key(where, root, whole)
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
        if not isinstance(found.node, Scalar):
            hint = f"one of: {', '.join(choices)}"
            return ShapeError(f"`{key}` needs one word, not {_kind(found.node)}", place=place, hint=hint)
        counted = ROMAN.get(shown, shown)
        hint = did_you_mean(counted, choices, f"one of: {', '.join(choices)}")
        return ValueRefusedError(f"`{key}: {shown}` is not a choice", place=place, hint=hint)
    if kind in _NEEDS_MAPPING:
        inner = part_of(annotation_at(where, part))
        hint = f"keys: {', '.join(keys_of(inner))}" if inner else "write a name and its keys below"
        return ShapeError(f"`{key or whole}` needs keys, not {_kind(found.node)}", place=place, hint=hint)
    if kind in _NEEDS_LIST:
        return ShapeError(
            f"`{key}` needs a list, not {_kind(found.node)}", place=place, hint="write `[a, b]`"
        )
    if kind == "too_short":
        return ShapeError(f"`{key}` is empty", place=place, hint="write at least one, or leave the key out")
    return ShapeError(f"`{key}`: {details['msg']}", place=place)


def _unknown_key(where: Location, root: Node, part: type[Part], whole: str) -> InputError:
    key, owner = str(where[-1]), _found(where[:-1], root)
    inner = part_of(annotation_at(where[:-1], part))
    known = list(keys_of(inner)) if inner else []
    place = owner.node.keys.get(key, owner.key_place) if isinstance(owner.node, Mapping) else owner.key_place
    hint = _switch_hint(key, owner, inner) or did_you_mean(key, known, f"keys: {', '.join(known)}")
    return UnknownKeyError(f"`{key[:64]}` is not a key of {_owner(owner, whole)}", place=place, hint=hint)


def _switch_hint(key: str, owner: _Found, part: type[Part] | None) -> str:
    """Where `off` or `on` stands before what it switches: that comes first. "" where neither is meant."""
    if part is None or key not in SWITCHES:
        return ""
    if "switch" in part.model_fields:
        return f"write `{owner.key}: {key}`"
    inner = {name: part_of(field.annotation) for name, field in keys_of(part).items()}
    names = [name for name, each in inner.items() if each is not None and "switch" in each.model_fields]
    if not names:
        return ""
    value = owner.node.entries.get(key) if isinstance(owner.node, Mapping) else None
    listed = value.items if isinstance(value, Sequence) else [value]
    texts = [each.text for each in listed if isinstance(each, Scalar)]
    said = [f"`{name}: {key}`" for name in texts if name in names]
    return f"write {', '.join(said)}" if said else f"write `NAME: {key}`, NAME one of {', '.join(names)}"


def _missing_key(where: Location, root: Node, whole: str) -> InputError:
    owner = _found(where[:-1], root)
    hint = f"write `{where[-1]}:` below it"
    return MissingKeyError(f"{_owner(owner, whole)} needs `{where[-1]}`", place=owner.key_place, hint=hint)


def _owner(found: _Found, whole: str) -> str:
    return f"`{found.key}`" if found.key else whole


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
