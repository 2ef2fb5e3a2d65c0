"""What `twofold plan --details` adds about the building: limits, cooling, parts, power, sites, users."""

from collections.abc import Iterator

from twofold.contracts.results import premises
from twofold.core.display import format_si, format_usd
from twofold.report.building import heat_pieces, more_building_lines, site_text
from twofold.report.figures import percent, ranged
from twofold.report.lines import heading, listed, table


def building_tables(building: premises.Building) -> list[list[str]]:
    """One table for each question about the building; those without rows are left out."""
    year = building.year
    hours = [f"{hour} h {grams / 1e3:,.0f}" for hour, grams in enumerate(year.carbon_by_hour_gco2)]
    cleanest = ", ".join(map(str, year.cleanest_hours))
    made = [
        more_building_lines(building),
        _limits(building),
        _heat(building),
        *_cooling(building),
        _nodes(building),
        *_parts(building),
        _storage(building),
        _power(building.power),
        _caps(building),
        heading("CARBON", f"kg of a mean day: {hours[0]}", *hours[1:], f"cleanest {cleanest} h"),
        [
            *heading("SITES", f"data set {format_si(building.dataset_bytes, 'B')}"),
            *(f"  {site_text(number, each)}"[:100] for number, each in enumerate(building.sites, 1)),
        ],
        _users(building),
        [
            "PROVIDER     what rented machines need",
            *listed(
                building.requirements, ("of", lambda each: each.what), ("needed", lambda each: each.value)
            ),
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
    lines = table(headings, rows, numbers=range(2, 2 + len(limits)))
    return ["RACKS        servers that one rack holds, by each limit", *lines]


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
    return [*heading("HEAT", *heat_pieces(building)), *table(headings, lines, numbers=(2, 3))]


def _cooling(building: premises.Building) -> Iterator[list[str]]:
    for choice in building.cooling:
        lines = listed(
            choice.ways,
            ("cooling", lambda way: way.kind.replace("_", " ")),
            (">a rack", lambda way: f"{way.nodes_per_rack}"),
            (">racks", lambda way: f"{way.rack_count:,}" if way.feasible else "–"),
            (">PUE", lambda way: f"{way.pue_ratio:.2f}"),
            ("building and energy", lambda way: f"{format_usd(way.usd_per_year)}/y" if way.feasible else "–"),
            ("limit", lambda way: way.why.partition(": ")[2]),
        )
        yield [f"COOLING      {choice.name}", *lines]


def _nodes(building: premises.Building) -> list[str]:
    def parts_text(node: premises.NodeDraw) -> str:
        largest = sorted(node.parts.items(), key=lambda part: -part[1])[:5]
        return " · ".join(f"{name} {watts / 1e3:.2g}" for name, watts in largest)

    lines = listed(
        building.nodes,
        ("server", lambda node: node.node),
        (">stated kW", lambda node: f"{node.stated_w / 1e3:.3g}" if node.stated_w is not None else "–"),
        (">modelled kW", lambda node: f"{node.modelled_w / 1e3:.3g}"),
        ("in use", lambda node: ranged(node.in_use_w)),
        (">idle kW", lambda node: f"{node.idle_w / 1e3:.2g}"),
        ("parts, kW", parts_text),
    )
    return ["SERVERS", *lines]


def _parts(building: premises.Building) -> Iterator[list[str]]:
    for network in building.networks:
        survives = f"may lose {network.survives}" if network.survives else ""
        longest = f"longest cable {network.cable_m_longest:.0f} m" if network.cable_m_longest else ""
        lines = listed(
            network.parts,
            ("part", lambda part: part.part),
            ("kind", lambda part: part.kind),
            (">count", lambda part: f"{part.count:,}"),
            (">each", lambda part: _usd(part.unit_usd)),
            (">together", lambda part: _usd(part.unit_usd and part.unit_usd * part.count)),
        )
        yield [
            *heading("NETWORK", f"{network.name}: {network.shape}, {network.note}", survives, longest),
            *lines,
        ]


def _usd(usd: float | None) -> str:
    return "–" if usd is None else format_usd(usd)


def _storage(building: premises.Building) -> list[str]:
    lines = listed(
        building.storage,
        ("of", lambda store: store.name),
        ("kind", lambda store: store.kind.replace("_", " ")),
        ("reads", lambda store: f"{format_si(store.read_bytes_per_s, 'B/s')} {store.read_term}"),
        ("writes", lambda store: f"{format_si(store.write_bytes_per_s, 'B/s')} {store.write_term}"),
        ("cheapest that does", lambda store: f"{store.unit_count:,} × {store.unit} {store.product}"),
        ("sized by", lambda store: store.bound),
        (">a month", lambda store: format_usd(store.usd_per_month)),
    )
    return ["STORAGE", *lines]


def _power(power: premises.BuiltPower) -> list[str]:
    steps = {swing.name: swing for swing in power.swings}
    lines = listed(
        [(feed, steps[feed.name]) for feed in power.feeds],
        ("of", lambda row: row[0].name),
        ("rack", lambda row: f"{row[0].rack_w / 1e3:.3g} kW"),
        ("PDU", lambda row: f"{row[0].strip_count} × {row[0].amps} A a side"),
        (
            "load (≤ 80 %)",
            lambda row: f"{percent(row[0].load_fraction)}, {percent(row[0].load_alone_fraction)} alone",
        ),
        ("step", lambda row: format_si(row[1].swing_w, "W")),
        ("in a step", lambda row: format_si(row[1].phase_swing_w, "W") if row[1].phase_swing_w else "–"),
        ("ramp", lambda row: format_si(row[1].ramp_s, "s")),
        ("buffer", lambda row: format_si(row[1].buffer_j / 3600, "Wh")),
    )
    head = heading(
        "POWER",
        f"{format_si(power.it_w, 'W')} provisioned",
        f"{format_si(power.expected_peak_w, 'W')} expected at the peak",
        f"UPS {format_si(power.ride_through_j / 3600, 'Wh')}",
        f"tier {power.tier}, {power.scheme}: {power.down_h_per_year:.1f} h/y down, "
        f"×{power.redundancy_capex_factor:g} to build",
    )
    return [*head, *lines]


def _caps(building: premises.Building) -> list[str]:
    lines = listed(
        building.power.caps,
        ("capped", lambda cap: cap.name),
        (">of the vendor's limit", lambda cap: percent(cap.cap_fraction)),
        (">saves", lambda cap: format_si(cap.saved_w, "W")),
        (">throughput left", lambda cap: percent(cap.throughput_fraction)),
        (">energy for the same work", lambda cap: percent(cap.energy_per_work_fraction)),
    )
    return ["CAPPING", *lines]


def _users(building: premises.Building) -> list[str]:
    lines = listed(
        building.users,
        ("users", lambda each: each.users),
        ("served in", lambda each: each.site),
        (">RTT", lambda each: f"{1e3 * each.rtt_s:.0f} ms"),
        (">TTFT p95 with it", lambda each: "–" if each.ttft_s is None else format_si(each.ttft_s, "s")),
    )
    split = ""
    if building.split and building.split_budget_s:
        room = f"{1e3 * building.split_budget_s:.0f} ms"
        split = f"goals leave {room}: {', '.join(building.split)} would do"
    return [*heading("USERS", "round trips of users, and the first token with them", split), *lines]


def _bill(building: premises.Building) -> list[str]:
    rows = [
        (item.what, f"{item.quantity:,.0f} {item.unit}", format_usd(item.unit_usd), f"{item.total_usd:,.2f}")
        for item in building.bill
    ]
    together = [("together", "", "", f"{building.bill_usd:,.2f}")] if rows else []
    lines = table(["owned", "quantity", "each", "USD"], [*rows, *together], numbers=(1, 2, 3))
    return ["BILL         of the building", *lines]
