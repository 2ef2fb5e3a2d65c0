"""A plan as Markdown for a pull request: the decision as a terminal has it, the bill, and what it assumes."""

from collections.abc import Iterator, Sequence

from twofold.contracts.results.plan import Plan
from twofold.pages.sections import markdown_table, plain
from twofold.report.decision import decision_lines
from twofold.report.money import number_text

FENCE = "```"


def plan_markdown(plan: Plan, digest: str) -> str:
    """The decision, the bill as a table, what nobody wrote and what to know, in sections."""
    parts = [
        f"# {plain(plan.name)}",
        *_section(
            "Nothing meets", [f"- {plain(f'{each.name}: {each.message}')}" for each in plan.infeasible]
        ),
        "",
        f"{FENCE}text",
        *(line.replace(FENCE, "\u02bc" * len(FENCE)) for line in decision_lines(plan)),
        FENCE,
        *_bill(plan),
        *_section("What nobody wrote", markdown_table(("key", "taken as"), plan.defaults)),
        *_section("Worth knowing", [f"- {plain(each)}" for each in plan.warnings]),
        "",
        f"twofold {plain(plan.twofold)}, plan of sha256 {digest[:16]}",
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
    yield from _section(
        "The bill of the first year", markdown_table(("what", "quantity", "$ each", "$"), rows)
    )


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines] if lines else []
