"""The portfolio on a plan's further screen: what to hold and release, and against what."""

from twofold.app.figures import percent
from twofold.app.lines import DOT, both_ends, field, table
from twofold.contracts import FleetOption, Lease, MonthDemand, Portfolio, ServedShare
from twofold.core import format_seconds, format_usd

SHOWN_LEASES, SHOWN_RANKS, SHOWN_WINDOWS = 8, 3, 4
SMALL_GAP_FRACTION = 0.0005
LEAST_SHARE = 0.1  # of a class, for an offer to be shown as answering it


def portfolio_lines(portfolio: Portfolio) -> list[str]:
    """The block PORTFOLIO."""
    offers = f"{portfolio.offers_count} offers, {portfolio.kept_count} not beaten by another"
    lines = both_ends(
        f"PORTFOLIO    {portfolio.weeks} weeks{f' from {portfolio.start}' if portfolio.start else ''}"
        f"{DOT}{offers}",
        f"{format_usd(portfolio.usd)} a year, {_gap_text(portfolio)}",
    )
    if portfolio.conflict:
        lines += field("conflict", [f"cannot all be met: {', '.join(portfolio.conflict)}"])
    lines += table(
        ("at most", "from", "when", "used", "USD", "for"),
        [_lease_row(lease) for lease in portfolio.leases[:SHOWN_LEASES]],
        numbers=(3, 4),
    )
    if len(portfolio.leases) > SHOWN_LEASES:
        rest = portfolio.leases[SHOWN_LEASES:]
        text = f"{len(rest)} smaller leases, {format_usd(sum(lease.usd for lease in rest))}"
        lines += field("and", [text])
    lines += _options(portfolio.options)
    lines += field("released", _released(portfolio))
    lines += field("calendar", _calendar(portfolio.calendar))
    lines += field("rules", [_rule(row.rule, row.usd, row.extra_fraction) for row in portfolio.restrictions])
    lines += field("if it is", _scenarios(portfolio))
    lines += field("owed after", [format_usd(portfolio.owed_usd)] if portfolio.owed_usd else [])
    lines += field("rehearsed", portfolio.rounds)
    return [*lines, *field("note", portfolio.notes)]


def portfolio_tables(portfolio: Portfolio) -> list[list[str]]:
    """What `--details` adds: who answers what from where, offers by bandwidth, terms, bills of materials."""
    shown = [row for row in portfolio.served if row.share_fraction >= LEAST_SHARE]
    lines = ["LEASES       what they answer, and what else there is"]
    lines += field("answers", [_served(row) for row in shown])
    lines += field("bandwidth", _ranking(portfolio))
    lines += field("reserved", _splits(portfolio))
    lines += field("to buy", _materials(portfolio))
    return [lines]


def _gap_text(portfolio: Portfolio) -> str:
    if portfolio.gap_fraction < SMALL_GAP_FRACTION:
        return "the cheapest"
    return f"at most {percent(portfolio.gap_fraction)} above the cheapest"


def _lease_row(lease: Lease) -> tuple[str, ...]:
    size = f"{lease.units} × {lease.accelerators_per_unit} {lease.accelerator}"
    if not lease.accelerators_per_unit:
        size = "by the token"
    weeks = f"week {lease.start_week + 1}–{lease.start_week + lease.weeks}"
    back = f", back {lease.release}" if lease.release else ""
    # `serve.chat, serve.batch` is `serve: chat, batch`: one service stands before its classes.
    service, _, rest = lease.what.partition(".")
    own = lease.what.split(", ")
    alike = bool(rest) and all(name.startswith(f"{service}.") for name in own)
    what = f"{service}: {', '.join(name.partition('.')[2] for name in own)}" if alike else lease.what
    return (
        size,
        f"{lease.provider} {lease.term}",
        f"{weeks}{back}",
        percent(lease.used_fraction),
        format_usd(lease.usd),
        what,
    )


