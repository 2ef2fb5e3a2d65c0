"""From a claim to a verdict: each case of each predicate is computed, none is stored."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import isfinite
from statistics import median
from typing import Any

from twofold.core.errors import UnknownNameError, ValueRefusedError
from twofold.verdicts.language import evaluate, judge_expression, names_in, parse
from twofold.verdicts.quantities import ask, command_of
from twofold.verdicts.table import Claim, Predicate, cases_of
from twofold.verdicts.units import Value, in_unit, shown
from twofold.verdicts.world import MissingFigure, World

NAMED_CASES_MAX = 4  # more are told as a range


class Verdict(StrEnum):
    HOLDS = "holds"
    CONDITIONAL = "conditional"  # in some of its cases
    CONTRADICTED = "contradicted"
    UNVERIFIABLE = "unverifiable"  # nothing that the product computes decides it


@dataclass(frozen=True, slots=True)
class Case:
    """One predicate with its variables filled in: what was computed, in the unit that the claim shows."""

    label: str  # of its predicate
    when: str  # its variables
    expression: str
    value: Value
    unit: str
    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its verdict. `value` is the median of the cases, or the answer that most of them give."""

    id: str
    topic: str
    claim: str
    verdict: Verdict
    value: Value
    low: float | None  # the least and the most of the cases' values
    high: float | None
    unit: str
    claimed_low: float | None  # the claim's own range, in its unit
    claimed_high: float | None
    claimed_unit: str
    holds_fraction: float | None
    reason: str
    command: str
    cases: tuple[Case, ...]


def judge(claim: Claim, world: World) -> Judged:
    """Judge one claim by what the world's tables and models say."""
    found: list[tuple[Case, Predicate, dict[str, Any]]] = []
    lacking: list[str] = []  # what the tables have not, for each case that cannot be computed
    for predicate in claim.predicates:
        for variables in cases_of(claim, predicate) or [{}]:
            known = {**variables, "low": claim.low, "high": claim.high}
            try:
                found.append((_case(claim, predicate, variables, known, world), predicate, known))
            except MissingFigure as missing:
                lacking.append(str(missing))
    cases = tuple(case for case, _, _ in found)
    held, verdict = sum(case.holds for case in cases), Verdict.UNVERIFIABLE
    if cases:
        verdict = Verdict.CONDITIONAL if held else Verdict.CONTRADICTED
        verdict = Verdict.HOLDS if held == len(cases) else verdict
    value, low, high = _summary(cases)
    # The command shows a case that decided: one that fails, unless all hold.
    telling = next((each for each in found if each[0].holds == (verdict == Verdict.HOLDS)), None)
    left_out = ""
    if lacking:
        count = "1 case" if len(lacking) == 1 else f"{len(lacking)} cases"
        left_out = f"; {count} left out: {', '.join(dict.fromkeys(lacking))}"
    return Judged(
        id=claim.id,
        topic=claim.topic,
        claim=claim.text,
        verdict=verdict,
        value=value,
        low=low,
        high=high,
        unit=cases[0].unit if cases else claim.shown_in,
        claimed_low=_number(in_unit(claim.low, claim.unit)),
        claimed_high=_number(in_unit(claim.high, claim.unit)),
        claimed_unit=claim.unit,
        holds_fraction=held / len(cases) if cases else None,
        reason=_reason(claim, cases, verdict) + left_out,
        command=command_of(claim.id, *telling[1:]) if telling else f"twofold claims --only {claim.id}",
        cases=cases,
    )


def _case(
    claim: Claim, predicate: Predicate, variables: dict[str, Value], known: dict[str, Any], world: World
) -> Case:
    holds, found = judge_expression(predicate.tree, known, partial(ask, world))
    unit = claim.shown_in if predicate.unit is None else predicate.unit
    value = _plain(found)
    words = ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in variables.values())
    at = in_unit(value, unit)
    return Case(predicate.label, words, predicate.text, at, unit, shown(value, unit), holds)


