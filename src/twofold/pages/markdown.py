"""A plan as Markdown for a pull request: the decision as a terminal has it, the bill, and what it assumes."""

import re
from collections.abc import Iterable, Iterator, Sequence

from twofold.contracts.results.plan import Plan
from twofold.report.decision import decision_lines
from twofold.report.money import number_text

FENCE = "```"
MARKS = re.compile(r"[\\`*_\[\]<>|#&]")  # what Markdown reads as more than itself


def plan_markdown(plan: Plan, digest: str) -> str:
    """The decision, the bill as a table, what nobody wrote and what to know, in sections."""
    parts = [
        f"# {_plain(plan.name)}",
        *_section(
            "Nothing meets", [f"- {_plain(f'{each.name}: {each.message}')}" for each in plan.infeasible]
        ),
        "",
        f"{FENCE}text",
        *(line.replace(FENCE, "\u02bc" * len(FENCE)) for line in decision_lines(plan)),
        FENCE,
        *_bill(plan),
        *_section("What nobody wrote", _table(("key", "taken as"), plan.defaults)),
        *_section("Worth knowing", [f"- {_plain(each)}" for each in plan.warnings]),
        "",
        f"twofold {_plain(plan.twofold)}, plan of sha256 {digest[:16]}",
    ]
    return "\n".join(parts) + "\n"


def _bill(plan: Plan) -> Iterator[str]:
    if plan.money is None:
        return
    rows = [
        (line.what, f"{line.quantity:,.2f} {line.unit}", number_text(line.unit_usd), f"{line.total_usd:,.2f}")
        for line in plan.money.lines
    ]
    rows.append(("total", "", "", f"{plan.money.total_usd:,.2f}"))
    yield from _section("The bill of the first year", _table(("what", "quantity", "$ each", "$"), rows))


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines] if lines else []


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [f"| {' | '.join(_plain(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *body] if body else []


def _plain(text: str) -> str:
    """A text that is itself where it stands: no mark-up, no element, no end of its line or cell."""
    return MARKS.sub(r"\\\g<0>", " ".join(text.split()))
