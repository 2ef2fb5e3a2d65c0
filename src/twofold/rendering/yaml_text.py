"""Nested mappings and lists as YAML, with what set a value in a comment behind it.

Text that any reader of YAML, of version 1.1 or 1.2, could take for something else is quoted.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from twofold.rendering.files import one_line

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")  # no reader takes these for a number, a date or a mark
OTHER_MEANING = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # to some reader


@dataclass(frozen=True, slots=True)
class Said:
    """A value, and a path of the plan or words that say why it is so."""

    value: str | int | float | bool | None
    because: str


Node: TypeAlias = "Mapping[str, Node] | Sequence[Node] | Said | str | int | float | bool | None"
Object: TypeAlias = Mapping[str, Node]


def yaml_text(objects: Iterable[Object], head: Iterable[str] = ()) -> str:
    """Objects as the documents of one file, below the lines of its head. Floats are no smaller than 1e-4."""
    texts = [_dumped(_commented(each)) for each in objects]
    return "".join(f"{line}\n" for line in head) + "---\n".join(texts)


def _dumped(document: CommentedMap) -> str:
    writer = YAML()
    writer.width = 1 << 20  # a comment and a quoted text stay on their line
    writer.indent(mapping=2, sequence=2, offset=0)
    stream = StringIO()
    writer.dump(document, stream)
    return stream.getvalue()


def _commented(node: Node) -> Any:
    """The node in the classes of the writer, comments behind scalars."""
    if isinstance(node, Said):
        return _scalar(node.value)
    if isinstance(node, Mapping):
        mapping = CommentedMap()
        for key, value in node.items():
            mapping[_scalar(key)] = _commented(value)
            _comment(mapping, key, value)
        return mapping
    if isinstance(node, Sequence) and not isinstance(node, str):
        sequence = CommentedSeq([_commented(each) for each in node])
        for index, value in enumerate(node):
            _comment(sequence, index, value)
        return sequence
    return _scalar(node)


def _comment(parent: CommentedMap | CommentedSeq, key: str | int, node: Node) -> None:
    if isinstance(node, Said) and node.because:
        parent.yaml_add_eol_comment(f"# {one_line(node.because)}", key, column=0)


def _scalar(value: str | int | float | bool | None) -> Any:
    """Text quoted unless it is plain to every reader; several lines as a block where one keeps them."""
    if not isinstance(value, str):
        return value
    if PLAIN.fullmatch(value) and value.lower() not in OTHER_MEANING:
        return value
    return LiteralScalarString(value) if _is_block(value) else DoubleQuotedScalarString(value)


def _is_block(text: str) -> bool:
    """Whether a block keeps all its lines as they are."""
    *lines, end = text.split("\n")
    if len(lines) < 2 or end or not lines[0] or not lines[-1] or lines[0].startswith(" "):
        return False
    return all(line.isprintable() and not line.endswith(" ") for line in lines)
