"""The portfolio on a plan's further screen: what to hold and release, and against what."""

import re

from twofold.contracts.results import holdings
from twofold.core.display import format_seconds, format_usd
from twofold.report.figures import percent
from twofold.report.lines import DOT, both_ends, field, listed, table

SHOWN_LEASES, SHOWN_RANKS, SHOWN_WINDOWS, SHOWN_STARTS = 4, 3, 2, 6
# In the tables alone.
USUAL_NOTES = ("amounts are before tax", "other years are priced", "the search was cut")
NUMBER = re.compile(r" \d+$")  # which time of a run it is
LEAST_SHARE = 0.1  # of a class, for an offer to be shown as answering it


def portfolio_lines(portfolio: holdings.Portfolio) -> list[str]:
    """The block INSTEAD: the cheapest mix of leases, its difference, what goes back, what would be short.

    `portfolio_tables` has the rest. Amounts are rent and support before tax.
    """
    offers = f"{portfolio.offers_count} offers"
    lines = both_ends(
        f"INSTEAD      a mix of leases{DOT}{portfolio.weeks} weeks"
        f"{f' from {portfolio.start}' if portfolio.start else ''}{DOT}{offers}",
        "no mix has all of it"
        if portfolio.conflict
        else f"{format_usd(portfolio.usd)} in fractions of units",
    )
    if portfolio.conflict:
        lines += field("conflict", f"cannot all be met: {', '.join(portfolio.conflict)}")
    rows = _lease_rows(portfolio)
    shown, rest = [row for row, _ in rows[:SHOWN_LEASES]], rows[SHOWN_LEASES:]
    lines += table(("at most", "from", "when", "rent", "for"), shown, numbers=(3,))
    if rest:
        noun = "lease" if len(rest) == 1 else "leases"
        lines += field("and", f"{len(rest)} smaller {noun}, {format_usd(sum(usd for _, usd in rest))}")
    lines += field("beside", *([] if portfolio.conflict else _instead(portfolio.options)))
    lines += field("released", *_released(portfolio))
    if any(month.shortage_count for month in portfolio.calendar):
        lines += field("calendar", *_calendar(portfolio.calendar))
    lines += field("if it is", *(_year(row) for row in portfolio.scenarios if row.usd is None))
    lines += field("owed after", format_usd(portfolio.owed_usd) if portfolio.owed_usd else "")
    return [*lines, *field("note", *[note for note in portfolio.notes if not note.startswith(USUAL_NOTES)])]


def portfolio_tables(portfolio: holdings.Portfolio) -> list[list[str]]:
    """What `--details` adds: options, calendar, rules, other years; who answers what; terms; what to buy."""
    shown = [row for row in portfolio.served if row.share_fraction >= LEAST_SHARE]
    kept = f"{portfolio.kept_count} of {portfolio.offers_count} offers are not beaten by another"
    lines = [f"LEASES       what they answer, and what else there is{DOT}{kept}"]
    leases = [_lease_row(lease, portfolio.weeks) for lease in portfolio.leases]
    lines += table(("at most", "from", "when", "used", "rent", "for"), leases, numbers=(3, 4))
    lines += listed(
        portfolio.options,
        ("option", lambda each: each.name),
        ("what", lambda each: each.what),
        (">USD", lambda each: format_usd(each.usd)),
        ("SLO", lambda each: each.slo),
        ("deadline", lambda each: each.deadline),
        (
            ">saved",
            lambda each: "–" if each is portfolio.options[0] else f"{100 * each.saving_fraction:+.0f} %",
        ),
        (">turns at", lambda each: "–" if each.break_even_ratio is None else f"{each.break_even_ratio:.2g}x"),
    )
    lines += field("calendar", *_calendar(portfolio.calendar))
    lines += field("rules", *map(_rule, portfolio.restrictions))
    lines += field("if it is", *map(_year, portfolio.scenarios))
    lines += field("answers", *[_served(row) for row in shown])
    ranking = (
        f"{row.offer} {row.usd_per_h_per_tb_s:.2f} $/h per TB/s"
        + ("" if row.usd_per_million is None else f", {row.usd_per_million:.2g} $/Mtok with egress")
        for row in portfolio.ranking[:SHOWN_RANKS]
    )
    lines += field("bandwidth", *ranking)
    lines += field("reserved", *_splits(portfolio))
    materials = [f"{row.half}: {row.units} × {row.instance} ({row.fabric})" for row in portfolio.materials]
    lines += field("to buy", *materials)
    return [[*lines, *field("note", *portfolio.notes)]]


def _instead(options: tuple[holdings.FleetOption, ...]) -> list[str]:
    """What people do instead, by rent and support alone."""
    if not options:
        return []
    own, *others = options
    return [
        f"{each.name} all year {format_usd(each.usd)} of rent, {each.slo}"
        + ("" if each.deadline in (own.deadline, "–") else f", {each.deadline}")
        + f": the mix is {100 * each.saving_fraction:.0f} % cheaper"
        for each in others
    ]


