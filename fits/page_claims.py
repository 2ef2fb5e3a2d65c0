"""The page docs/reference/claims.md: every quantity and every claim's predicates, from table and docstrings.

`python -m fits.page_claims docs/reference/claims.md` writes it; a test holds it equal. Verdicts are
not on it: they are computed.
"""

import inspect
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

from twofold.verdicts.quantities import QUANTITIES
from twofold.verdicts.table import Claim, load_claims
from twofold.verdicts.units import NAMED

INTRODUCTION = """# Claims and their predicates

`twofold claims` judges every claim below by its predicates; `twofold claims --only ID --cases` shows what
each case came to. Generated from `verdicts/claims.csv` and the table of quantities.

## The language

A predicate compares quantities: `catalog('L4').tdp_w in 300..450`. It is a small part of Python's grammar:
numbers, texts in quotes, `+ - * /`, comparisons, `and or not`, lists, and calls of the quantities below.

- `in A..B` is a closed range, `15%` is 0.15; `low` and `high` are the ends of the claim's own range, of which
  one that it does not state is open.
- Quantities are in SI units; behind a number stand {units}.
- What does not exist, such as a step that fits no memory, is `none`: a comparison with it, and
  the `not` of one, is `none` too and does not hold.
- A figure that the tables lack, such as a list price, leaves its case out of the verdict, which says so.
- `label [unit]: …` names a predicate where a claim has several, and the unit that its figure is shown in.
- A case fills in variables: `gpu: L40S | L4` are two, `a: 1 | 2; b: 3 | 4` four, `a, b: 1, 3 | 2, 4` two.
- A claim that holds in all of its cases holds, in some it is conditional, in none it is contradicted; without
  a predicate, or with figures missing in every case, it is unverifiable. The figure that is shown is the left
  side of the first comparison.

## Quantities

| quantity | what it is |
| --- | --- |
"""


def reference_page() -> str:
    """The page's text."""
    units = ", ".join(f"`{name}`" for name in NAMED)
    lines = [INTRODUCTION.replace("{units}", units)]
    lines += [f"| `{_signature(name)}` | {_meaning(name)} |\n" for name in sorted(QUANTITIES)]
    lines += ["\n## Claims\n"]
    for claim in load_claims():
        lines += _section(claim)
    return "".join(lines)


def _signature(name: str) -> str:
    """`train(model, on, batch=512, …)`: the arguments without the world."""
    parameters = list(inspect.signature(QUANTITIES[name].function).parameters.values())[1:]
    told = [
        each.name if each.default is each.empty else f"{each.name}={each.default!r}" for each in parameters
    ]
    return f"{name}({', '.join(told)})"


def _meaning(name: str) -> str:
    """The docstring's first paragraph, and the figures of an answer that has several."""
    function = QUANTITIES[name].function
    text = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
    answer = get_type_hints(function)["return"]
    if not is_dataclass(answer):
        return text
    derived = [key for key, value in vars(answer).items() if isinstance(value, property)]
    names = [field.name for field in fields(answer)] + sorted(derived)
    return f"{text} Figures: {', '.join(names)}."


def _section(claim: Claim) -> list[str]:
    lines = [f"\n### {claim.id} · {claim.topic}\n\n{claim.text}\n\n"]
    if not claim.predicates:
        return [*lines, f"Unverifiable: {claim.computed}.\n"]
    lines.append(f"Computed: {claim.computed}.\n\n")
    for each in claim.predicates:
        unit = f" [{each.unit}]" if each.unit else ""
        label = f"{each.label}{unit}: " if each.label else ""
        lines.append(f"- {label}`{each.text}`\n")
    if claim.case_text:
        lines.append(f"- cases: `{claim.case_text}`\n")
    return lines


def main(arguments: list[str]) -> None:
    """Write the page to the path given."""
    Path(arguments[0]).write_text(reference_page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
