"""Judged claims as lines of a terminal."""

import re
from collections.abc import Sequence
from textwrap import wrap

from twofold.report.lines import TIED, WIDTH, table
from twofold.verdicts.verdicts import Judged, Verdict

INDENT = " " * 7
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=[^\s\d(·]{1,6}[ ,;]|[^\s\d(·]{1,6}$)")
_WORD = re.compile(r"(?:'[^']*'|[^\s'])+\s*|\s+")  # up to the next space that is not in single quotes
ORDER = (Verdict.HOLDS, Verdict.CONDITIONAL, Verdict.CONTRADICTED, Verdict.UNVERIFIABLE)


def claims_lines(judged: Sequence[Judged], with_cases: bool) -> list[str]:
    """Every claim with its verdict and reason, and the counts."""
    lines: list[str] = []
    for each in judged:
        lines += _wrapped(f"{each.id:<6} {each.verdict:<12} {each.claim}", "", INDENT + " " * 13)
        lines += [*_wrapped(each.reason, INDENT, INDENT), *command_lines(each.command)]
        lines += case_lines(each) if with_cases else []
    counts = [f"{sum(each.verdict == verdict for each in judged)} {verdict}" for verdict in ORDER]
    summary = f"{len(judged)} {'claim' if len(judged) == 1 else 'claims'}: {' · '.join(counts)}"
    return [*lines, "", *topic_lines(judged), summary]


def topic_lines(judged: Sequence[Judged]) -> list[str]:
    """How many of each topic hold, where there are several topics."""
    topics = sorted({each.topic for each in judged})
    if len(topics) < 2:
        return []
    rows = []
    for topic in topics:
        found = [each.verdict for each in judged if each.topic == topic]
        rows.append((topic, *(str(found.count(verdict) or "–") for verdict in ORDER)))
    return [*table(("topic", *map(str, ORDER)), rows, numbers=(1, 2, 3, 4)), ""]


def command_lines(command: str) -> list[str]:
    """`$ command`, broken as a shell continues it, so that it can be copied whole.

    A space in double quotes may be broken too: expressions do not mind more of them. Texts in single quotes
    are kept together.
    """
    lines = [f"{INDENT}$ "]
    for word in _WORD.findall(command):
        if len(lines[-1]) + len(word.rstrip()) > WIDTH - 2 and lines[-1].strip() != "$":
            lines[-1] = f"{lines[-1].rstrip()} \\"
            lines.append(f"{INDENT}  ")
        lines[-1] += word
    return [line.rstrip() for line in lines]


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
    if each.outside:
        lines += _wrapped(f"of these the claim does not speak: {'; '.join(each.outside)}", INDENT, INDENT)
    return lines
