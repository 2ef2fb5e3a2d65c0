"""Reads a spec's file. Everything wrong is found in one pass; each error says where and what to write."""

import shlex
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from twofold.contracts.names import Names, did_you_mean
from twofold.contracts.spec.fields import Part
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.yaml_nodes import (
    FileSizeError,
    Mapping,
    Node,
    Scalar,
    Sequence,
    plain,
    read_nodes,
)
from twofold.core import errors
from twofold.core.errors import FileError, InputError, InputErrors, Place, ShapeError, ValueRefusedError

Location = tuple[int | str, ...]  # keys and indices from the top, as pydantic counts them
ERROR_LIMIT = 50  # a file with more is another kind of file
ROMAN = {"1": "I", "2": "II", "3": "III", "4": "IV"}  # how people number tiers
SWITCHES = ("on", "off")
_NEEDS_MAPPING = {"model_type", "model_attributes_type", "dict_type", "mapping_type"}
_NEEDS_LIST = {"tuple_type", "list_type"}
SIZE_LIMIT_BYTES = 1_000_000
LIMITS = ("le", "lt", "ge", "gt", "max_length", "min_length")  # as pydantic calls them


class MissingKeyError(InputError):
    """A key that a mapping needs."""

    code = "E-missing"


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


def literals(annotation: Any) -> list[str]:
    """The choices of a Literal inside an annotation."""
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    return [choice for inner in get_args(annotation) for choice in literals(inner)]


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
        where, kind = details["loc"], details["type"]
        # A list is too short only because what stands in it is wrong.
        is_left_empty = kind == "too_short" and any(
            len(other["loc"]) > len(where) and other["loc"][: len(where)] == where for other in told
        )
        if kind == "default_factory_not_called" or is_left_empty:
            continue  # follows from another error
        problem = _problem(details, root, part, whole)
        assert problem.place is not None
        found.setdefault((problem.place, problem.message), problem)
    ordered = sorted(found.values(), key=lambda one: one.place or Place("", 0, 0))
    if len(ordered) > ERROR_LIMIT:
        more = InputError(f"{len(ordered) - ERROR_LIMIT} more mistakes", place=ordered[ERROR_LIMIT].place)
        return [*ordered[:ERROR_LIMIT], more]
    return ordered


def _problem(details: ErrorDetails, root: Node, part: type[Part], whole: str) -> InputError:
    where, kind = details["loc"], details["type"]
    if kind == "extra_forbidden":
        return _unknown_key(where, root, part, whole)
    if kind == "missing":
        owner, hint = _found(where[:-1], root), f"write `{where[-1]}:` below it"
        message = f"{_owner(owner, whole)} needs `{where[-1]}`"
        return MissingKeyError(message, place=owner.key_place, hint=hint)
    found = _found(where, root)
    # The value's place; the key's where the value is more than a text.
    is_value = isinstance(found.node, Scalar) and where[-1:] != ("[key]",)
    place = found.node.place if is_value else found.key_place
    key, shown = found.key, _shown(found.node)
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
        message = f"`{key}` needs a list, not {_kind(found.node)}"
        return ShapeError(message, place=place, hint="write `[a, b]`")
    if kind == "too_short":
        return ShapeError(f"`{key}` is empty", place=place, hint="write at least one, or leave the key out")
    if limits := [str(limit) for name, limit in details.get("ctx", {}).items() if name in LIMITS]:
        what, hint = f"`{key}: {shown}` is out of range", f"the limit is {limits[0]}"
        return ValueRefusedError(what, place=place, hint=hint)
    return ShapeError(f"`{key}`: {details['msg']}", place=place, hint="`twofold init` shows every key in use")


def _unknown_key(where: Location, root: Node, part: type[Part], whole: str) -> InputError:
    key, owner = str(where[-1]), _found(where[:-1], root)
    inner = part_of(annotation_at(where[:-1], part))
    known = list(keys_of(inner)) if inner else []
    place = owner.node.keys.get(key, owner.key_place) if isinstance(owner.node, Mapping) else owner.key_place
    hint = _switch_hint(key, owner, inner) or did_you_mean(key, known, f"keys: {', '.join(known)}")
    message = f"`{key[:64]}` is not a key of {_owner(owner, whole)}"
    return errors.UnknownKeyError(message, place=place, hint=hint)


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


def _shown(node: Node) -> str:
    if not isinstance(node, Scalar):
        return ""
    return node.text if len(node.text) <= 64 else node.text[:63] + "…"


def _kind(node: Node) -> str:
    if isinstance(node, Scalar):
        return f"the text `{_shown(node)}`" if node.text else "nothing"
    return "a list" if isinstance(node, Sequence) else "a mapping"


def read_spec(path: Path, names: Names | None = None) -> Spec:
    """The spec in a file. Paths inside it are relative to its folder; `names` are what the catalogue knows.

    Raises InputErrors with everything that is wrong, or the one error that keeps the file from being read.
    """
    return parse_spec(read_text(path), str(path), names, folder=path.parent)


def parse_spec(text: str, file: str, names: Names | None = None, folder: Path | None = None) -> Spec:
    """The spec in a text; `file` is what errors call it."""
    root = read_nodes(text, file)
    if not isinstance(root, Mapping):
        what = f"the text `{root.text[:32]}`" if isinstance(root, Scalar) else "a list"
        hint = f"keys: {', '.join(keys_of(Spec))}"
        raise ShapeError(f"a spec needs keys, not {what}", place=root.place, hint=hint)
    context = {"names": names or Names(), "folder": folder}
    try:
        return Spec.model_validate(plain(root), context=context)
    except ValidationError as error:
        raise InputErrors(problems(error, root, Spec)) from error


def written_by(path: Path) -> str:
    """Which command writes a file that is missing: specs are YAML, and what is saved of a plan is JSON."""
    if path.suffix != ".json":
        return "`twofold init` writes a starter spec"
    return f"`twofold plan SPEC --out {shlex.quote(str(path))}` writes a plan"


def read_text(path: Path) -> str:
    """A text file of at most 1 MB. Its size is asked before a byte is read."""
    try:
        size_bytes = path.stat().st_size
        if not path.is_file():
            what, hint = "is not a file", "write what it gives to a file, and name that"
            if path.is_dir():
                what, hint = "is a folder", written_by(path)
            raise FileError(f"`{path}` {what}", hint=hint)
        if size_bytes > SIZE_LIMIT_BYTES:
            limit = f"{SIZE_LIMIT_BYTES / 1e6:g} MB"
            raise FileSizeError(f"`{path}` has {size_bytes / 1e6:.1f} MB; at most {limit} are read")
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise errors.unread(path, error, written_by(path)) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        place = Place(str(path), before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        what = f"byte {error.start} is not UTF-8 text"
        raise errors.EncodingError(what, place=place, hint="save the file as UTF-8") from error
