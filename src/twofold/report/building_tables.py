"""What `twofold plan --details` adds about the building: limits, cooling, parts, power, sites, users."""

from collections.abc import Iterator

from twofold.contracts.results import premises
from twofold.core import format_si, format_usd
from twofold.report.building import heat_pieces, more_building_lines, site_text
from twofold.report.figures import percent, ranged
from twofold.report.lines import heading, table


def building_tables(building: premises.Building) -> list[list[str]]:
    """One table for each question about the building; those without rows are left out."""
    made = [
        more_building_lines(building),
        _limits(building),
        _heat(building),
        *_cooling(building),
        _nodes(building),
        *_parts(building),
        _storage(building),
        _power(building),
        _caps(building),
        _hours(building),
        _sites(building),
        _users(building),
        [
            "PROVIDER     what rented machines need",
            *table(("of", "needed"), [[each.what, each.value] for each in building.requirements]),
        ],
        _bill(building),
    ]
    return [block for block in made if len(block) > 2 or (block and block[0].startswith("CARBON"))]


def _limits(building: premises.Building) -> list[str]:
    limits = list(dict.fromkeys(limit.limit for group in building.racks for limit in group.limits))
    rows = []
    for group in building.racks:
        by_limit = {limit.limit: str(limit.nodes) for limit in group.limits}
        rows.append([group.name, group.node, *(by_limit.get(limit, "–") for limit in limits), group.binding])
    headings = ["run or service", "server", *limits, "bound by"]
    numbers = range(2, 2 + len(limits))
    return [
        "RACKS        servers that one rack holds, by each limit",
        *table(headings, rows, numbers=numbers),
    ]


def _heat(building: premises.Building) -> list[str]:
    """Runs of equal racks on one line each."""
    lines: list[list[str]] = []
    first = 0
    for index, rack in enumerate(building.heat, 1):
        own = building.heat[first]
        is_last = index == len(building.heat)
        if is_last or (building.heat[index].holds, building.heat[index].hot) != (own.holds, own.hot):
            span = f"{first}–{rack.index}" if rack.index > first else str(first)
            held = ", ".join(f"{count} × {name}" for name, count in rack.holds.items())
            kw = [f"{watts / 1e3:.3g}" for watts in (rack.planned_w, rack.heat_w)]
            lines.append([span, held, *kw, rack.binding, "hot" if rack.hot else ""])
            first = index
    headings = ["racks", "servers", "planned kW", "in use kW", "full first", ""]
    return [*heading("HEAT", heat_pieces(building)), *table(headings, lines, numbers=(2, 3))]


def _cooling(building: premises.Building) -> Iterator[list[str]]:
    for choice in building.cooling:
        rows = [
            [
                way.kind.replace("_", " "),
                f"{way.nodes_per_rack}",
                f"{way.rack_count:,}" if way.feasible else "–",
                f"{way.pue_ratio:.2f}",
                f"{format_usd(way.usd_per_year)}/y" if way.feasible else "–",
                way.why.partition(": ")[2],
            ]
            for way in choice.ways
        ]
        headings = ["cooling", "a rack", "racks", "PUE", "building and energy", "limit"]
        yield [f"COOLING      {choice.name}", *table(headings, rows, numbers=(1, 2, 3))]


def _nodes(building: premises.Building) -> list[str]:
    rows = []
    for node in building.nodes:
        largest = sorted(node.parts.items(), key=lambda part: -part[1])[:5]
        parts = " · ".join(f"{name} {watts / 1e3:.2g}" for name, watts in largest)
        stated = f"{node.stated_w / 1e3:.3g}" if node.stated_w is not None else "–"
        in_use = ranged(node.in_use_w)
        rows.append(
            [node.node, stated, f"{node.modelled_w / 1e3:.3g}", in_use, f"{node.idle_w / 1e3:.2g}", parts]
        )
    headings = ["server", "stated kW", "modelled kW", "in use", "idle kW", "parts, kW"]
    return ["SERVERS", *table(headings, rows, numbers=(1, 2, 4))]


def _parts(building: premises.Building) -> Iterator[list[str]]:
    for network in building.networks:
        rows = [
            [
                part.part,
                part.kind,
                f"{part.count:,}",
                format_usd(part.unit_usd) if part.unit_usd is not None else "–",
                format_usd(part.unit_usd * part.count) if part.unit_usd is not None else "–",
            ]
            for part in network.parts
        ]
        pieces = [f"{network.name}: {network.shape}, {network.note}"]
        if network.survives:
            pieces.append(f"may lose {network.survives}")
        if network.cable_m_longest:
            pieces.append(f"longest cable {network.cable_m_longest:.0f} m")
        headings = ["part", "kind", "count", "each", "together"]
        yield [*heading("NETWORK", pieces), *table(headings, rows, numbers=(2, 3, 4))]


