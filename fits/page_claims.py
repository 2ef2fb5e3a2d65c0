"""The page docs/reference/claims.md: every quantity and every claim's predicates, from table and docstrings.

`python -m fits.page_claims docs/reference/claims.md docs/howto/claims.md` writes it, and in the second page
the table of verdicts that changed when claims were given rules; tests hold both equal. What a verdict was
before is in `claims_before.csv`; what it is now is computed.
"""

import csv
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import twofold.verdicts.units
from twofold.catalog.catalog import load_catalog
from twofold.perf.constants import load_constants
from twofold.verdicts.quantities import QUANTITIES
from twofold.verdicts.table import Claim, load_claims
from twofold.verdicts.units import NAMED
from twofold.verdicts.verdicts import Case, Judged, judge_all
from twofold.verdicts.world import World

BEFORE = Path(__file__).parent / "claims_before.csv"
THRESHOLDS = Path(twofold.verdicts.units.__file__).parent / "thresholds.csv"
BEGINS, ENDS = "<!-- changed verdicts, written by fits.page_claims -->", "<!-- end of changed verdicts -->"
CASES_MAX = 4  # of a predicate that are named as true, and as false

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
- Several predicates are `halves` of a sentence, of which a case needs all, or `readings` of words that leave
  open what is meant, each with cases of its own.
- A case fills in variables: `gpu: L40S | L4` are two, `a: 1 | 2; b: 3 | 4` four, `a, b: 1, 3 | 2, 4` two.
  Of cases for which the condition behind `within` is not true the claim does not speak.
- A claim that holds in all of its cases holds, in some it is conditional, in none it is contradicted; without
  a predicate, or with figures missing in every case, it is unverifiable. One that says `most` ("typically",
  "often") holds in more than half, and still so without any one of its models, machines or rates; one that
  says `some` ("can", "may") in one. The figure that is shown is the left side of the first comparison.

## What words mean

Thresholds stand apart from claims, in `verdicts/thresholds.csv`, and predicates name them.

| threshold | value | for | because |
| --- | --- | --- | --- |
{thresholds}

## Quantities

| quantity | what it is |
| --- | --- |
"""


def reference_page() -> str:
    """The page's text."""
    units = ", ".join(f"`{name}`" for name in NAMED)
    lines = [INTRODUCTION.replace("{units}", units).replace("{thresholds}", "\n".join(_thresholds()))]
    lines += [f"| `{_signature(name)}` | {_meaning(name)} |\n" for name in sorted(QUANTITIES)]
    lines += ["\n## Claims\n"]
    for claim in load_claims():
        lines += _section(claim)
    return "".join(lines)


def _thresholds() -> list[str]:
    rows = _rows(THRESHOLDS)
    return [f"| `{row['name']}` | {row['value']} | {row['says']} | {row['why']} |" for row in rows]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def with_changes(page: str, judged: Sequence[Judged]) -> str:
    """A page with the table of changed verdicts between its two marks."""
    head, _, rest = page.partition(BEGINS)
    _, _, tail = rest.partition(ENDS)
    assert tail, "the page has no marks for the table"
    return f"{head}{BEGINS}\n{changes({each.id: each for each in judged})}{ENDS}{tail}"


def changes(now: Mapping[str, Judged]) -> str:
    """Every verdict that is another than before, with its rule and cases; then what may still be disputed."""
    rows = _rows(BEFORE)
    changed = [row for row in rows if row["before"] != now[row["id"]].verdict]
    unexplained = [row["id"] for row in changed if not row["rule"]]
    assert not unexplained, f"no rule in claims_before.csv: {unexplained}"
    lines = [
        f"{len(changed)} of {len(rows)} verdicts are others than before, and only these are listed. "
        "By what a verdict of the same name is judged may have changed too: "
        "`twofold claims --cases` and [the reference](../reference/claims.md#claims) show all.",
        "",
        "| claim | before | now | rule | why | cases | may be disputed |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in changed:
        each = now[row["id"]]
        cells = (
            each.id,
            row["before"],
            str(each.verdict),
            row["rule"],
            row["why"],
            _cases(each),
            row["disputed"],
        )
        lines.append(f"| {' | '.join(cells)} |")
    stays = [row for row in rows if row["disputed"] and row not in changed]
    lines += ["", "Of the others a professional may dispute:", "", "| claim | verdict | because |"]
    lines += ["| --- | --- | --- |"]
    lines += [f"| {row['id']} | {now[row['id']].verdict} | {row['disputed']} |" for row in stays]
    return "\n".join(lines) + "\n"


def _cases(each: Judged) -> str:
    """`2 of 3: ✓ a; b ✗ c`, predicate by predicate; the figures are those of `twofold claims`."""
    groups: dict[str, list[Case]] = {}
    for case in each.cases:
        groups.setdefault(case.label, []).append(case)
    parts = []
    for label, group in groups.items():
        marks = [(mark, [case.when for case in group if case.holds == holds])
                 for mark, holds in (("✓", True), ("✗", False))]  # fmt: skip
        told = " ".join(f"{mark} {_named(names)}".strip() for mark, names in marks if names)
        parts.append(f"{label}: {told}" if label else told)
    outside = [f"outside: {_named(each.outside)}"] if each.outside else []
    return f"{each.held_count} of {each.situation_count}: " + " · ".join([*parts, *outside])


def _named(names: Sequence[str]) -> str:
    rest = f" and {len(names) - CASES_MAX} more" if len(names) > CASES_MAX else ""
    return "; ".join(name for name in names[:CASES_MAX] if name) + rest


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
    if claim.within_text:
        lines.append(f"- within: `{claim.within_text}`\n")
    words = ([f"`{claim.joined}`"] if len(claim.predicates) > 1 else []) + [f"`{claim.says}` of its cases"]
    lines.append(f"- {', '.join(words)}\n")
    return lines


def main(arguments: list[str]) -> None:
    """Write the page to the path given, and the table of changes into a second one."""
    Path(arguments[0]).write_text(reference_page(), encoding="utf-8")
    for second in map(Path, arguments[1:2]):
        judged = judge_all(load_claims(), World(load_catalog(), load_constants()))
        second.write_text(with_changes(second.read_text("utf-8"), judged), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
