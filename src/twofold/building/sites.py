"""Sites for a plan's steady load, round trips to its users, and the fewest regions that serve them."""

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

from twofold.answer.context import Context
from twofold.answer.offers import in_regions
from twofold.answer.supply_rules import all_asked_regions
from twofold.building.cooling import Climate, CoolingKind, climate_of, cooling_limit_w, pue, wue_l_per_kwh
from twofold.building.entries import Entry, electricity
from twofold.building.power import Housed, it_power_w, mean_it_w
from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure
from twofold.catalog.regimes import find_regime
from twofold.catalog.types import Region
from twofold.contracts.results import premises
from twofold.contracts.results.plan import Plan
from twofold.core.errors import InputError
from twofold.core.quantity import YEAR_H

SHOWN = 6  # sites besides those that the plan uses
SPLIT_REGIONS = 24  # that choices of a few are made from: nearest to the users
W_PER_KW = 1e3
G_PER_T = 1e6


@dataclass(frozen=True, slots=True)
class Site:
    """A place that could hold the machines. What a region of the catalogue states, or a user says."""

    name: str
    region: str  # `provider:region` for round trips; "" where it is of no provider
    electricity_usd_per_kwh: float
    grid_gco2_per_kwh: float
    pue_ratio: float
    wue_l_per_kwh: float
    power_cap_w: float | None  # at the meter; None: as much as wanted
    rack_limit_w: float | None  # heat that a rack may give off; None: as much as wanted
    backbone_bytes_per_s: float


def site_of(
    catalog: Catalog,
    region: Region,
    *,
    name: str = "",
    usd_per_kwh: float | None = None,
    power_cap_w: float | None = None,
    cooling: CoolingKind | None = None,
    backbone_bytes_per_s: float | None = None,
) -> Site:
    """A site at a region of the catalogue. With `cooling` its PUE, water and rack limit are that kind's in
    the climate of its latitude, else what the region's provider publishes."""
    climate: Climate = climate_of(region.latitude_deg)
    link = figure(catalog, "backbone", "link of one site").value
    own = f"{region.provider}:{region.name}"
    return Site(
        name or own,
        own,
        region.electricity_usd_per_kwh if usd_per_kwh is None else usd_per_kwh,
        region.grid_gco2_per_kwh,
        pue(catalog, cooling, climate) if cooling else region.pue,
        wue_l_per_kwh(catalog, cooling, climate) if cooling else region.wue_l_per_kwh,
        power_cap_w,
        cooling_limit_w(catalog, cooling).value if cooling else None,
        link if backbone_bytes_per_s is None else backbone_bytes_per_s,
    )


def rank_sites(
    catalog: Catalog,
    sites: Sequence[Site],
    mean_it_w: float,
    *,
    peak_it_w: float,
    rack_w: float = 0.0,
    dataset_bytes: float = 0.0,
    carbon_usd_per_t: float = 0.0,
    used: Container[str] = (),
) -> tuple[premises.RankedSite, ...]:
    """Sites for a steady load, cheapest year of energy and carbon first; those that lack something last.

    Formula  year = IT·8760·PUE·price + carbon·carbon price; feasible: peak·PUE ≤ cap, rack ≤ its limit
    Why      Training hardly cares where its users are: energy, a grid connection and cooling decide.
    Units    USD a year, W at the meter.
    Source   catalogue: `regions`; a user's own sites.
    """
    ranks = []
    it_kwh = mean_it_w / W_PER_KW * YEAR_H
    for site in sites:
        meter_w, meter_kwh = peak_it_w * site.pue_ratio, it_kwh * site.pue_ratio
        lacks = []
        if site.power_cap_w is not None and meter_w > site.power_cap_w:
            lacks.append(f"{meter_w / 1e6:.3g} MW wanted, {site.power_cap_w / 1e6:.3g} MW there")
        if site.rack_limit_w is not None and rack_w > site.rack_limit_w:
            lacks.append(f"racks of {rack_w / 1e3:.3g} kW, cooled to {site.rack_limit_w / 1e3:.3g} kW")
        rank = premises.RankedSite(
            site.name,
            site.region,
            not lacks,
            " · ".join(lacks),
            meter_w,
            site.power_cap_w,
            site.electricity_usd_per_kwh,
            meter_kwh * site.electricity_usd_per_kwh,
            meter_kwh * site.grid_gco2_per_kwh,
            it_kwh * site.wue_l_per_kwh,
            transfer_s(catalog, dataset_bytes, site.backbone_bytes_per_s),
            site.region in used,
        )
        carbon_usd = rank.carbon_gco2_per_year / G_PER_T * carbon_usd_per_t
        ranks.append((bool(lacks), rank.energy_usd_per_year + carbon_usd, rank.name, rank))
    return tuple(rank for *_, rank in sorted(ranks, key=lambda each: each[:3]))


