"""Pages of docs/reference from a schema's own source: every part, every field, its kind and meaning.

`python -m fits.page_results docs/reference/plan.md` writes that page, and
`… docs/reference/simulation.md` the other; tests hold the pages equal.
"""

import ast
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

PLAN = """# The plan as data: `twofold/plan/1`

`twofold plan SPEC --json` prints it; `explain` and `diff` read it. Generated from `contracts/results`.

Lengths of time are seconds, sizes bytes, money USD, energy joules; names carry the unit. A field of kind
*estimate* is an object `{value, low, high, unit, source}`: the middle, its 80 % range, and a letter: **m**
measured here, **f** fitted on published measurements, **v** a vendor's figure, **a** assumed. *or null* means
that the plan has no such number, for example no cost where a part has no price. Both halves are arrays, empty
where the spec has none; new fields may be added, none is renamed or changes its unit within version 1.

Where nothing meets a run or a service, the plan is of the rest, `infeasible` says why, and the command exits
with 3. Where nothing is left to plan it prints `twofold/error/1`, with an error for each run and service.

Paths name entries of arrays: `training.pretrain.step_s`, `serving.serve.classes.chat.percentiles.ttft_p95`.
"""
SIMULATION = """# A rehearsal as data: `twofold/simulation/1`

`twofold simulate SPEC --json` prints it. Generated from `contracts/results/simulated.py`.

Lengths of time are seconds, sizes bytes, money USD, energy joules; names carry the unit. *or null* means that
the run has no such number, for example no latency of a class of which nothing finished. New fields may be
added, none is renamed or changes its unit within version 1.
"""
# What a page is made of, innermost first.
MODULES = {
    "plan": (
        "ledger",
        "holdings",
        "premises",
        "compliance",
        "parts",
        "training",
        "serving",
        "plan",
    ),
    "simulation": ("courses", "simulated"),
}
SCHEMA = files("twofold.contracts.results")
INTRODUCTIONS = {"plan": PLAN, "simulation": SIMULATION}
KINDS = {
    "str": "text",
    "int": "count",
    "float": "number",
    "bool": "yes or no",
    "date": "day, as `2027-01-11`",
    "Estimate": "estimate",
    "dict[str, Estimate]": "estimates by name",
    "dict[str, float]": "numbers by name",
    "dict[str, float | None]": "numbers by name, or null",
    "dict[str, int]": "counts by name",
    "dict[str, str]": "texts by name",
    "tuple[str, ...]": "texts",
    "tuple[Model, ...]": "models, as the catalogue has them",
    "tuple[int, ...]": "counts",
    "tuple[float, ...]": "numbers",
    "tuple[float | None, ...]": "numbers, or null",
    "dict[str, tuple[float, ...]]": "numbers by name",
    "tuple[float, float]": "pair of numbers",
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
    names = {node.name: node for node in classes}
    bases = {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)}

    def body(node: ast.ClassDef) -> list[ast.AnnAssign]:
        inherited = [names[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in names]
        own = [item for item in node.body if isinstance(item, ast.AnnAssign)]
        return [*(item for base in inherited for item in body(base)), *own]

    parts = [
        PartDoc(
            node.name,
            " ".join((ast.get_docstring(node) or "").split()),
            tuple(_field(item, lines, set(names)) for item in body(node)),
        )
        for node in classes
        if node.name not in bases  # what only lends its fields is no part of an answer
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


def source_of(page: str) -> str:
    """The text of the modules whose page it is: `plan` or `simulation`; the outermost part stands last."""
    return "\n".join((SCHEMA / f"{name}.py").read_text("utf-8") for name in MODULES[page])


def reference_page(page: str) -> str:
    """The whole page of `plan` or `simulation`."""
    sections = [
        f"## {part.name}\n\n{part.summary}\n\n| field | kind | meaning |\n| --- | --- | --- |\n"
        + "".join(f"| `{field.name}` | {field.kind} | {field.meaning} |\n" for field in part.fields)
        for part in read_schema(source_of(page))
    ]
    return "\n".join([INTRODUCTIONS[page], *sections])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference_page(Path(sys.argv[1]).stem), "utf-8")
