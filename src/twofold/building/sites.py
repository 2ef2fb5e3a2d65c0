"""Sites for a plan's steady load, round trips to its users, and the fewest regions that serve them."""

from collections.abc import Sequence

from twofold.answer import Context, all_asked_regions, in_regions
from twofold.building.entries import Entry, usd_per_kwh
from twofold.building.power import it_power_w, mean_it_w
from twofold.catalog import Region
from twofold.contracts.results import BuiltNetwork, Plan, RackGroup, RankedSite, UserRoundTrip
from twofold.contracts.spec import SiteKeys
from twofold.core import InputError
from twofold.facility import (
    CoolingKind,
    Site,
    find_regime,
    rank_sites,
    site_of,
    split_users,
    user_latencies,
)

SHOWN = 6  # sites besides those that the plan uses
SPLIT_REGIONS = 24  # that choices of a few are made from: nearest to the users


def ranked(
    found: Sequence[Entry],
    groups: Sequence[RackGroup],
    built: Sequence[BuiltNetwork],
    kinds: dict[str, CoolingKind],
    dataset_bytes: float,
    context: Context,
) -> tuple[RankedSite, ...]:
    """Places for what trains, for all where nothing does: the spec's sites, or its providers' regions."""
    steady = [entry for entry in found if entry.servers.use == "training"] or list(found)
    used = {f"{each.region.provider}:{each.region.name}" for each in steady if each.region}
    racks = [group.rack_w for group in groups if group.name in {each.name for each in steady}]
    ranks = rank_sites(
        context.catalog,
        _sites(steady, kinds, context),
        sum(mean_it_w(entry, built, context).value for entry in steady),
        peak_it_w=sum(it_power_w(entry, built, context) for entry in steady),
        rack_w=max(racks, default=0.0),
        dataset_bytes=dataset_bytes,
        used=used,
    )
    return tuple(
        rank
        for index, rank in enumerate(ranks)
        if index < SHOWN or rank.chosen or context.spec.facility.sites
    )


def round_trips(plan: Plan, found: Sequence[Entry], context: Context) -> tuple[UserRoundTrip, ...]:
    """From every region of users to every region that serves: the round trip, and the first token with it."""
    users, sites = _user_regions(plan, context), _serving_regions(plan, found, context)
    return user_latencies(context.catalog, sites, users, _tightest_ttft_s(plan))


def fewest_regions(
    plan: Plan, found: Sequence[Entry], context: Context
) -> tuple[tuple[str, ...], float | None]:
    """The fewest regions of the services' providers that the goals leave room for, and that room."""
    users, spare_s = _user_regions(plan, context), _spare_s(plan)
    if not users or spare_s is None or spare_s <= 0:
        return (), spare_s
    providers = {entry.provider for entry in found if entry.servers.use == "serving"} - {""}
    public = _allowed(context)
    names = [_name(region) for region in public if region.provider in providers]
    names = names or [_name(region) for region in public]
    names.sort(key=lambda name: min(context.catalog.rtt_s(user, name) for user in users))
    chosen = split_users(context.catalog, names[:SPLIT_REGIONS], users, spare_s)
    return chosen or (), spare_s


def _sites(steady: Sequence[Entry], kinds: dict[str, CoolingKind], context: Context) -> tuple[Site, ...]:
    told = context.spec.facility.sites
    if told:
        return tuple(_told(each, context) for each in told)
    providers = {entry.provider for entry in steady if not entry.owned} - {""}
    regions: dict[str, Region] = {_name(each.region): each.region for each in steady if each.region}
    public = _allowed(context)
    theirs = [region for region in public if region.provider in providers]
    regions |= {_name(region): region for region in theirs or public if _name(region) not in regions}
    cap, owned = context.spec.facility.power_cap_w, all(entry.owned for entry in steady)
    own = {_name(entry.region): entry for entry in steady if entry.region}
    return tuple(
        site_of(
            context.catalog,
            region,
            usd_per_kwh=usd_per_kwh(region, context) if name in own else None,
            power_cap_w=cap if name in own or not own else None,
            cooling=kinds[steady[0].name] if owned else None,
        )
        for name, region in regions.items()
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


def _told(each: SiteKeys, context: Context) -> Site:
    return site_of(
        context.catalog,
        context.catalog.region(each.region),
        name=each.name,
        usd_per_kwh=each.electricity_usd_per_kwh,
        power_cap_w=each.power_cap_w,
        cooling=each.cooling,
        backbone_bytes_per_s=each.backbone_bytes_per_s,
    )


def _user_regions(plan: Plan, context: Context) -> tuple[str, ...]:
    names = dict.fromkeys(name for service in plan.serving for name in service.regions)
    return tuple(dict.fromkeys(filter(None, (_known(name, context) for name in names))))


def _serving_regions(plan: Plan, found: Sequence[Entry], context: Context) -> tuple[str, ...]:
    """The regions that services are planned in, and that their price is of."""
    serving = [each for each in found if each.servers.use == "serving"]
    rented = [_name(each.region) for each in serving if each.region]
    return tuple(dict.fromkeys([*_user_regions(plan, context), *rented]))


def _known(name: str, context: Context) -> str | None:
    try:
        return _name(context.catalog.region(name))
    except InputError:
        return None


def _tightest_ttft_s(plan: Plan) -> float | None:
    found = [
        each.percentiles["ttft_p95"].value
        for service in plan.serving
        for each in service.classes
        if "ttft_p95" in each.percentiles
    ]
    return min(found, default=None)


def _spare_s(plan: Plan) -> float | None:
    """What the goals for the first token leave for the way: the least over classes."""
    left = [
        goal.limit_s - goal.predicted.value
        for service in plan.serving
        for each in service.classes
        for goal in each.slos
        if goal.metric == "ttft_p95" and goal.predicted
    ]
    return min(left, default=None)


def _name(region: Region) -> str:
    return f"{region.provider}:{region.name}"
