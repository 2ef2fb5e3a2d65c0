"""From a claim to a verdict: each case of each predicate is computed, none is stored."""

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from statistics import median
from typing import Any

from twofold.core import UnknownNameError, ValueRefusedError
from twofold.verdicts.language import FUNCTIONS, Call, calls_in, evaluate, judge_expression, names_in, parse
from twofold.verdicts.quantities import QUANTITIES, ask, command_of
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


Found = tuple[Case, Predicate, dict[str, Any]]
"""A case with what its command needs: its predicate and its variables."""


def judge(claim: Claim, world: World) -> Judged:
    """Judge one claim by what the world's tables and models say."""
    found, lacking = _computed(claim, world)
    cases = tuple(case for case, _, _ in found)
    verdict = _verdict(cases)
    value, low, high = _summary(cases)
    # The command shows a case that decided: one that fails, unless all hold.
    telling = next((each for each in found if each[0].holds == (verdict == Verdict.HOLDS)), None)
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
        holds_fraction=sum(case.holds for case in cases) / len(cases) if cases else None,
        reason=_reason(claim, cases, verdict) + _left_out(lacking),
        command=command_of(claim.id, *telling[1:]) if telling else f"twofold claims --only {claim.id}",
        cases=cases,
    )


def _computed(claim: Claim, world: World) -> tuple[list[Found], list[str]]:
    """Every case that can be computed, and what the tables lack for each of those that cannot."""
    found: list[Found] = []
    lacking: list[str] = []
    for predicate in claim.predicates:
        for variables in cases_of(claim, predicate) or [{}]:
            try:
                found.append(_case(claim, predicate, variables, world))
            except MissingFigure as missing:
                lacking.append(str(missing))
    return found, lacking


def _left_out(lacking: Sequence[str]) -> str:
    """What cases are not judged for."""
    if not lacking:
        return ""
    count = "1 case" if len(lacking) == 1 else f"{len(lacking)} cases"
    return f"; {count} left out: {', '.join(dict.fromkeys(lacking))}"


def _case(claim: Claim, predicate: Predicate, variables: dict[str, Value], world: World) -> Found:
    known = {**variables, "low": claim.low, "high": claim.high}
    outcome = judge_expression(predicate.tree, known, _caller(world))
    unit = claim.shown_in if predicate.unit is None else predicate.unit
    value = _plain(outcome.value)
    words = ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in variables.values())
    text = shown(value, unit)
    case = Case(predicate.label, words, predicate.text, in_unit(value, unit), unit, text, outcome.holds)
    return case, predicate, known


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
    tree, call = parse(text), _caller(world)
    try:
        for node in ast.walk(tree):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                _refuse_nothing(node, evaluate(node.right, {}, call))
        return evaluate(tree, {}, call)
    except MissingFigure:
        return None


def _refuse_nothing(node: ast.BinOp, divisor: Any) -> None:
    if divisor == 0:
        hint = "" if isinstance(node.right, ast.Constant) else f"`{ast.unparse(node.right)}` is 0"
        raise ValueRefusedError(f"`{ast.unparse(node)}` divides by 0", hint=hint)


def _caller(world: World) -> Call:
    return lambda name, arguments, named: ask(world, name, arguments, named)


def _plain(value: Any) -> Value:
    """A figure as a plain number; a whole answer has no single one."""
    if isinstance(value, float) and not isfinite(value):
        return None
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:  # a numpy number
        return _plain(value.item())
    raise UnknownNameError(f"`{type(value).__name__}` is no figure; name one of its fields")


def _verdict(cases: Sequence[Case]) -> Verdict:
    if not cases:
        return Verdict.UNVERIFIABLE
    held = sum(case.holds for case in cases)
    if held == len(cases):
        return Verdict.HOLDS
    return Verdict.CONDITIONAL if held else Verdict.CONTRADICTED


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
    return f"{claim.computed}: {_told(cases)}{_claimed(claim)}; {words}{count}"


def _told(cases: Sequence[Case]) -> str:
    """What the cases came to, predicate by predicate."""
    labels = list(dict.fromkeys(case.label for case in cases))
    if len(labels) == 1:
        return _group_told(cases, NAMED_CASES_MAX)
    groups = [[case for case in cases if case.label == label] for label in labels]
    return " · ".join(f"{group[0].label} {_group_told(group, NAMED_CASES_MAX // 2)}" for group in groups)


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


def unknown_quantities(claims: Iterable[Claim]) -> list[str]:
    """Names that predicates call and no table holds: our own mistakes, for a test."""
    known = QUANTITIES.keys() | FUNCTIONS.keys()
    called = (
        (claim.id, node.func.id)  # type: ignore[attr-defined]  # parse lets only names be called
        for claim in claims
        for predicate in claim.predicates
        for node in calls_in(predicate.tree)
    )
    return [f"{identity}: {name}" for identity, name in called if name not in known]
