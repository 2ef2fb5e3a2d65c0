"""From a claim to a verdict: each case of each predicate is computed, none is stored."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import isfinite
from statistics import median
from typing import Any

from twofold.core.errors import UnknownNameError, ValueRefusedError
from twofold.verdicts.language import evaluate, judge_expression, names_in, parse
from twofold.verdicts.quantities import ask, command_of
from twofold.verdicts.table import Claim, Joined, Predicate, Says, told_apart
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
    says: Says  # how many of its cases the claim speaks of
    joined: Joined
    situation_count: int  # what the claim speaks of: its cases, halves of a sentence taken together
    held_count: int  # of them
    outside: tuple[str, ...]  # cases that the claim's own condition leaves out
    reason: str
    command: str
    cases: tuple[Case, ...]

    @property
    def holds_fraction(self) -> float | None:
        """Of the situations; None of none."""
        return self.held_count / self.situation_count if self.situation_count else None


@dataclass(frozen=True, slots=True)
class Tried:
    """One predicate in one case."""

    case: Case
    predicate: Predicate
    known: dict[str, Any]  # its variables, and the ends of the claim's range


def judge(claim: Claim, world: World) -> Judged:
    """Judge one claim by what the world's tables and models say."""
    inside, outside = _by_condition(claim, world)
    tried: dict[tuple[str, str], Tried] = {}  # by predicate and case
    lacking: dict[tuple[str, str], str] = {}  # what the tables have not, of those that cannot be computed
    for predicate in claim.predicates:
        for variables in told_apart(inside, [predicate]):
            known = {**variables, "low": claim.low, "high": claim.high}
            key = (predicate.label, _words(variables))
            try:
                tried[key] = Tried(_case(claim, predicate, variables, known, world), predicate, known)
            except MissingFigure as missing:
                lacking[key] = str(missing)
    situations = _situations(claim, inside, tried, lacking)
    held = [holds for _, holds in situations]
    cases = tuple(each.case for each in tried.values()) if held else ()
    verdict = verdict_of(claim.says, held)
    if claim.says is Says.MOST and verdict is Verdict.HOLDS and not all(_without_each(situations)):
        verdict = Verdict.CONDITIONAL
    value, low, high = _summary(cases)
    # The command shows a case that decided: one that fails, unless the claim holds.
    telling = next((each for each in tried.values() if each.case.holds == (verdict == Verdict.HOLDS)), None)
    left_out = ""
    if lacking:
        count = "1 case" if len(lacking) == 1 else f"{len(lacking)} cases"
        left_out = f"; {count} left out: {', '.join(dict.fromkeys(lacking.values()))}"
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
        says=claim.says,
        joined=claim.joined,
        situation_count=len(held),
        held_count=sum(held),
        outside=tuple(map(_words, outside)),
        reason=_reason(claim, cases, verdict, held) + left_out,
        command=command_of(claim.id, telling.predicate, telling.known)
        if telling and cases
        else f"twofold claims --only {claim.id}",
        cases=cases,
    )


def verdict_of(says: Says, held: Sequence[bool]) -> Verdict:
    """What follows from what each situation came to, by how many of them the claim speaks of.

    >>> str(verdict_of(Says.ALL, [True, False])), str(verdict_of(Says.SOME, [True, False]))
    ('conditional', 'holds')
    """
    count, total = sum(held), len(held)
    if not total:
        return Verdict.UNVERIFIABLE
    if not count:
        return Verdict.CONTRADICTED
    enough = {Says.ALL: count == total, Says.MOST: 2 * count > total, Says.SOME: True}[says]
    return Verdict.HOLDS if enough else Verdict.CONDITIONAL


