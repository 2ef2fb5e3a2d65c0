"""Objects of Kubernetes and files of Compose held against `tests/rendering/fields.csv`, the fields of each.

A path reads like `.spec.rules[].host`, `*` is a key of anyone's choice. The definitions, with project, commit
and SHA-256 of the file, stand in `field_sources.csv` beside it; only names and types were taken.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

HERE = Path(__file__).parent / "rendering"
TEMPLATE = "PodTemplate"
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "int-or-string": (int, str),
}


class Field(NamedTuple):
    type: str
    required: frozenset[str]
    values: frozenset[str]


def _rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(newline="") as handle:
        return list(csv.DictReader(handle))


FIELDS = {
    (row["kind"], row["path"]): Field(
        row["type"], frozenset(row["required"].split()), frozenset(row["values"].split())
    )
    for row in _rows("fields.csv")
}
SOURCES = {row["kind"]: row for row in _rows("field_sources.csv")}


def documents(text: str) -> list[Any]:
    return list(YAML(typ="safe", pure=True).load_all(text))


def complaints(item: Mapping[str, Any]) -> list[str]:
    """Where an object is none of its kind."""
    kind = item["kind"]
    known = SOURCES.get(kind, {}).get("api_version")
    return [*_wrong(kind, "", item)] if item["apiVersion"] == known else [f"{kind}: {item['apiVersion']}"]


def compose_complaints(file: Mapping[str, Any]) -> list[str]:
    """Where a file is none of Docker Compose."""
    return [*_wrong("Compose", "", file)]


def _wrong(kind: str, path: str, node: Any) -> Iterator[str]:
    field = FIELDS.get((kind, path))
    if field is not None and field.type == TEMPLATE:
        kind, path, field = TEMPLATE, "", FIELDS[TEMPLATE, ""]
    if field is None:
        yield f"{kind}{path} is no field"
    elif isinstance(node, dict):
        yield from _wrong_mapping(kind, path, node, field)
    elif isinstance(node, list):
        yield from () if field.type == "array" else (f"{kind}{path} is no list",)
        for each in node:
            yield from _wrong(kind, f"{path}[]", each)
    elif type(node) not in TYPES.get(field.type, ()) or (field.values and str(node) not in field.values):
        yield f"{kind}{path} is `{node}`"


def _wrong_mapping(kind: str, path: str, node: dict[str, Any], field: Field) -> Iterator[str]:
    if field.type != "object":
        yield f"{kind}{path} is no mapping"
    for missing in field.required - node.keys():
        yield f"{kind}{path} lacks {missing}"
    for key, value in node.items():
        named = f"{path}.{key}"
        yield from _wrong(kind, named if (kind, named) in FIELDS else f"{path}.*", value)