def transfer_s(catalog: Catalog, size_bytes: float, link_bytes_per_s: float) -> float:
    """Seconds to move data over a backbone link, at the share of it that long transfers reach."""
    share = figure(catalog, "backbone", "share of a link that a transfer reaches").value
    return size_bytes / (link_bytes_per_s * share)


def user_latencies(
    catalog: Catalog, sites: Sequence[str], users: Sequence[str], ttft_s: float | None
) -> tuple[premises.UserRoundTrip, ...]:
    """For each region of users every site, nearest first: the round trip added to the time to first token.

    Formula  TTFT at the user = TTFT at the site + RTT
    Why      The request travels one way, the first token the other.
    Source   catalogue: `rtt`, measured pairs, else distance through fibre.
    """
    return tuple(
        premises.UserRoundTrip(user, site, rtt, None if ttft_s is None else ttft_s + rtt)
        for user in users
        for rtt, site in sorted((catalog.rtt_s(user, site), site) for site in sites)
    )


def split_users(
    catalog: Catalog, sites: Sequence[str], users: Sequence[str], budget_s: float
) -> tuple[str, ...] | None:
    """The fewest sites such that every region of users has one within the round-trip budget; of as many,
    those with the least sum of round trips. None where no choice of all sites does.

    Limits   Tries every choice: for tens of sites and a handful of regions.
    """
    rtts = {(user, site): catalog.rtt_s(user, site) for user in users for site in sites}
    for count in range(1, min(len(sites), len(users)) + 1):
        found = [
            (sum(min(rtts[user, site] for site in chosen) for user in users), chosen)
            for chosen in combinations(sites, count)
            if all(min(rtts[user, site] for site in chosen) <= budget_s for user in users)
        ]
        if found:
            return min(found)[1]
    return None


def ranked(housed: Housed, dataset_bytes: float) -> tuple[premises.RankedSite, ...]:
    """Places for what trains, for all where nothing does: the spec's sites, or its providers' regions."""
    context = housed.context
    steady = [entry for entry in housed.entries if entry.servers.use == "training"] or [*housed.entries]
    if not context.spec.facility.sites:  # where one's own machines stand is nobody's to say but the spec's
        steady = [entry for entry in steady if entry.region or not entry.owned]
    if not steady:
        return ()
    names = {entry.name for entry in steady}
    ranks = rank_sites(
        context.catalog,
        _sites(steady, housed),
        sum(mean_it_w(entry, housed).value for entry in steady),
        peak_it_w=sum(it_power_w(entry, housed) for entry in steady),
        rack_w=max((group.rack_w for group in housed.groups if group.name in names), default=0.0),
        dataset_bytes=dataset_bytes,
        used={_name(entry.region) for entry in steady if entry.region},
    )
    shown = len(ranks) if context.spec.facility.sites else SHOWN
    return tuple(rank for index, rank in enumerate(ranks) if index < shown or rank.chosen)


