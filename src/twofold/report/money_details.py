"""What `twofold plan SPEC --money` adds: every line, cash, outages, levers, how sure the first year is."""

from twofold.contracts.results import LineItem, ledger
from twofold.core import DAY_S, format_seconds, format_usd
from twofold.report.figures import percent, ranged
from twofold.report.lines import field, stacked, table
from twofold.report.money import HOUR_S, dollars, more_money_lines, number_text, share_text, thousand_queries


def detail_money_lines(money: ledger.Money) -> list[str]:
    """What `--money` prints below the screen: every line, both cash flows, spares, levers, how sure."""
    blocks = [
        more_money_lines(money),
        _bill(money),
        _promises(money),
        *_curves(money),
        *_owning_tables(money),
        *_spare_tables(money),
    ]
    if money.detail:
        blocks += _detail_tables(money.detail)
    notes = [line for note in money.notes for line in field("note", [note])]
    return stacked([*blocks, notes])


def _bill(money: ledger.Money) -> list[str]:
    rows = [_bill_row(line) for line in money.lines]
    rows.append(("total", "", "", "", dollars(money.total_usd), ""))
    return table(("BILL", "amount", "each", "discount, tax", "USD", "offer and date"), rows, numbers=(4,))


def _bill_row(line: LineItem) -> tuple[str, ...]:
    amount = f"{number_text(line.quantity)} {line.unit}"
    terms = f"−{line.discount_usd:,.2f} +{line.tax_usd:,.2f}" if line.discount_usd or line.tax_usd else "–"
    cited = f"{line.source}, {line.date}" if line.date else line.source
    return line.what, amount, number_text(line.unit_usd), terms, dollars(line.total_usd), cited


def _promises(money: ledger.Money) -> list[str]:
    """What a query and a thousand tokens cost, with the promise that they are sold with (R-131)."""
    rows = [
        (
            f"{service.name}.{one.name}",
            thousand_queries(one),
            ranged(one.usd_per_1k_tokens) if one.usd_per_1k_tokens else "–",
            one.slo,
        )
        for service in money.services
        for one in service.classes
    ]
    return (
        table(("UNIT COST", "1k queries", "1k tokens in and out", "with the promise"), rows) if rows else []
    )


def _curves(money: ledger.Money) -> list[list[str]]:
    blocks = []
    for run in money.runs:
        rows = [
            (
                f"{step.requests_per_day:,.0f}",
                f"{format_usd(step.serving_usd_per_year)}/y",
                "never" if step.crossing_days is None else format_seconds(step.crossing_days * DAY_S),
            )
            for step in run.curve
        ]
        if rows:
            heads = ("requests/day", f"serving {run.served_by}", f"costs as much as {run.name} after")
            blocks.append(["LIFETIME", *table(heads, rows, numbers=(0,))])
    return blocks


def _owning_tables(money: ledger.Money) -> list[list[str]]:
    owning = money.owning
    if owning is None:
        return []
    lines = [
        (
            line.what,
            f"{number_text(line.quantity)} {line.unit}",
            number_text(line.unit_usd),
            dollars(line.total_usd),
            line.source,
        )
        for line in owning.lines
    ]
    lines.append((f"total of {owning.years} years", "", "", dollars(owning.owned_usd), ""))
    cash = [
        (
            str(row.year),
            *(
                f"{usd:,.2f}"
                for usd in (
                    row.capex_usd,
                    row.financing_usd,
                    row.opex_usd,
                    row.resale_usd,
                    row.owned_usd,
                    row.rented_usd,
                )
            ),
        )
        for row in owning.cash
    ]
    heads = ("year", "capex", "financing", "opex", "resale", "owned", "rented")
    return [
        table(("OWNED", "amount", "each", "USD", "from"), lines, numbers=(3,)),
        ["CASH FLOW    USD", *table(heads, cash, numbers=(1, 2, 3, 4, 5, 6))],
    ]


def _spare_tables(money: ledger.Money) -> list[list[str]]:
    blocks = []
    for service in money.services:
        rows = [
            (
                f"{step.spare_count}{' planned' if step.planned else ''}{' best' if step.best else ''}",
                share_text(step.available_fraction),
                format_seconds(step.outage_h_per_year * HOUR_S),
                format_usd(step.fleet_usd_per_year),
                format_usd(step.outage_usd_per_year),
                format_usd(step.total_usd_per_year),
            )
            for step in service.spares
        ]
        if rows:
            heads = ("spares", "available", "down a year", "machines/y", "outages/y", "sum/y")
            nines = [
                f"{share_text(nine.from_fraction)} to {share_text(nine.to_fraction)}: "
                f"{format_seconds(nine.saved_h_per_year * HOUR_S)}/y, {format_usd(nine.worth_usd_per_year)}/y"
                for nine in service.nines
            ]
            head = f"OUTAGES      {service.name}, an hour down {format_usd(service.downtime_usd_per_h)}"
            source = field("", [f"({service.downtime_source})"])
            blocks.append([head, *source, *table(heads, rows, numbers=(2, 3, 4, 5)), *field("nines", nines)])
    return blocks


def _detail_tables(detail: ledger.MoneyDetail) -> list[list[str]]:
    """Levers, shapes, tornado, Monte-Carlo, and what measuring is worth."""
    levers = [
        (
            str(rank),
            row.name,
            row.of,
            row.pulled,
            f"{format_usd(row.saves_usd_per_year)}/y",
            percent(row.saves_fraction),
            row.how,
        )
        for rank, row in enumerate(detail.levers, 1)
    ]
    shapes = [
        (
            row.name,
            row.given,
            row.enough,
            "–" if row.saves_usd_per_year is None else f"{format_usd(row.saves_usd_per_year)}/y",
            str(row.freed_accelerator_count),
            row.keeps,
        )
        for row in detail.shapes
    ]
    swings = [
        (
            row.name,
            f"×{row.low_factor:.2f} to ×{row.high_factor:.2f}",
            format_usd(row.at_low_usd),
            format_usd(row.at_high_usd),
        )
        for row in detail.swings
    ]
    measuring = [
        (
            row.name,
            format_usd(row.before_usd),
            format_usd(row.after_usd),
            format_usd(row.before_usd - row.after_usd),
            row.command,
        )
        for row in detail.measuring
    ]
    over = detail.over_budget_fraction
    draws = [
        f"{detail.draw_count} draws: {format_usd(detail.median_usd)} [{format_usd(detail.low_usd)} to "
        f"{format_usd(detail.high_usd)}], mean {format_usd(detail.mean_usd)}",
        *([] if over is None else [f"above the budget in {percent(over)} of them"]),
    ]
    blocks = [
        ["LEVERS", *table(("", "lever", "of", "is", "saves", "of it", "how"), levers)] if levers else [],
        ["SHAPES", *table(("of", "given", "enough", "saves", "freed", "keeps"), shapes)] if shapes else [],
    ]
    if detail.draw_count:
        ends = ("input", "80 % range", "at its low", "at its high")
        heads = ("what", "range now", "then", "narrower by", "how")
        blocks += [
            ["FIRST YEAR", *field("", draws)],
            ["TORNADO", *table(ends, swings, numbers=(2, 3))],
            ["MEASURING", *table(heads, measuring, numbers=(1, 2, 3))],
        ]
    return [block for block in blocks if block]
