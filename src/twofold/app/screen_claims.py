"""Judged claims as lines of a terminal."""

import re
from collections.abc import Sequence
from textwrap import wrap

from twofold.app.lines import TIED, WIDTH, table
from twofold.claims import Judged, Verdict

INDENT = " " * 7
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=[^\s\d(·]{1,6}[ ,;]|[^\s\d(·]{1,6}$)")
ORDER = (Verdict.HOLDS, Verdict.CONDITIONAL, Verdict.CONTRADICTED, Verdict.UNVERIFIABLE)


def claims_lines(judged: Sequence[Judged], with_cases: bool) -> list[str]:
    """Every claim with its verdict and reason, and the counts."""
    lines: list[str] = []
    for each in judged:
        lines += claim_lines(each)
        lines += case_lines(each) if with_cases else []
    return [*lines, "", summary_line(judged)]


def claim_lines(each: Judged) -> list[str]:
    """`S0-22  conditional   …`, the reason below it and the command that shows a figure of it."""
    head = _wrapped(f"{each.id:<6} {each.verdict:<12} {each.claim}", "", INDENT + " " * 13)
    reason = _wrapped(each.reason, INDENT, INDENT)
    # A command is never broken: a terminal wraps it, and it can be copied whole.
    return [*head, *reason, f"{INDENT}$ {each.command}"]


def _wrapped(text: str, first: str, further: str) -> list[str]:
    """Lines that never part a number from its unit, nor a name at its hyphens."""
    tied = NUMBER_AND_UNIT.sub(TIED, text)
    lines = wrap(tied, WIDTH, initial_indent=first, subsequent_indent=further, break_on_hyphens=False)
    return [line.replace(TIED, " ") for line in lines]


def case_lines(each: Judged) -> list[str]:
    """What every case came to, predicate by predicate."""
    lines: list[str] = []
    for text in dict.fromkeys(case.expression for case in each.cases):
        lines += wrap(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT + "  ")
        cases = [case for case in each.cases if case.expression == text]
        rows = [["", "holds" if case.holds else "fails", case.text, case.when] for case in cases]
        lines += [line.rstrip() for line in table(["     ", "", "value", "case"], rows)]
    return lines


def summary_line(judged: Sequence[Judged]) -> str:
    """`214 claims: 60 hold · 90 conditional · …`."""
    counts = [f"{sum(each.verdict == verdict for each in judged)} {verdict}" for verdict in ORDER]
    noun = "claim" if len(judged) == 1 else "claims"
    return f"{len(judged)} {noun}: " + " · ".join(counts)