def round_trips(plan: Plan, found: Sequence[Entry], context: Context) -> tuple[premises.UserRoundTrip, ...]:
    """From every region of users to every region that serves: the round trip, and the first token with it.

    Regions that serve are those that services are planned in, and that their price is of.
    """
    users = _user_regions(plan, context)
    rented = [_name(each.region) for each in found if each.servers.use == "serving" and each.region]
    ttfts = [
        each.percentiles["ttft_p95"].value
        for service in plan.serving
        for each in service.classes
        if "ttft_p95" in each.percentiles
    ]
    sites = tuple(dict.fromkeys([*users, *rented]))
    return user_latencies(context.catalog, sites, users, min(ttfts, default=None))


def fewest_regions(
    plan: Plan, found: Sequence[Entry], context: Context
) -> tuple[tuple[str, ...], float | None]:
    """The fewest regions of the services' providers that the goals leave room for, and that room.

    The room is what the goals for the first token leave for the way: the least over classes.
    """
    left = [
        goal.limit_s - goal.predicted.value
        for service in plan.serving
        for each in service.classes
        for goal in each.slos
        if goal.metric == "ttft_p95" and goal.predicted
    ]
    users, spare_s = _user_regions(plan, context), min(left, default=None)
    if not users or spare_s is None or spare_s <= 0:
        return (), spare_s
    providers = {entry.provider for entry in found if entry.servers.use == "serving"} - {""}
    public = _allowed(context)
    names = [_name(region) for region in public if region.provider in providers]
    names = names or [_name(region) for region in public]
    names.sort(key=lambda name: min(context.catalog.rtt_s(user, name) for user in users))
    chosen = split_users(context.catalog, names[:SPLIT_REGIONS], users, spare_s)
    return chosen or (), spare_s


def _sites(steady: Sequence[Entry], housed: Housed) -> tuple[Site, ...]:
    context, told = housed.context, housed.context.spec.facility
    if told.sites:
        return tuple(
            site_of(
                context.catalog,
                context.catalog.region(each.region),
                name=each.name,
                usd_per_kwh=each.electricity_usd_per_kwh,
                power_cap_w=each.power_cap_w,
                cooling=each.cooling,
                backbone_bytes_per_s=each.backbone_bytes_per_s,
            )
            for each in told.sites
        )
    providers = {entry.provider for entry in steady if not entry.owned} - {""}
    own = {_name(each.region): each.region for each in steady if each.region}
    public = _allowed(context)
    theirs = [region for region in public if region.provider in providers]
    cooling = housed.cooling(steady[0]) if all(entry.owned for entry in steady) else None
    return tuple(
        site_of(
            context.catalog,
            region,
            usd_per_kwh=electricity([region], context).usd if name in own else None,
            power_cap_w=told.power_cap_w if name in own or not own else None,
            cooling=cooling,
        )
        for name, region in ({_name(region): region for region in theirs or public} | own).items()
    )


def _allowed(context: Context) -> list[Region]:
    """Regions that the spec's rules permit, else that anybody may use; of these those that the spec asks.

    Where rules bind, no others: where nothing is authorised there is only a site of one's own.
    """
    regions, rules = context.catalog.regions(), context.spec.compliance
    if rules is None:
        usual = [region for region in regions if not region.government]
    else:
        regime = find_regime(context.catalog, rules.regime)
        rows = context.catalog.authorisations(regime.name) if regime.rented else ()
        places = {f"{row.provider}:{row.region}".lower() for row in rows}
        usual = [region for region in regions if _name(region).lower() in places]
    asked = all_asked_regions(context.spec)
    inside = [each for each in usual if in_regions(context.catalog, each.provider, each.name, asked)]
    return inside or usual


def _user_regions(plan: Plan, context: Context) -> tuple[str, ...]:
    """The regions of users that the table knows."""
    found = []
    for name in dict.fromkeys(name for service in plan.serving for name in service.regions):
        with suppress(InputError):
            found.append(_name(context.catalog.region(name)))
    return tuple(dict.fromkeys(found))


def _name(region: Region) -> str:
    return f"{region.provider}:{region.name}"