def judge_all(
    claims: Sequence[Claim], world: World, tell: Callable[[str], None] = lambda _: None
) -> list[Judged]:
    """Judge claims in order; `tell` hears how far it is."""
    judged = []
    for number, claim in enumerate(claims, 1):
        tell(f"claim {number} of {len(claims)}: {claim.id}")
        judged.append(judge(claim, world))
    return judged


def compute(text: str, world: World) -> Any:
    """The value of any expression of the language, in SI units; None of what is not known.

    Raises ValueRefusedError for a division by nothing, which a predicate takes for what does not exist.
    """
    tree, call = parse(text), partial(ask, world)
    try:
        for node in ast.walk(tree):
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
                continue
            if evaluate(node.right, {}, call) == 0:
                hint = "" if isinstance(node.right, ast.Constant) else f"`{ast.unparse(node.right)}` is 0"
                raise ValueRefusedError(f"`{ast.unparse(node)}` divides by 0", hint=hint)
        return evaluate(tree, {}, call)
    except MissingFigure:
        return None


def _plain(value: Any) -> Value:
    """A figure as a plain number; a whole answer has no single one."""
    if isinstance(value, float) and not isfinite(value):
        return None
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:  # a numpy number
        return _plain(value.item())
    raise UnknownNameError(f"`{type(value).__name__}` is no figure; name one of its fields")


def _summary(cases: Sequence[Case]) -> tuple[Value, float | None, float | None]:
    """The middle and the ends of numbers; of names and yes or no, what most cases say.

    Predicates may have units of their own: those with the first one's unit are taken.
    """
    alike = [case.value for case in cases if case.unit == cases[0].unit and case.value is not None]
    numbers = [number for value in alike if (number := _number(value)) is not None]
    if numbers:
        return median(numbers), min(numbers), max(numbers)
    return (max(alike, key=alike.count) if alike else None), None, None


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _reason(claim: Claim, cases: Sequence[Case], verdict: Verdict) -> str:
    """One sentence: what was computed, with figures, and in how many cases the claim is right."""
    if not cases:
        return claim.computed
    words = {
        Verdict.HOLDS: "as claimed",
        Verdict.CONDITIONAL: "true in part",
        Verdict.CONTRADICTED: "not as claimed",
    }[verdict]
    count = f" ({sum(case.holds for case in cases)} of {len(cases)} cases)" if len(cases) > 1 else ""
    groups: dict[str, list[Case]] = {}  # by predicate
    for case in cases:
        groups.setdefault(case.label, []).append(case)
    told = _group_told(cases, NAMED_CASES_MAX)
    if len(groups) > 1:
        few = NAMED_CASES_MAX // 2
        told = " · ".join(f"{label} {_group_told(group, few)}" for label, group in groups.items())
    return f"{claim.computed}: {told}{_claimed(claim)}; {words}{count}"


def _group_told(cases: Sequence[Case], most: int) -> str:
    """Every case where they are few, else the ends of the numbers, or how often each answer comes."""
    if len(cases) <= most:
        return ", ".join(f"{case.text} ({case.when})" if case.when else case.text for case in cases)
    numbered = sorted(
        (number, case.text, case.when) for case in cases if (number := _number(case.value)) is not None
    )
    if numbered:
        (_, least, at_least), (_, greatest, at_most) = numbered[0], numbered[-1]
        lacking = len(cases) - len(numbered)
        without = f", none in {lacking}" if lacking else ""
        return f"{least} ({at_least}) to {greatest} ({at_most}){without}"
    texts = [case.text for case in cases]
    return ", ".join(f"{text} in {texts.count(text)}" for text in dict.fromkeys(texts))


def _claimed(claim: Claim) -> str:
    """The claim's own range, where that is what the figures are compared with."""
    used = set().union(*(names_in(each.tree) for each in claim.predicates))
    if claim.unit != claim.shown_in or not used & {"low", "high"}:
        return ""
    low, high = shown(claim.low, claim.unit), shown(claim.high, claim.unit)
    if claim.low is not None and claim.high is not None:
        return f", against {low}" if low == high else f", against {low.split(' ')[0]}–{high}"
    if claim.low is not None:
        return f", against at least {low}"
    return f", against at most {high}" if claim.high is not None else ""
