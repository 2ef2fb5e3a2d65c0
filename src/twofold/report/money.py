"""The block MONEY of a plan's screen, and what `--money` adds: lines, cash, outages, levers, how sure."""

from twofold.contracts.results import ledger
from twofold.contracts.results.ledger import LineItem, cents, total_usd
from twofold.core.display import format_seconds, format_si, format_usd
from twofold.core.quantity import DAY_S
from twofold.report.figures import percent, ranged
from twofold.report.lines import both_ends, field, listed, stacked, table

HOUR_S = 3600.0


def money_lines(money: ledger.Money) -> list[str]:
    """The bill by kind, hosted against own, owning against renting, outages; `more_money` has the rest."""
    other = ""  # the same in the spec's currency
    if money.currency != "USD":
        usd, ratio = money.total_usd * money.exchange_ratio, money.exchange_ratio
        other = f" = {usd:,.2f} {money.currency} at {ratio:g}"
    lines = both_ends("MONEY        first year of the fleets above", f"{dollars(money.total_usd)} v{other}")
    lines += field("bill", *_kinds(money))
    for service in money.services:
        if service.api:
            lines += field("hosted", *_hosted(service, service.api))
    if money.owning:
        lines += field("own", *_own(money.owning)[:1])
    for service in money.services:
        lines += field("outages", *_outages(service)[:-1]) if service.spares else []
    return lines


def more_money_lines(money: ledger.Money) -> list[str]:
    """What `--details` and `--money` add: how the total follows, queries, watts, lifetime, owning, ratios."""
    lines = field("adds up", money.difference)
    queries = [
        f"{one.name} {thousand_queries(one)}"
        + (f", {one.usd_per_mtok.value:.3g} $/Mtok" if one.usd_per_mtok else "")
        for service in money.services
        for one in service.classes
    ]
    lines += field("1k queries", *queries, "at the goals above") if queries else []
    per_watt = [(each.name, each.output_tokens_per_s_per_w) for each in money.services]
    per_watt += [(each.name, each.tokens_per_s_per_w) for each in money.runs]
    rates = [f"{name} {ranged(rate).replace('tok/J ', '')}" for name, rate in per_watt if rate]
    lines += field("tok/s/W", *rates, "at the meter") if rates else []
    lives = []
    for run in money.runs:
        if run.crossing_days is not None:
            day = f" ({run.crossing_date})" if run.crossing_date else ""
            after = format_seconds(run.crossing_days * DAY_S)
            lives.append(f"{run.served_by} has cost as much as {run.name} after {after} of serving{day}")
    lines += [line for at, life in enumerate(lives) for line in field("" if at else "lifetime", life)]
    if money.owning:
        lines += field("own", *_own(money.owning)[1:])
    for service in money.services:
        lines += field("nines", *_outages(service)[-1:]) if service.spares else []
    ratios = []
    for row in money.ratios:
        what = row.name if row.name != "lifetime" else "serving over training in all years"
        claim = f"{row.claimed_low:g}–{row.claimed_high:g} claimed: {row.verdict}"
        ratios.append(f"{what} {number_text(row.ratio)}× ({claim})")
    lines += field("ratios", *ratios)
    return ["MORE MONEY", *lines] if lines else []


def dollars(usd: float) -> str:
    """To the cent: `2,303,477.52 $`."""
    return f"{cents(usd):,.2f} $"


def _kinds(money: ledger.Money) -> list[str]:
    """The sum of each kind of line; discount and tax as they are in it."""
    kinds: dict[str, list[LineItem]] = {}
    for line in money.lines:
        kinds.setdefault(line.category, []).append(line)
    words = [f"{kind} {dollars(total_usd(lines))}" for kind, lines in kinds.items()]
    if not money.discount_fraction and not money.tax_fraction:
        return [*words, "no discount, no tax"]
    terms = f"discount {percent(money.discount_fraction)}, tax {percent(money.tax_fraction)} in it"
    return [*words, terms]


def thousand_queries(one: ledger.ClassMoney) -> str:
    """What a thousand queries cost: a single one is a fraction of a cent."""
    return ranged(one.usd_per_query.times(1e3, "USD"))


