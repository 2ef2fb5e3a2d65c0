"""The block MONEY of a plan's screen; what `--money` adds stands in `report/money_details.py`."""

from twofold.contracts.results import LineItem, cents, ledger, total_usd
from twofold.core import DAY_S, format_seconds, format_si, format_usd
from twofold.report.figures import percent, ranged
from twofold.report.lines import both_ends, field

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
    totals = f"{format_usd(owning.owned_usd)} owned, {format_usd(owning.rented_usd)} rented"
    pieces = [f"over {owning.years} years {totals}"]
    for row in owning.crossings:
        pays = f"owning pays above {percent(row.utilisation_fraction)} of the year"
        if not row.rented_usd_per_accelerator_h:
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
        choice += f", planned {planned.spare_count} ({_down(planned)})"
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