def _options(options: tuple[FleetOption, ...]) -> list[str]:
    """One table of cost, promises, deadlines and the load at which the choice turns."""
    rows = [
        (
            option.name,
            option.what,
            format_usd(option.usd),
            option.slo,
            option.deadline,
            f"{100 * option.saving_fraction:+.0f} %" if number else "–",
            "–" if option.break_even_ratio is None else f"{option.break_even_ratio:.2g}x",
        )
        for number, option in enumerate(options)
    ]
    return table(("option", "what", "USD", "SLO", "deadline", "saved", "turns at"), rows, numbers=(2, 5, 6))


def _released(portfolio: Portfolio) -> list[str]:
    """Windows against the same machines all year."""
    rows = [
        f"{row.run} on {row.release}: {format_usd(row.usd)} for the window, "
        f"{format_usd(row.year_usd)} all year"
        for row in portfolio.windows[:SHOWN_WINDOWS]
    ]
    more = len(portfolio.windows) - SHOWN_WINDOWS
    return [*rows, *([f"{more} more windows"] if more > 0 else [])]


def _calendar(months: tuple[MonthDemand, ...]) -> list[str]:
    """Accelerators by month, equal months together: `Jan 64 + 88`; what is missing is marked."""
    pieces: list[tuple[str, str, str]] = []  # first, last, figures
    for month in months:
        figures = f"{month.training_count} + {month.serving_count}"
        if month.shortage_count:
            figures += f" SHORT of {month.shortage_count}"
        if pieces and pieces[-1][2] == figures:
            pieces[-1] = (pieces[-1][0], month.label, figures)
        else:
            pieces.append((month.label, month.label, figures))
    texts = [f"{a if a == b else f'{a}–{b}'} {figures}" for a, b, figures in pieces]
    if not texts:
        return []
    return ["accelerators to train + serve", *texts]


def _served(row: ServedShare) -> str:
    late = "" if row.p95_s is None else f", p95 {format_seconds(row.p95_s)}"
    way = "" if row.rtt_s is None else f" of them {format_seconds(row.rtt_s)} on the way"
    cost = f"{row.usd_per_million:,.3g} $ per M requests"
    return f"{row.demand} {percent(row.share_fraction)} on {row.offer}{late}{way}, {cost}"


def _ranking(portfolio: Portfolio) -> list[str]:
    rows = portfolio.ranking[:SHOWN_RANKS]
    return [
        f"{row.offer} {row.usd_per_h_per_tb_s:.2f} $/h per TB/s"
        + ("" if row.usd_per_million is None else f", {row.usd_per_million:.2g} $/Mtok with egress")
        for row in rows
    ]


def _splits(portfolio: Portfolio) -> list[str]:
    texts = []
    for row in portfolio.splits:
        total = row.reserved_unit_h + row.hourly_unit_h
        share = row.reserved_unit_h / total if total else 0.0
        even = (
            "no reservation on offer"
            if row.break_even_fraction is None
            else f"pays above {percent(row.break_even_fraction)} use"
        )
        texts.append(f"{row.accelerator} {percent(share)} of unit-hours, {even}")
    return texts


def _materials(portfolio: Portfolio) -> list[str]:
    return [f"{row.half}: {row.units} × {row.instance} ({row.fabric})" for row in portfolio.materials]


def _rule(rule: str, usd: float | None, extra: float | None) -> str:
    if usd is None or extra is None:
        return f"{rule}: impossible"
    return f"{rule}: {format_usd(usd)} ({100 * extra:+.1f} %)"


def _scenarios(portfolio: Portfolio) -> list[str]:
    texts = []
    for row in portfolio.scenarios:
        if row.usd is None or row.regret_usd is None:
            texts.append(f"{row.name}: too little, {row.short}")
        else:
            regret = f"regret {format_usd(row.regret_usd)}" if row.regret_usd >= 0.5 else "no regret"
            texts.append(f"{row.name}: {format_usd(row.usd)}, {regret}")
    return texts