def _by_condition(claim: Claim, world: World) -> tuple[list[dict[str, Value]], list[dict[str, Value]]]:
    """The claim's cases of which its own condition is true, and the others, each once."""
    cases = list(claim.cases) or [{}]
    if claim.within is None:
        return cases, []
    ends, call = {"low": claim.low, "high": claim.high}, partial(ask, world)
    meant = [bool(evaluate(claim.within, {**case, **ends}, call)) for case in cases]
    asked = names_in(claim.within)
    left = [
        {name: value for name, value in case.items() if name in asked}
        for case, is_meant in zip(cases, meant, strict=True)
        if not is_meant
    ]
    inside = [case for case, is_meant in zip(cases, meant, strict=True) if is_meant]
    return inside, [case for number, case in enumerate(left) if case not in left[:number]]


def _situations(
    claim: Claim,
    inside: Sequence[dict[str, Value]],
    tried: Mapping[tuple[str, str], Tried],
    lacking: Mapping[tuple[str, str], str],
) -> list[tuple[Mapping[str, Value], bool]]:
    """The situations that the claim speaks of, and whether each is as it says; those not known left out.

    Halves of a sentence are one situation: one that fails decides it, whatever is not known of the others.
    """
    if claim.joined is Joined.READINGS:
        return [(each.known, each.case.holds) for each in tried.values()]
    found: list[tuple[Mapping[str, Value], bool]] = []
    for variables in told_apart(inside, claim.predicates):
        keys = [(each.label, _words(told_apart([variables], [each])[0])) for each in claim.predicates]
        if any(key in tried and not tried[key].case.holds for key in keys):
            found.append((variables, False))
        elif not any(key in lacking for key in keys):
            found.append((variables, True))
    return found


def _without_each(situations: Sequence[tuple[Mapping[str, Value], bool]]) -> Iterator[bool]:
    """Whether most situations hold without one value of a case, for each: what we chose decides nothing."""
    values = {pair for known, _ in situations for pair in known.items()}
    for name, value in values:
        rest = [holds for known, holds in situations if known.get(name) != value]
        yield not rest or verdict_of(Says.MOST, rest) is Verdict.HOLDS


def _words(variables: Mapping[str, Value]) -> str:
    return ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in variables.values())


def _case(
    claim: Claim, predicate: Predicate, variables: dict[str, Value], known: dict[str, Any], world: World
) -> Case:
    holds, found = judge_expression(predicate.tree, known, partial(ask, world))
    unit = claim.shown_in if predicate.unit is None else predicate.unit
    value = _plain(found)
    at = in_unit(value, unit)
    return Case(predicate.label, _words(variables), predicate.text, at, unit, shown(value, unit), holds)


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


def _reason(claim: Claim, cases: Sequence[Case], verdict: Verdict, held: Sequence[bool]) -> str:
    """One sentence: what was computed, with figures, and in how many cases the claim is right."""
    if not cases:
        return claim.computed
    words = {
        Verdict.HOLDS: "as claimed",
        Verdict.CONDITIONAL: "true in part",
        Verdict.CONTRADICTED: "not as claimed",
    }[verdict]
    groups: dict[str, list[Case]] = {}  # by predicate
    for case in cases:
        groups.setdefault(case.label, []).append(case)
    told = _group_told(cases, NAMED_CASES_MAX)
    if len(groups) > 1:
        few = NAMED_CASES_MAX // 2
        told = " · ".join(f"{label} {_group_told(group, few)}" for label, group in groups.items())
    return f"{claim.computed}: {told}{_claimed(claim)}; {words}{_counted(claim, held)}"


def _counted(claim: Claim, held: Sequence[bool]) -> str:
    """` (2 of 6 cases, one is enough)`, with what the claim asks of them."""
    asked = {Says.ALL: "", Says.MOST: "most are claimed, whichever is left out", Says.SOME: "one is enough"}[
        claim.says
    ]
    several = len(held) > 1
    parts = [f"{sum(held)} of {len(held)} cases"] if several else []
    parts += ["all parts together"] if claim.joined is Joined.HALVES else []
    parts += [asked] if asked and several else []
    return f" ({', '.join(parts)})" if parts else ""


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
