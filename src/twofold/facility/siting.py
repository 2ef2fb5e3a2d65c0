"""Where to build or rent: sites ranked for training, round trips to users, what goes over the backbone."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import combinations

from twofold.catalog import Catalog, Region
from twofold.contracts.results import RankedSite, UserRoundTrip
from twofold.core import YEAR_H
from twofold.facility.cooling import Climate, CoolingKind, climate_of, cooling_limit_w, pue, wue_l_per_kwh
from twofold.facility.figures import figure

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
    government: bool = False


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
        region.government,
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
) -> tuple[RankedSite, ...]:
    """Sites for a steady load, cheapest year of energy and carbon first; those that lack something last.

    Formula  year = IT·8760·PUE·price + carbon·carbon price; feasible: peak·PUE ≤ cap, rack ≤ its limit
    Why      Training hardly cares where its users are: energy, a grid connection and cooling decide.
    Units    USD a year, W at the meter.
    Source   catalogue: `regions`; a user's own sites.
    """
    ranks = [_rank(catalog, site, mean_it_w, peak_it_w, rack_w, dataset_bytes, used) for site in sites]

    def order(rank: RankedSite) -> tuple[bool, float, str]:
        carbon_usd = rank.carbon_gco2_per_year / G_PER_T * carbon_usd_per_t
        return not rank.feasible, rank.energy_usd_per_year + carbon_usd, rank.name

    return tuple(sorted(ranks, key=order))


def transfer_s(catalog: Catalog, size_bytes: float, link_bytes_per_s: float) -> float:
    """Seconds to move data over a backbone link, at the share of it that long transfers reach."""
    share = figure(catalog, "backbone", "share of a link that a transfer reaches").value
    return size_bytes / (link_bytes_per_s * share)


def user_latencies(
    catalog: Catalog, sites: Sequence[str], users: Sequence[str], ttft_s: float | None
) -> tuple[UserRoundTrip, ...]:
    """For each region of users every site, nearest first: the round trip added to the time to first token.

    Formula  TTFT at the user = TTFT at the site + RTT
    Why      The request travels one way, the first token the other.
    Source   catalogue: `rtt`, measured pairs, else distance through fibre.
    """
    return tuple(
        UserRoundTrip(user, site, rtt, None if ttft_s is None else ttft_s + rtt)
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


def _rank(
    catalog: Catalog,
    site: Site,
    mean_it_w: float,
    peak_it_w: float,
    rack_w: float,
    dataset_bytes: float,
    used: Container[str],
) -> RankedSite:
    meter_w = peak_it_w * site.pue_ratio
    it_kwh = mean_it_w / W_PER_KW * YEAR_H
    meter_kwh = it_kwh * site.pue_ratio
    lacks = []
    if site.power_cap_w is not None and meter_w > site.power_cap_w:
        lacks.append(f"{meter_w / 1e6:.3g} MW wanted, {site.power_cap_w / 1e6:.3g} MW there")
    if site.rack_limit_w is not None and rack_w > site.rack_limit_w:
        lacks.append(f"racks of {rack_w / 1e3:.3g} kW, cooled to {site.rack_limit_w / 1e3:.3g} kW")
    return RankedSite(
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
