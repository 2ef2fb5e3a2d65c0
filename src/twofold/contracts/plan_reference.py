"""docs/reference/plan.md from the schema's own source: every part, every field, its kind and meaning.

`python -m twofold.contracts.plan_reference docs/reference/plan.md` writes it; a test holds the page equal.
"""

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("plan.py")
INTRODUCTION = """# The plan as data: `twofold/plan/1`

`twofold plan SPEC --json` prints it; `explain` and `diff` read it. Generated from `contracts/plan.py`.

Lengths of time are seconds, sizes bytes, money USD, energy joules; names carry the unit. A field of kind
*estimate* is an object `{value, low, high, unit, source}`: the middle, its 80 % range, and a letter: **m**
measured here, **f** fitted on published measurements, **v** a vendor's figure, **a** assumed. *or null* means
that the plan has no such number, for example no cost where a part has no price. Both halves are arrays, empty
where the spec has none; new fields may be added, none is renamed or changes its unit within version 1.

Paths name entries of arrays: `training.pretrain.step_s`, `serving.serve.classes.chat.percentiles.ttft_p95`.
"""
KINDS = {
    "str": "text",
    "int": "count",
    "float": "number",
    "bool": "yes or no",
    "Estimate": "estimate",
    "dict[str, Estimate]": "estimates by name",
    "tuple[str, ...]": "texts",
    "tuple[tuple[str, str], ...]": "pairs of texts",
}


@dataclass(frozen=True, slots=True)
class FieldDoc:
    """One row of the page."""

    name: str
    kind: str
    meaning: str


@dataclass(frozen=True, slots=True)
class PartDoc:
    """One section of the page."""

    name: str
    summary: str
    fields: tuple[FieldDoc, ...]


def read_schema(source: str) -> tuple[PartDoc, ...]:
    """The dataclasses of the schema, outermost first; a field's meaning is the comment behind it."""
    lines = source.splitlines()
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    names = {node.name for node in classes}
    parts = [
        PartDoc(
            node.name,
            " ".join((ast.get_docstring(node) or "").split()),
            tuple(_field(item, lines, names) for item in node.body if isinstance(item, ast.AnnAssign)),
        )
        for node in classes
    ]
    return tuple(reversed(parts))


def _field(item: ast.AnnAssign, lines: list[str], names: set[str]) -> FieldDoc:
    _, _, comment = lines[item.lineno - 1].partition("  # ")
    return FieldDoc(ast.unparse(item.target), kind_text(ast.unparse(item.annotation), names), comment.strip())


def kind_text(annotation: str, names: set[str]) -> str:
    """An annotation in the page's words; another part becomes a link."""
    if annotation.endswith(" | None"):
        return f"{kind_text(annotation.removesuffix(' | None'), names)} or null"
    inner = annotation.removeprefix("tuple[").removesuffix(", ...]")
    if inner in names:
        link = f"[{inner}](#{inner.lower()})"
        return f"array of {link}" if inner != annotation else link
    return KINDS[annotation]


def reference_page() -> str:
    """The whole page."""
    sections = [
        f"## {part.name}\n\n{part.summary}\n\n| field | kind | meaning |\n| --- | --- | --- |\n"
        + "".join(f"| `{field.name}` | {field.kind} | {field.meaning} |\n" for field in part.fields)
        for part in read_schema(SOURCE.read_text("utf-8"))
    ]
    return "\n".join([INTRODUCTION, *sections])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference_page(), "utf-8")
