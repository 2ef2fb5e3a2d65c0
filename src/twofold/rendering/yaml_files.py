"""YAML with what set a value behind it."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq


@dataclass(frozen=True, slots=True)
class Valued:
    """A value with a path of the plan, or with words on why it is so."""

    value: Any
    because: str


def yaml_text(values: Mapping[str, Any]) -> str:
    """The values in their order; `Valued` ones, of any depth, with a comment behind them."""
    writer = YAML()
    writer.width = 10_000  # long lines stay whole: a comment stands behind its value
    writer.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    writer.dump(_node(values), out)
    return out.getvalue()


def _node(value: Any) -> Any:
    if isinstance(value, Mapping):
        mapping = CommentedMap()
        for key, each in value.items():
            mapping[key] = _node(each.value if isinstance(each, Valued) else each)
            if isinstance(each, Valued) and each.because:
                mapping.yaml_add_eol_comment(each.because, key)
        return mapping
    if isinstance(value, list | tuple):
        sequence = CommentedSeq()
        for at, each in enumerate(value):
            sequence.append(_node(each.value if isinstance(each, Valued) else each))
            if isinstance(each, Valued) and each.because:
                sequence.yaml_add_eol_comment(each.because, at)
        return sequence
    return value
