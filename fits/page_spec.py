"""The reference page of the spec, from its typed models: `python -m fits.page_spec [FOLDER]`.

Writes FOLDER/docs/reference/spec.md and the JSON Schema inside the package; tests hold both to the models.
"""

import sys
from pathlib import Path
from typing import Any, get_origin

from pydantic.fields import FieldInfo

from fits.spec_schema import FILE_NAME, default_text, parts_of, spec_schema_text
from twofold.contracts.spec.fields import Part, Quantity
from twofold.contracts.spec.reader import keys_of, literals, part_of
from twofold.contracts.spec.service import PRESETS
from twofold.contracts.spec.spec import Spec
from twofold.core.quantity import UNITS, Dimension

PAGE = Path("docs") / "reference" / "spec.md"
SCHEMA = Path("src") / "twofold" / "contracts" / "data" / FILE_NAME

_HEAD = """# The spec, key by key

Generated from the typed models by `python -m fits.page_spec`; do not edit.

One file, `twofold.yaml`. Only something to plan is needed: `training`, `serving` or both; every default is
printed by `twofold plan --show-defaults`. A single run or service may stand alone instead of in a list, and
takes the `model` above it. Paths are relative to the file. For completion and checks in an editor, point it
at the JSON Schema that ships in the package, `twofold/contracts/data/twofold.schema.json`.
"""
_UNITS_HEAD = """## Units

A quantity is a number and a unit, as in `500 ms`; a bare number is an error that names the unit. GB is 1e9
bytes, GiB is 2**30.

| quantity | units |
| --- | --- |
"""
_PRESETS_HEAD = """## Presets of a latency class

What a preset promises, and the metric that judges it; keys of `slo` add to it or replace it.

| preset | promise |
| --- | --- |
"""


def reference_page() -> str:
    """The whole page as markdown."""
    sections = [_HEAD] + [_section(part) for part in parts_of(Spec)]
    presets = "".join(f"| `{name}` | {_promises(targets)} |\n" for name, targets in PRESETS.items())
    units = "".join(f"| {dimension.value} | {_units(dimension)} |\n" for dimension in Dimension)
    return "\n".join([*sections, _PRESETS_HEAD + presets, _UNITS_HEAD + units])


def kind_of(field: FieldInfo) -> str:
    """What a key takes, in words."""
    annotation = field.annotation
    listed = "list of " if get_origin(annotation) is tuple else ""
    inner = part_of(annotation)
    if inner:
        named = "by name: " if get_origin(annotation) is dict else ""
        return f"{named}{listed}[{inner.__name__}](#{inner.__name__.lower()})"
    if field.alias == "global_batch":
        return "sequences, as `512 seq`, or tokens"
    quantity = _quantity(field)
    if quantity:
        return f"{quantity.dimension.value}, as `{quantity.example()}`"
    choices = literals(annotation)
    if choices:
        return listed + ", ".join(f"`{choice}`" for choice in choices)
    text = str(annotation)
    words = {"bool": "`true`, `false`", "int": "whole number", "date": "day, as `2026-03-01`", "Path": "path"}
    return listed + next((word for key, word in words.items() if key in text), "text")


def main(arguments: list[str]) -> None:
    """Writes both files below the given folder, by default the current one."""
    root = Path(arguments[0]) if arguments else Path()
    for path, text in ((root / PAGE, reference_page()), (root / SCHEMA, spec_schema_text())):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def _section(part: type[Part]) -> str:
    title = "Top level" if part is Spec else part.__name__
    rows = "".join(_row(part, key, field) for key, field in keys_of(part).items())
    doc = " ".join((part.__doc__ or "").split())
    return f"## {title}\n\n{doc}\n\n| key | takes | default | meaning |\n| --- | --- | --- | --- |\n{rows}"


def _row(part: type[Part], key: str, field: FieldInfo) -> str:
    default = "needed" if field.is_required() else _code(default_text(part, key))
    return f"| `{key}` | {kind_of(field)} | {default} | {field.description or ''} |\n"


def _quantity(field: FieldInfo) -> Quantity | None:
    return next(iter(_quantities([*field.metadata, field.annotation])), None)


def _quantities(values: list[Any]) -> list[Quantity]:
    """Markers of a field, inside an optional annotation too."""
    found = [value for value in values if isinstance(value, Quantity)]
    for value in values:
        found += _quantities([*getattr(value, "__metadata__", ()), *getattr(value, "__args__", ())])
    return found


def _promises(targets: Any) -> str:
    return ", ".join(f"`{metric}` {limit}" for metric, limit in targets.items())


def _units(dimension: Dimension) -> str:
    return ", ".join(f"`{unit}`" for unit in UNITS[dimension])


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    main(sys.argv[1:])
