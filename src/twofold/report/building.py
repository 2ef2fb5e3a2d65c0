"""The block BUILDING of a plan's screen: racks, networks, storage, power, a year, sites."""

from twofold.contracts.results import premises
from twofold.core.display import format_count, format_si, format_usd
from twofold.report.figures import percent, watt_hours
from twofold.report.lines import both_ends, field, listed

BARS = "▁▂▃▄▅▆▇█"
SHOWN_RACKS = 40
SHOWN_SITES = 1
G_PER_T = 1e6
L_PER_M3 = 1e3


def building_block(building: premises.Building) -> list[str]:
    """The building on about eight lines, for the fleets as planned."""
    power, servers = building.power, sum(group.node_count for group in building.racks)
    racks = len(building.heat)
    left = (
        f"BUILDING   for the fleets above, {servers:,} server{'s' if servers != 1 else ''}: "
        f"{racks:,} rack{'s' if racks != 1 else ''}, {format_si(power.it_w, 'W')} of IT"
    )
    bill = f"{len(building.bill)} lines, {format_usd(building.bill_usd)} with what a year of energy costs"
    right = f"{format_si(power.meter_w, 'W')} at the meter, PUE {power.pue_ratio:.2f}"
    return [
        *both_ends(left, right),
        *_racks(building),
        *field("year", *year_pieces(building)[:1], _idle(building)),
        *field("sites", *_sites(building)),
        *field("bill", bill if building.bill else ""),
        *field("warning", *building.warnings),
    ]


def more_building_lines(building: premises.Building) -> list[str]:
    """What `--details` says first: heat, networks, storage, feeds and steps, water and carbon."""
    return [
        "MORE BUILDING",
        *field("heat", *heat_pieces(building)),
        *field("network", *[_network(each) for each in building.networks]),
        *field("storage", *[_storage(each) for each in building.storage if each.kind == "parallel_fs"]),
        *field("power", *_power(building)),
        *field("year", *year_pieces(building)),
        *field(
            "",
            "whole servers with networks and storage; ENERGY is accelerators times a factor",
        ),
    ]


def heat_pieces(building: premises.Building) -> list[str]:
    """A bar for every rack, as hot as it is in use, and how uneven they are."""
    heat = [rack.heat_w for rack in building.heat]
    if not heat:
        return []
    top = max(heat)
    bars = "".join(BARS[min(int(own / top * len(BARS)), len(BARS) - 1)] for own in heat[:SHOWN_RACKS])
    more = f"… of {len(heat):,} racks" if len(heat) > SHOWN_RACKS else ""
    pieces = [f"{bars}{more} {min(heat) / 1e3:.3g}–{top / 1e3:.3g} kW in use"]
    ratios = {"training": building.training_imbalance_ratio, "serving": building.serving_imbalance_ratio}
    told = [f"{use} {ratio:.2f}" for use, ratio in ratios.items() if ratio is not None]
    pieces.append(f"imbalance {', '.join(told)}")
    hot = [str(rack.index) for rack in building.heat if rack.hot]
    if hot:
        pieces.append(f"hot racks {', '.join(hot[:8])}{' …' if len(hot) > 8 else ''}")
    return pieces


def year_pieces(building: premises.Building) -> list[str]:
    """Energy, its price, water and carbon of a year."""
    year = building.year
    energy, hours = watt_hours(year.meter_j), year.cleanest_hours
    cleanest = f", least at {hours[0]}–{hours[-1] + 1} h" if hours else ""
    return [
        f"{energy}, {format_usd(year.energy_usd.value)} at {year.electricity_usd_per_kwh:.3g} $/kWh",
        f"water {format_count(year.water_l / L_PER_M3)} m³",
        f"{format_count(year.carbon_gco2.value / G_PER_T)} t CO2 at {year.grid_gco2_per_kwh:.0f} g/kWh"
        + cleanest,
    ]


