"""The claims that circulate, as rows: what each says, and the predicates that it is judged by."""

import ast
import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import product
from pathlib import Path
from typing import TypeVar

from twofold.core.errors import InputError
from twofold.verdicts.language import names_in, parse
from twofold.verdicts.units import SI_FACTOR, Value

TABLE = Path(__file__).parent / "claims.csv"
Word = TypeVar("Word", bound=StrEnum)
LABELLED = re.compile(r"^([^'\"():\[\]]+?)\s*(?:\[(.*?)\])?:\s+(.*)$", re.DOTALL)
OUTSIDE_TEXT = r"(?=(?:[^']*'[^']*')*[^']*$)"  # an even number of quotes follows


class Says(StrEnum):
    """How many of its cases a claim speaks of."""

    ALL = "all"
    MOST = "most"  # "typically", "often": more than half, whichever value of a case is left out
    SOME = "some"  # "can", "may": one is enough


class Joined(StrEnum):
    """What several predicates of one claim are to each other."""

    HALVES = "halves"  # of one sentence: a case holds where all of them do
    READINGS = "readings"  # of words that leave open what is meant: each makes cases of its own


@dataclass(frozen=True, slots=True)
class Predicate:
    """One comparison, `label [unit]: expression`; the label tells several of one claim apart."""

    label: str
    unit: str | None  # in which its quantity is shown; None: the claim's
    text: str
    tree: ast.expr


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim. `low` and `high` are in SI units; without predicates it cannot be judged."""

    id: str
    topic: str
    text: str
    low: float | None
    high: float | None
    unit: str
    computed: str  # what is compared, as the subject of a sentence; without predicates: why there are none
    predicates: tuple[Predicate, ...]
    case_text: str  # as the table writes them
    cases: tuple[dict[str, Value], ...]
    shown_in: str  # the unit of what is computed
    says: Says = Says.ALL
    joined: Joined = Joined.READINGS
    within: ast.expr | None = None  # the claim's own condition: of cases where it is not true nothing is said
    within_text: str = ""


@cache
def load_claims() -> tuple[Claim, ...]:
    """All claims, in the order of the table."""
    with TABLE.open(encoding="utf-8", newline="") as handle:
        return tuple(read_claim(row) for row in csv.DictReader(handle))


def read_claim(row: dict[str, str]) -> Claim:
    """One row of the table. Raises InputError naming the claim whose row cannot be read."""
    factor = SI_FACTOR.get(row["unit"], 1.0)
    try:
        predicates = tuple(_predicate(part) for part in _split(row["predicate"], ";"))
        cases = tuple(read_cases(row["cases"]))
        within = parse(row["within"]) if row["within"] else None
        says = _word(Says, row["says"])
        joined = _word(Joined, row["joined"] or Joined.READINGS)
        if bool(row["joined"]) != (len(predicates) > 1):
            raise InputError("`joined` is for several predicates", hint="write `halves` or `readings`")
    except InputError as error:
        raise InputError(f"{row['id']}: {error.message}", hint=error.hint) from None
    return Claim(
        row["id"],
        row["topic"],
        row["claim"],
        float(row["low"]) * factor if row["low"] else None,
        float(row["high"]) * factor if row["high"] else None,
        row["unit"],
        row["computed"],
        predicates,
        row["cases"],
        cases,
        row["shown_in"],
        says,
        joined,
        within,
        row["within"],
    )


def _word(kind: type[Word], text: str) -> Word:
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"`{text}` is no word for it", hint="write one of: " + ", ".join(kind)) from None


def _predicate(text: str) -> Predicate:
    labelled = LABELLED.match(text)
    label, unit, code = labelled.groups() if labelled else ("", None, text)
    return Predicate(label.strip(), unit, code, parse(code))


def read_cases(text: str) -> list[dict[str, Value]]:
    """Every combination of `gpu: L40S | L4; batch: 1 | 32`; names with commas go together, value by value.

    >>> read_cases("model, on: a, 1xL4 | b, 2xL4")
    [{'model': 'a', 'on': '1xL4'}, {'model': 'b', 'on': '2xL4'}]
    """
    axes = []
    for axis in _split(text, ";"):
        names, colon, values = axis.partition(":")
        if not colon:
            raise InputError(f"`{axis}` is no case", hint="write for example `gpu: L40S | L4`")
        keys = [name.strip() for name in names.split(",")]
        rows = [[_read(cell) for cell in value.split(",", len(keys) - 1)] for value in values.split("|")]
        axes.append([dict(zip(keys, row, strict=True)) for row in rows])
    return [{k: v for part in parts for k, v in part.items()} for parts in product(*axes)]


def cases_of(claim: Claim, predicate: Predicate) -> list[dict[str, Value]]:
    """The combinations that this predicate tells apart, each once."""
    return told_apart(claim.cases, [predicate])


def told_apart(cases: Sequence[dict[str, Value]], predicates: Sequence[Predicate]) -> list[dict[str, Value]]:
    """The combinations that any of these predicates tells apart, each once."""
    used = set().union(*(names_in(each.tree) for each in predicates))
    found: dict[tuple[tuple[str, Value], ...], dict[str, Value]] = {}
    for case in cases:
        own = {name: value for name, value in case.items() if name in used}
        found.setdefault(tuple(own.items()), own)
    return list(found.values())


def _read(cell: str) -> Value:
    text = cell.strip()
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _split(text: str, mark: str) -> list[str]:
    return [part.strip() for part in re.split(mark + OUTSIDE_TEXT, text) if part.strip()]
