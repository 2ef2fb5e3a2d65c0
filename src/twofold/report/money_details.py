"""What `twofold plan SPEC --money` adds: every line, cash, outages, levers, how sure the first year is."""

from twofold.contracts.results import LineItem, ledger
from twofold.core import DAY_S, format_seconds, format_usd
from twofold.report.figures import percent, ranged
from twofold.report.lines import field, listed, stacked, table
from twofold.report.money import HOUR_S, dollars, more_money_lines, number_text, share_text, thousand_queries


def detail_money_lines(money: ledger.Money) -> list[str]:
    """What `--money` prints below the screen: every line, both cash flows, spares, levers, how sure."""
    classes = [(service.name, one) for service in money.services for one in service.classes]
    # What a query and a thousand tokens cost, with the promise that they are sold with.
    promises = listed(
        classes,
        ("UNIT COST", lambda row: f"{row[0]}.{row[1].name}"),
        ("1k queries", lambda row: thousand_queries(row[1])),
        ("1k tokens in and out", lambda row: ranged(row[1].usd_per_1k_tokens)),
        ("with the promise", lambda row: row[1].slo),
    )
    blocks = [
        more_money_lines(money),
        _bill(money),
        promises if classes else [],
        *_curves(money),
        *_owning_tables(money),
        *_spare_tables(money),
    ]
    if money.detail:
        blocks += _detail_tables(money.detail)
    notes = [line for note in money.notes for line in field("note", note)]
    return stacked([*blocks, notes])


def _bill(money: ledger.Money) -> list[str]:
    rows = []
    for line in money.lines:
        terms = f"−{line.discount_usd:,.2f} +{line.tax_usd:,.2f}"
        terms = terms if line.discount_usd or line.tax_usd else "–"
        cited = f"{line.source}, {line.date}" if line.date else line.source
        rows.append((line.what, *_amount(line), terms, dollars(line.total_usd), cited))
    rows.append(("total", "", "", "", dollars(money.total_usd), ""))
    return table(("BILL", "amount", "each", "discount, tax", "USD", "offer and date"), rows, numbers=(4,))


def _amount(line: LineItem) -> tuple[str, str]:
    """How much of what, and the price of one."""
    return f"{number_text(line.quantity)} {line.unit}", number_text(line.unit_usd)


def _days(days: float | None) -> str:
    return "never" if days is None else format_seconds(days * DAY_S)


def _curves(money: ledger.Money) -> list[list[str]]:
    blocks = []
    for run in money.runs:
        lines = listed(
            run.curve,
            (">requests/day", lambda step: f"{step.requests_per_day:,.0f}"),
            (f"serving {run.served_by}", lambda step: f"{format_usd(step.serving_usd_per_year)}/y"),
            (f"costs as much as {run.name} after", lambda step: _days(step.crossing_days)),
        )
        blocks += [["LIFETIME", *lines]] if run.curve else []
    return blocks


def _owning_tables(money: ledger.Money) -> list[list[str]]:
    owning = money.owning
    if owning is None:
        return []
    lines = [(line.what, *_amount(line), dollars(line.total_usd), line.source) for line in owning.lines]
    lines.append((f"total of {owning.years} years", "", "", dollars(owning.owned_usd), ""))
    cash = listed(
        owning.cash,
        ("year", lambda row: str(row.year)),
        (">capex", lambda row: f"{row.capex_usd:,.2f}"),
        (">financing", lambda row: f"{row.financing_usd:,.2f}"),
        (">opex", lambda row: f"{row.opex_usd:,.2f}"),
        (">resale", lambda row: f"{row.resale_usd:,.2f}"),
        (">owned", lambda row: f"{row.owned_usd:,.2f}"),
        (">rented", lambda row: f"{row.rented_usd:,.2f}"),
    )
    owned = table(("OWNED", "amount", "each", "USD", "from"), lines, numbers=(3,))
    return [owned, ["CASH FLOW    USD", *cash]]


def _spare_tables(money: ledger.Money) -> list[list[str]]:
    blocks = []
    for service in money.services:
        lines = listed(
            service.spares,
            ("spares", lambda s: f"{s.spare_count}{' planned' * s.planned}{' best' * s.best}"),
            ("available", lambda step: share_text(step.available_fraction)),
            (">down a year", lambda step: format_seconds(step.outage_h_per_year * HOUR_S)),
            (">machines/y", lambda step: format_usd(step.fleet_usd_per_year)),
            (">outages/y", lambda step: format_usd(step.outage_usd_per_year)),
            (">sum/y", lambda step: format_usd(step.total_usd_per_year)),
        )
        nines = [
            f"{share_text(nine.from_fraction)} to {share_text(nine.to_fraction)}: "
            f"{format_seconds(nine.saved_h_per_year * HOUR_S)}/y, {format_usd(nine.worth_usd_per_year)}/y"
            for nine in service.nines
        ]
        head = f"OUTAGES      {service.name}, an hour down {format_usd(service.downtime_usd_per_h)}"
        source = field("", f"({service.downtime_source})")
        blocks += [[head, *source, *lines, *field("nines", *nines)]] if service.spares else []
    return blocks


def _detail_tables(detail: ledger.MoneyDetail) -> list[list[str]]:
    """Levers, shapes, tornado, Monte-Carlo, and what measuring is worth."""
    levers = listed(
        list(enumerate(detail.levers, 1)),
        ("", lambda row: str(row[0])),
        ("lever", lambda row: row[1].name),
        ("of", lambda row: row[1].of),
        ("is", lambda row: row[1].pulled),
        ("saves", lambda row: f"{format_usd(row[1].saves_usd_per_year)}/y"),
        ("of it", lambda row: percent(row[1].saves_fraction)),
        ("how", lambda row: row[1].how),
    )

    def saved(shape: ledger.Shape) -> str:
        usd = shape.saves_usd_per_year
        return "–" if usd is None else f"{format_usd(usd)}/y"

    shapes = listed(
        detail.shapes,
        ("of", lambda row: row.name),
        ("given", lambda row: row.given),
        ("enough", lambda row: row.enough),
        ("saves", saved),
        ("freed", lambda row: str(row.freed_accelerator_count)),
        ("keeps", lambda row: row.keeps),
    )
    blocks = [["LEVERS", *levers]] if detail.levers else []
    blocks += [["SHAPES", *shapes]] if detail.shapes else []
    if not detail.draw_count:
        return blocks
    swings = listed(
        detail.swings,
        ("input", lambda row: row.name),
        ("80 % range", lambda row: f"×{row.low_factor:.2f} to ×{row.high_factor:.2f}"),
        (">at its low", lambda row: format_usd(row.at_low_usd)),
        (">at its high", lambda row: format_usd(row.at_high_usd)),
    )
    measuring = listed(
        detail.measuring,
        ("what", lambda row: row.name),
        (">range now", lambda row: format_usd(row.before_usd)),
        (">then", lambda row: format_usd(row.after_usd)),
        (">narrower by", lambda row: format_usd(row.before_usd - row.after_usd)),
        ("how", lambda row: row.command),
    )
    over = detail.over_budget_fraction
    draws = field(
        "",
        f"{detail.draw_count} draws: {format_usd(detail.median_usd)} [{format_usd(detail.low_usd)} to "
        f"{format_usd(detail.high_usd)}], mean {format_usd(detail.mean_usd)}",
        "" if over is None else f"above the budget in {percent(over)} of them",
    )
    return [*blocks, ["FIRST YEAR", *draws], ["TORNADO", *swings], ["MEASURING", *measuring]]
