"""YAML 1.2 as nodes that know their place. Scalars stay text; nothing is constructed, no tag is obeyed.

What a spec never needs is refused while the events stream in, so that hostile files cost nothing: anchors and
aliases, deep nesting, several documents, tags, duplicate keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from twofold.core.errors import EmptyError, FileError, InputError, Place, ShapeError

DEPTH_LIMIT = 20
NODE_LIMIT = 20_000  # texts, lists and mappings; the largest portfolio has a few thousand


class SyntaxTextError(InputError):
    """Text that is not YAML."""

    code = "E-syntax"


class NestingError(SyntaxTextError):
    """YAML nested deeper than any spec."""

    code = "E-nesting"


class AliasError(SyntaxTextError):
    """YAML anchors and aliases: a spec repeats itself instead, so that every value has one place."""

    code = "E-alias"


class DuplicateKeyError(SyntaxTextError):
    """The same key twice in one mapping."""

    code = "E-duplicate"


class FileSizeError(FileError):
    """A file larger than anyone writes by hand; refused before it is read."""

    code = "E-file-size"


@dataclass(slots=True)
class Scalar:
    """Text as written, quotes removed."""

    text: str
    place: Place


@dataclass(slots=True)
class Sequence:
    """A list. Mutable while it is read."""

    place: Place
    items: "list[Node]" = field(default_factory=list)


@dataclass(slots=True)
class Mapping:
    """Keys in their order, with where each stands. Mutable while it is read."""

    place: Place
    entries: "dict[str, Node]" = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)
    pending: Scalar | None = None  # the key whose value comes next


Node = Scalar | Sequence | Mapping


def read_nodes(text: str, file: str) -> Node:
    """The document's root node. Raises an InputError where a text is not one plain document."""
    try:
        root = _assemble(YAML(typ="safe", pure=True).parse(text), file)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1)
        hint = _syntax_hint(error, text)
        raise SyntaxTextError(_first_line(error.problem), place=place, hint=hint) from error
    except (YAMLError, ValueError) as error:  # characters that YAML forbids; broken escapes
        raise SyntaxTextError(f"not YAML: {_first_line(error)}", place=Place(file, 1, 1)) from error
    if root is None:
        raise EmptyError("the file is empty", place=Place(file, 1, 1), hint="`twofold init` writes a starter")
    return root


def plain(node: Node) -> Any:
    """Dicts, lists and texts without places."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(value) for key, value in node.entries.items()}


def _assemble(events: Iterator[Any], file: str) -> Node | None:
    root: Node | None = None
    open_nodes: list[Sequence | Mapping] = []
    document_count = node_count = 0
    for event in events:
        place = Place(file, event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, DocumentStartEvent):
            document_count += 1
            if document_count > 1:
                raise SyntaxTextError("a second document starts", place=place, hint="one file holds one spec")
        elif isinstance(event, (MappingEndEvent, SequenceEndEvent)):
            open_nodes.pop()
        elif isinstance(event, (AliasEvent, ScalarEvent, MappingStartEvent, SequenceStartEvent)):
            node = _node(event, place)
            node_count += 1
            if node_count > NODE_LIMIT:
                raise FileSizeError(f"more than {NODE_LIMIT:,} values", place=place)
            if open_nodes:
                _attach(open_nodes[-1], node)
            elif not (isinstance(node, Scalar) and not node.text):
                root = node
            if not isinstance(node, Scalar):
                open_nodes.append(node)
            if len(open_nodes) > DEPTH_LIMIT:
                raise NestingError(f"nested deeper than {DEPTH_LIMIT} levels", place=place)
    return root


def _node(event: Any, place: Place) -> Node:
    if isinstance(event, AliasEvent) or event.anchor is not None:
        name = f"{'*' if isinstance(event, AliasEvent) else '&'}{str(event.anchor)[:32]}"
        what = f"`{name}`: anchors and aliases are not read"
        raise AliasError(what, place=place, hint="write the value again")
    if event.tag is not None and str(event.tag) != "!":
        raise SyntaxTextError(f"the tag `{str(event.tag)[:64]}` is not read", place=place, hint="remove it")
    if isinstance(event, ScalarEvent):
        return Scalar(str(event.value), place)
    return Mapping(place) if isinstance(event, MappingStartEvent) else Sequence(place)


def _attach(parent: Sequence | Mapping, node: Node) -> None:
    if isinstance(parent, Sequence):
        parent.items.append(node)
    elif parent.pending is None:
        if not isinstance(node, Scalar):
            raise ShapeError("a key is one text", place=node.place, hint="quote braces that belong to a text")
        if node.text in parent.keys:
            hint = f"the first is in line {parent.keys[node.text].line}"
            raise DuplicateKeyError(f"`{node.text[:64]}` stands here twice", place=node.place, hint=hint)
        parent.pending = node
        parent.keys[node.text] = node.place
    else:
        if isinstance(node, Scalar) and not node.text:
            node.place = parent.pending.place  # nothing stands after the key, so the key is where to write
        parent.entries[parent.pending.text] = node
        parent.pending = None


def _first_line(what: object) -> str:
    lines = str(what or "not YAML").strip().splitlines() or ["not YAML"]
    return lines[0][:160]


def _syntax_hint(error: MarkedYAMLError, text: str) -> str:
    if "\t" in text and "token" in str(error.problem):
        return "indent with spaces, not tabs"
    context = _first_line(error.context) if error.context else ""
    return f"{context}, line {error.context_mark.line + 1}" if context and error.context_mark else context