def _storage(building: premises.Building) -> list[str]:
    rows = [
        [
            store.name,
            store.kind.replace("_", " "),
            f"{format_si(store.read_bytes_per_s, 'B/s')} {store.read_term}",
            f"{format_si(store.write_bytes_per_s, 'B/s')} {store.write_term}",
            f"{store.unit_count:,} × {store.unit} {store.product}",
            store.bound,
            format_usd(store.usd_per_month),
        ]
        for store in building.storage
    ]
    headings = ["of", "kind", "reads", "writes", "cheapest that does", "sized by", "a month"]
    return ["STORAGE", *table(headings, rows, numbers=(6,))]


def _power(building: premises.Building) -> list[str]:
    power = building.power
    steps = {swing.name: swing for swing in power.swings}
    rows = []
    for feed in power.feeds:
        swing = steps[feed.name]
        rows.append(
            [
                feed.name,
                f"{feed.rack_w / 1e3:.3g} kW",
                f"{feed.strip_count} × {feed.amps} A a side",
                f"{percent(feed.load_fraction)}, {percent(feed.load_alone_fraction)} alone",
                format_si(swing.swing_w, "W"),
                format_si(swing.phase_swing_w, "W") if swing.phase_swing_w else "–",
                format_si(swing.ramp_s, "s"),
                format_si(swing.buffer_j / 3600, "Wh"),
            ]
        )
    headings = ["of", "rack", "PDU", "load (≤ 80 %)", "step", "in a step", "ramp", "buffer"]
    pieces = [
        f"{format_si(power.it_w, 'W')} provisioned",
        f"{format_si(power.expected_peak_w, 'W')} expected at the peak",
        f"UPS {format_si(power.ride_through_j / 3600, 'Wh')}",
        f"tier {power.tier}, {power.scheme}: {power.down_h_per_year:.1f} h/y down, "
        f"×{power.redundancy_capex_factor:g} to build",
    ]
    return [*heading("POWER", pieces), *table(headings, rows)]


def _caps(building: premises.Building) -> list[str]:
    rows = [
        [
            cap.name,
            percent(cap.cap_fraction),
            format_si(cap.saved_w, "W"),
            percent(cap.throughput_fraction),
            percent(cap.energy_per_work_fraction),
        ]
        for cap in building.power.caps
    ]
    headings = ["capped", "of the vendor's limit", "saves", "throughput left", "energy for the same work"]
    return ["CAPPING", *table(headings, rows, numbers=(1, 2, 3, 4))]


def _hours(building: premises.Building) -> list[str]:
    kilograms = [f"{grams / 1e3:,.0f}" for grams in building.year.carbon_by_hour_gco2]
    hours = ", ".join(str(hour) for hour in building.year.cleanest_hours)
    first, *rest = (f"{hour} h {kilogram}" for hour, kilogram in enumerate(kilograms))
    return heading("CARBON", [f"kg of a mean day: {first}", *rest, f"cleanest {hours} h"])


def _sites(building: premises.Building) -> list[str]:
    pieces = [site_text(number, each) for number, each in enumerate(building.sites, 1)]
    return [
        *heading("SITES", [f"data set {format_si(building.dataset_bytes, 'B')}"]),
        *(f"  {piece}"[:100] for piece in pieces),
    ]


def _users(building: premises.Building) -> list[str]:
    rows = [
        [
            each.users,
            each.site,
            f"{1e3 * each.rtt_s:.0f} ms",
            format_si(each.ttft_s, "s") if each.ttft_s is not None else "–",
        ]
        for each in building.users
    ]
    pieces = ["round trips of users, and the first token with them"]
    if building.split and building.split_budget_s:
        room = f"{1e3 * building.split_budget_s:.0f} ms"
        pieces.append(f"goals leave {room}: {', '.join(building.split)} would do")
    headings = ["users", "served in", "RTT", "TTFT p95 with it"]
    return [*heading("USERS", pieces), *table(headings, rows, numbers=(2, 3))]


def _bill(building: premises.Building) -> list[str]:
    rows = [
        [
            item.what,
            f"{item.quantity:,.0f} {item.unit}",
            format_usd(item.unit_usd),
            f"{item.total_usd:,.2f}",
        ]
        for item in building.bill
    ]
    rows = [*rows, ["together", "", "", f"{building.bill_usd:,.2f}"]] if rows else []
    headings = ["owned", "quantity", "each", "USD"]
    return ["BILL         of the building", *table(headings, rows, numbers=(1, 2, 3))]
