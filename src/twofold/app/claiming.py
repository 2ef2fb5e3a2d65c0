"""`claims`: what circulates about infrastructure, judged by the tables and models that plans use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.catalog import did_you_mean, load_catalog
from twofold.core import UnknownNameError
from twofold.verdicts import load_claims, unit_of_expression, unit_of_name

if TYPE_CHECKING:
    from twofold.verdicts import Claim, Judged, World


@dataclass(frozen=True, slots=True)
class Claims:
    """Judged claims as data, and the lines that a terminal or a notebook shows of them."""

    data: "tuple[Judged, ...]"
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        from twofold.report import as_html  # brings the plan's screens

        return as_html(self.lines)


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

    `catalog` is a folder with rows of yours, `cases` adds every case to the lines, `tell` hears the progress.
    Raises UnknownNameError for an id, a topic or a verdict that there is none of.
    """
    chosen = _chosen(only, topic)  # names that there are none of are refused before any model is loaded
    from twofold.report import claims_lines
    from twofold.verdicts import Verdict, judge_all

    if verdict and verdict not in list(Verdict):
        raise UnknownNameError(f"`{verdict}` is not a verdict", hint=did_you_mean(verdict, list(Verdict), ""))
    judged = [
        each for each in judge_all(chosen, _world(catalog), tell) if not verdict or each.verdict == verdict
    ]
    return Claims(tuple(judged), tuple(claims_lines(judged, cases)))


def claim_value(expression: str, catalog: Path | None = None) -> Any:
    """The value of an expression in the language of claims, in SI units."""
    from twofold.verdicts import compute  # brings every model

    return compute(expression, _world(catalog))


def claim_unit(expression: str, field: str = "") -> str:
    """The unit of what an expression computes, or of one field of the row that it gives."""
    return unit_of_name(field) if field else unit_of_expression(expression)


def _world(catalog: Path | None) -> "World":
    """The product's own tables, with a user's rows laid over them; nothing measured or calibrated here."""
    from twofold.app.local_tables import local_tables
    from twofold.verdicts import World

    return World(load_catalog(None, catalog), local_tables(None, None).constants)


def _chosen(only: Sequence[str], topic: str) -> "list[Claim]":
    known = {claim.id: claim for claim in load_claims()}
    for name in only:
        if name.upper() not in known:
            raise UnknownNameError(f"`{name}` is not a claim", hint=_near(name.upper(), list(known)))
    topics = sorted({claim.topic for claim in known.values()})
    if topic and topic not in topics:
        raise UnknownNameError(
            f"`{topic}` is not a topic of claims",
            hint=did_you_mean(topic, topics, "topics: " + ", ".join(topics)),
        )
    named = [known[name.upper()] for name in only] if only else list(known.values())
    return [claim for claim in named if not topic or claim.topic == topic]


def _near(name: str, known: Sequence[str]) -> str:
    return did_you_mean(name, known, f"ids run from {known[0]} to {known[-1]}")