def _lease_rows(portfolio: holdings.Portfolio) -> list[tuple[tuple[str, ...], float]]:
    """A row for each lease without its use; those of one run that repeats on one row, with their sum."""
    groups: dict[tuple[str, ...], list[holdings.Lease]] = {}
    for lease in portfolio.leases:
        size, whose, when, _, _, what = _lease_row(lease, portfolio.weeks)
        # Services and runs: `--details` has the classes.
        what = ", ".join(dict.fromkeys(each.partition(".")[0] for each in what.partition(":")[0].split(", ")))
        stem = NUMBER.sub("", what) if lease.release else what
        groups.setdefault((size, whose, stem, "" if stem != what else when), []).append(lease)
    rows: list[tuple[tuple[str, ...], float]] = []
    for (size, whose, stem, when), own in groups.items():
        starts = [str(each.start_week + 1) for each in own]
        more = ", …" if len(starts) > SHOWN_STARTS else ""
        apart = f"weeks {', '.join(starts[:SHOWN_STARTS])}{more}" if len(own) > 1 else ""
        usd = sum(each.usd for each in own)
        held = when or apart or _when(own[0], portfolio.weeks)
        rows.append(((size, whose, held, format_usd(usd), stem), usd))
    return rows


def _lease_row(lease: holdings.Lease, weeks: int) -> tuple[str, ...]:
    size = f"{lease.units} × {lease.accelerators_per_unit} {lease.accelerator}"
    if not lease.accelerators_per_unit:
        size = "by the token"
    # `serve.chat, serve.batch` is `serve: chat, batch`: one service stands before its classes.
    service, _, rest = lease.what.partition(".")
    own = lease.what.split(", ")
    alike = bool(rest) and all(name.startswith(f"{service}.") for name in own)
    what = f"{service}: {', '.join(name.partition('.')[2] for name in own)}" if alike else lease.what
    return (
        size,
        " ".join(filter(None, (lease.provider, lease.region, lease.term))),
        _when(lease, weeks),
        percent(lease.used_fraction),
        format_usd(lease.usd),
        what,
    )


def _when(lease: holdings.Lease, weeks: int) -> str:
    """`all year`, `weeks 9–20`, `week 1, back day 17`."""
    first, last = lease.start_week + 1, lease.start_week + lease.weeks
    if lease.release:
        return f"week {first}, back {lease.release}"
    some = f"week {first}" if first == last else f"weeks {first}–{last}"
    return "all weeks" if lease.weeks == weeks else some


def _released(portfolio: holdings.Portfolio) -> list[str]:
    """Windows against the same machines all year."""
    rows = [
        f"{row.run} on {row.release}: {format_usd(row.usd)} for the window, "
        f"{format_usd(row.year_usd)} all year"
        for row in portfolio.windows[:SHOWN_WINDOWS]
    ]
    more = len(portfolio.windows) - SHOWN_WINDOWS
    return [*rows, f"{more} more windows"] if more > 0 else rows


def _calendar(months: tuple[holdings.MonthDemand, ...]) -> list[str]:
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
    return ["accelerators to train + serve", *texts] if texts else []


def _served(row: holdings.ServedShare) -> str:
    late = "" if row.p95_s is None else f", p95 {format_seconds(row.p95_s)}"
    way = "" if row.rtt_s is None else f" of them {format_seconds(row.rtt_s)} on the way"
    cost = f"{row.usd_per_million:,.3g} $ per M requests"
    return f"{row.demand} {percent(row.share_fraction)} on {row.offer}{late}{way}, {cost}"


def _splits(portfolio: holdings.Portfolio) -> list[str]:
    texts = []
    for row in portfolio.splits:
        total = row.reserved_unit_h + row.hourly_unit_h
        share = row.reserved_unit_h / total if total else 0.0
        even = "no reservation on offer"
        if row.break_even_fraction is not None:
            pays = f"pays above {percent(row.break_even_fraction)} use"
            even = "dearer than by the hour at any use" if row.break_even_fraction > 1 else pays
        texts.append(f"{row.accelerator} {percent(share)} of unit-hours, {even}")
    return texts


def _rule(row: holdings.Restriction) -> str:
    if row.usd is None or row.extra_fraction is None:
        return f"{row.rule}: impossible"
    return f"{row.rule}: {format_usd(row.usd)} ({100 * row.extra_fraction:+.1f} %)"


def _year(row: holdings.YearScenario) -> str:
    """Another year with these leases: too little and what would help, or what it costs to have them."""
    if row.usd is None or row.regret_usd is None:
        return f"{row.name}: too little, {row.short}"
    regret = f"regret {format_usd(row.regret_usd)}" if row.regret_usd >= 0.5 else "no regret"
    return f"{row.name}: {format_usd(row.usd)}, {regret}"
