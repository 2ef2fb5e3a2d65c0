"""`claims`: what circulates about infrastructure, judged by the tables and models that plans use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.catalog.catalog import load_catalog
from twofold.catalog.names import did_you_mean
from twofold.core.data import to_data
from twofold.core.errors import UnknownNameError, UsageError
from twofold.report.answers import Shown
from twofold.verdicts.language import unit_of_expression, unit_of_name
from twofold.verdicts.table import load_claims

if TYPE_CHECKING:
    from twofold.verdicts.table import Claim
    from twofold.verdicts.verdicts import Judged
    from twofold.verdicts.world import World


@dataclass(frozen=True, slots=True)
class Claims(Shown):
    """Judged claims as data, and the lines that a terminal or a notebook shows of them."""

    schema = "twofold/claims/1"
    data: "tuple[Judged, ...]"
    lines: tuple[str, ...]

    @property
    def as_data(self) -> dict[str, Any]:
        """A row a claim."""
        return {"claims": to_data(self.data)}


@dataclass(frozen=True, slots=True)
class Value(Shown):
    """What an expression comes to, in SI units: one figure, or the fields of a whole row."""

    schema = "twofold/value/1"
    expression: str
    value: Any

    @property
    def unit(self) -> str:
        """Of the figure; "" of a row."""
        return "" if isinstance(self.value, dict) else unit_of_expression(self.expression)

    @property
    def lines(self) -> list[str]:
        """The figure with its unit, or a line a field."""
        if isinstance(self.value, dict):
            return [f"{name} {_shown(held, unit_of_name(name))}" for name, held in self.value.items()]
        return [_shown(self.value, self.unit)]

    @property
    def as_data(self) -> dict[str, Any]:
        """The figure beside its expression."""
        return {"expression": self.expression, "value": self.value, "unit": self.unit}


def claims_or_value(
    only: Sequence[str],
    topic: str,
    verdict: str | None,
    cases: bool,
    expression: str,
    catalog: Path | None,
    tell: Callable[[str], None],
) -> Claims | Value:
    """The judged claims, or what one expression comes to."""
    if not expression:
        return claims(only, topic, verdict or "", catalog=catalog, cases=cases, tell=tell)
    if only or topic or verdict:
        raise UsageError("`--compute` judges no claims", hint="leave out `--only`, `--topic` and `--verdict`")
    return Value(expression, _finite(to_data(claim_value(expression, catalog))))


def claims(
    only: Sequence[str] = (),
    topic: str = "",
    verdict: str = "",
    *,
    catalog: Path | None = None,
    cases: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Claims:
    """Judge all claims, or those named, of a topic, or with a verdict.

    `catalog` is a folder with rows of yours, `tell` hears the progress. The lines of claims that are named
    show every case; `cases` adds them for all.
    Raises UnknownNameError for an id, a topic or a verdict that there is none of.
    """
    chosen = _chosen(only, topic)  # names that there are none of are refused before any model is loaded
    from twofold.report.claims import claims_lines
    from twofold.verdicts.verdicts import Verdict, judge_all

    if verdict and verdict not in list(Verdict):
        raise UnknownNameError(f"`{verdict}` is not a verdict", hint=did_you_mean(verdict, list(Verdict), ""))
    judged = judge_all(chosen, _world(catalog), tell)
    judged = [each for each in judged if not verdict or each.verdict == verdict]
    return Claims(tuple(judged), tuple(claims_lines(judged, cases or bool(only))))


def claim_value(expression: str, catalog: Path | None = None) -> Any:
    """The value of an expression in the language of claims, in SI units."""
    from twofold.verdicts.verdicts import compute  # brings every model

    return compute(expression, _world(catalog))


def _shown(value: Any, unit: str) -> str:
    """`72 W`; texts, and yes or no, have no unit."""
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    number = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"{number} {unit}".strip()


def _finite(value: Any) -> Any:
    """Plain data in which what is not finite is none, as JSON knows no other way to say so."""
    if hasattr(value, "item"):  # a numpy number
        value = value.item()
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _world(catalog: Path | None) -> "World":
    """The product's own tables, with a user's rows laid over them; nothing measured or calibrated here."""
    from twofold.app.local_tables import local_tables
    from twofold.verdicts.world import World

    return World(load_catalog(None, catalog), local_tables(None, None).constants)


def _chosen(only: Sequence[str], topic: str) -> "list[Claim]":
    known = {claim.id: claim for claim in load_claims()}
    for name in only:
        if name.upper() not in known:
            first, *_, last = known
            hint = did_you_mean(name.upper(), list(known), f"ids run from {first} to {last}")
            raise UnknownNameError(f"`{name}` is not a claim", hint=hint)
    topics = sorted({claim.topic for claim in known.values()})
    if topic and topic not in topics:
        hint = did_you_mean(topic, topics, f"topics: {', '.join(topics)}")
        raise UnknownNameError(f"`{topic}` is not a topic of claims", hint=hint)
    named = [known[name.upper()] for name in only] if only else list(known.values())
    return [claim for claim in named if not topic or claim.topic == topic]