def _hosted(service: ledger.ServiceMoney, api: ledger.ApiComparison) -> list[str]:
    """The cheapest API for this mix, and the volume from which the own fleet costs less."""
    like = "" if api.same_model else " (as large)"
    volume, months = api.break_even_mtok_per_month, api.pays_back_months
    when, back = "the API stays cheaper at any volume", ""
    if volume is not None:
        has = format_si(api.mtok_per_month * 1e6, "tok")
        when = f"own is cheaper from {format_si(volume * 1e6, 'tok')} a month; it has {has}"
        back = "the run is never paid back" if api.once_usd else ""
    if api.once_usd and months is not None:
        day = f", on {api.pays_back_date}" if api.pays_back_date else ""
        back = f"the run is paid back in {months:.3g} months{day}"
    asked = f"{api.provider} {api.model}{like} {api.usd_per_mtok:.3g} $/Mtok ({api.date})"
    return [
        f"{service.name}: {asked}",
        f"{format_usd(api.api_usd_per_year)}/y against the fleet's {format_usd(api.own_usd_per_year)}/y",
        when,
        back,
    ]


def _own(owning: ledger.Owning) -> list[str]:
    """Both totals over the years, and for each machine the use from which owning is cheaper."""
    yours = bool(owning.crossings) and all(row.yours for row in owning.crossings)
    bought = "if bought today" if yours else "owned"
    totals = f"{format_usd(owning.owned_usd)} {bought}, {format_usd(owning.rented_usd)} rented"
    pieces = [f"over {owning.years} years {totals}"]
    for row in owning.crossings:
        pays = f"owning pays above {percent(row.utilisation_fraction)} of the year"
        if row.yours:
            pays = "yours already"
        elif not row.rented_usd_per_accelerator_h:
            pays = "no rent to compare"
        elif row.utilisation_fraction > 1:
            pays = "renting is cheaper at any use"
        pieces.append(f"{row.name}: used {percent(row.used_fraction)}, {pays}")
    return [*pieces, *owning.left_out]


def _outages(service: ledger.ServiceMoney) -> list[str]:
    """What an hour costs, the spares that make the sum least, and what the next nine is worth."""
    planned, best = (
        next(step for step in service.spares if getattr(step, key)) for key in ("planned", "best")
    )
    assumed = " a" if service.downtime_source.startswith("assumed") else ""
    hour = f"{service.name}: an hour down {format_usd(service.downtime_usd_per_h)}{assumed}"
    whose = f"{service.spares_of}: " if service.spares_of else ""
    choice = f"{whose}least cost with {best.spare_count} spare ({_down(best)})"
    if planned.spare_count != best.spare_count:
        why = "its goals ask for them"
        if planned.spare_count < best.spare_count:
            why = "write `downtime_cost` to plan by it" if assumed else "machines are held for part of a day"
        choice += f", planned {planned.spare_count} ({_down(planned)}): {why}"
    nine = service.nines[1]
    worth = f"{share_text(nine.from_fraction)} to {share_text(nine.to_fraction)} is worth"
    return [hour, choice, f"{service.name}: {worth} {format_usd(nine.worth_usd_per_year)}/y"]


def _down(step: ledger.SpareStep) -> str:
    down = format_seconds(step.outage_h_per_year * HOUR_S)
    return f"{format_usd(step.total_usd_per_year)}/y, {down} down"


def share_text(fraction: float) -> str:
    """Availability with all its nines: `99.99 %`."""
    return f"{100 * fraction:.6g} %"


def number_text(value: float) -> str:
    """Four digits, or all of them before the point."""
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def detail_money_lines(money: ledger.Money) -> list[str]:
    """What `--money` prints below the screen: every line, both cash flows, spares, levers, how sure."""
    classes = [(service.name, one) for service in money.services for one in service.classes]
    # What a query and a million tokens cost, with the promise that they are sold with.
    promises = listed(
        classes,
        ("UNIT COST", lambda row: f"{row[0]}.{row[1].name}"),
        ("1k queries", lambda row: thousand_queries(row[1])),
        ("$/Mtok in and out", lambda row: ranged(row[1].usd_per_mtok)),
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