def _idle(building: premises.Building) -> str:
    """What of the year's energy is in no run's or service's bill."""
    idle = [each for each in building.bill if each.what.startswith("idle, ") and each.unit == "kWh"]
    kwh = format_si(1e3 * sum(each.quantity for each in idle), "Wh")
    return f"{kwh} of it at rest, billed to nobody" if idle else ""


def site_text(number: int, site: premises.RankedSite) -> str:
    """One place: its rank and what the load costs there, or what it lacks."""
    mark = " (chosen)" if site.chosen else ""
    if not site.feasible:
        return f"– {site.name}{mark}: {site.why}"
    carbon = f"{format_count(site.carbon_gco2_per_year / G_PER_T)} t CO2"
    return (
        f"{number} {site.name}{mark} {site.electricity_usd_per_kwh:.3g} $/kWh, "
        f"{format_usd(site.energy_usd_per_year)}/y, {carbon}, data in {format_si(site.transfer_s, 's')}"
    )


def _racks(building: premises.Building) -> list[str]:
    return listed(
        building.racks,
        ("racks of", lambda group: group.name),
        ("servers", lambda group: f"{group.node_count:,} × {group.node}"),
        (">racks", lambda group: f"{group.rack_count:,}"),
        (">a rack", lambda group: f"{group.nodes_per_rack}"),
        ("bound by", lambda group: group.binding),
        (">kW", lambda group: f"{group.rack_w / 1e3:.3g}"),
        ("band, kW", lambda g: f"{g.band} {g.band_low_w / 1e3:.0f}–{g.band_high_w / 1e3:.0f}"),
        ("cooling, kW", lambda g: f"{g.cooling.replace('_', ' ')} ≤ {g.cooling_limit_w / 1e3:.0f}"),
    )


def _network(network: premises.BuiltNetwork) -> str:
    if not network.switch:
        return f"{network.name}: {network.note}"
    switches = " + ".join(f"{count:,}" for count in network.switches)
    length = f" of {network.cable_m_mean:.1f} m" if network.cable_m_mean else ""
    usd = f", {format_usd(network.usd)}" if network.usd is not None else ""
    return (
        f"{network.name}: {network.shape}, {switches} {network.switch.split(' (')[0]}, "
        f"{network.cable_count:,} cables{length}{usd}"
    )


def _storage(store: premises.BuiltStorage) -> str:
    rate, term = max((store.read_bytes_per_s, store.read_term), (store.write_bytes_per_s, store.write_term))
    return (
        f"{store.name}: {format_si(rate, 'B/s')} for the {term}, {format_si(store.capacity_bytes, 'B')} of "
        f"{store.product}, {format_usd(store.usd_per_month)}/month"
    )


def _power(building: premises.Building) -> list[str]:
    power = building.power
    return [
        *(
            f"PDU load {percent(feed.load_fraction)}, {percent(feed.load_alone_fraction)} with one side lost "
            f"(≤ 80 %) on {feed.strip_count} × {feed.amps} A a side"
            for feed in sorted(power.feeds, key=lambda feed: -feed.rack_w)[:1]
        ),
        *(f"{each.name} steps {format_si(each.swing_w, 'W')}" for each in power.swings if each.swing_w > 0),
        f"PUE {power.pue_ratio:.2f} ({power.pue_source})",
        f"tier {power.tier} ({power.scheme}) {100 * power.availability_fraction:.3f} %",
    ]


def _sites(building: premises.Building) -> list[str]:
    """The best place and those in use: for what trains, where anything does; serving goes to its users."""
    shown = [*building.sites[:SHOWN_SITES], *(each for each in building.sites[SHOWN_SITES:] if each.chosen)]
    texts = [site_text(number, each) for number, each in enumerate(building.sites, 1) if each in shown]
    runs = [group.name for group in building.racks if group.use == "training"]
    if texts and 0 < len(runs) < len(building.racks):
        texts[0] = f"for {', '.join(runs) if len(runs) < 3 else 'what trains'}: {texts[0]}"
    return texts
