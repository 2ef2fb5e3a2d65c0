"""Sites: cheap energy wins, a grid that is too small loses, and users are as far as they are."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.building.sites import Site, rank_sites, site_of, split_users, transfer_s, user_latencies
from twofold.catalog.catalog import load_catalog

CATALOG = load_catalog()
EAST, WEST, NORTH = (
    site_of(CATALOG, CATALOG.region(name)) for name in ("aws:us-east-1", "aws:us-west-2", "aws:eu-north-1")
)
REGIONS = ["aws:us-east-1", "aws:eu-west-1", "aws:ap-northeast-1"]


def names(sites: list[Site], it_w: float = 1e6) -> list[tuple[str, bool]]:
    ranks = rank_sites(CATALOG, sites, it_w, peak_it_w=1.2 * it_w, rack_w=40e3)
    return [(rank.name, rank.feasible) for rank in ranks]


def test_the_ranking_follows_the_price_of_energy_and_the_cap_of_the_grid() -> None:
    cheap_east = replace(EAST, electricity_usd_per_kwh=0.02)
    assert names([cheap_east, WEST])[0] == ("aws:us-east-1", True)
    assert names([EAST, WEST])[0] == ("aws:us-west-2", True)
    capped = replace(WEST, power_cap_w=1e6)
    assert names([EAST, capped]) == [("aws:us-east-1", True), ("aws:us-west-2", False)]


def test_racks_that_a_site_cannot_cool_are_told() -> None:
    ranks = rank_sites(CATALOG, [replace(EAST, rack_limit_w=20e3)], 1e6, peak_it_w=1e6, rack_w=40e3)
    assert not ranks[0].feasible and ranks[0].why == "racks of 40 kW, cooled to 20 kW"


def test_dear_carbon_moves_a_load_to_a_clean_grid() -> None:
    def best(usd_per_t: float) -> str:
        sites = [replace(EAST, electricity_usd_per_kwh=0.03), NORTH]
        ranks = rank_sites(CATALOG, sites, 1e6, peak_it_w=1e6, carbon_usd_per_t=usd_per_t)
        return ranks[0].name

    assert best(0.0) == "aws:us-east-1" and best(500.0) == "aws:eu-north-1"


@given(st.floats(1e4, 1e9))
def test_cost_grows_with_the_load_and_never_turns_the_order_of_equal_sites(it_w: float) -> None:
    dear = replace(EAST, electricity_usd_per_kwh=2 * EAST.electricity_usd_per_kwh, name="dear")
    ranks = rank_sites(CATALOG, [dear, EAST], it_w, peak_it_w=it_w)
    assert [rank.name for rank in ranks] == ["aws:us-east-1", "dear"]
    assert ranks[1].energy_usd_per_year == pytest.approx(2 * ranks[0].energy_usd_per_year)


def test_a_petabyte_over_100_gigabits_takes_more_than_a_day() -> None:
    """10¹⁵ bytes at 80 % of 12.5 GB/s are 100,000 s."""
    assert transfer_s(CATALOG, 1e15, 12.5e9) == pytest.approx(1e5)


def test_each_region_of_users_has_its_sites_nearest_first() -> None:
    told = user_latencies(CATALOG, REGIONS[:2], REGIONS, 0.3)
    assert len(told) == 6
    for user in REGIONS:
        own = [each for each in told if each.users == user]
        assert [each.rtt_s for each in own] == sorted(each.rtt_s for each in own)
        for each in own:
            assert each.ttft_s == pytest.approx(0.3 + CATALOG.rtt_s(user, each.site))


def test_a_tight_budget_takes_a_site_in_every_region_and_a_loose_one_a_single_one() -> None:
    tight = split_users(CATALOG, REGIONS, REGIONS, 0.02)
    loose = split_users(CATALOG, REGIONS, REGIONS, 0.5)
    assert tight and set(tight) == set(REGIONS)
    assert loose and len(loose) == 1
    assert split_users(CATALOG, REGIONS[:1], REGIONS, 0.02) is None


def test_what_is_built_there_decides_its_pue_and_racks() -> None:
    region = CATALOG.region("aws:eu-north-1")  # cold
    air = site_of(CATALOG, region, cooling="air")
    liquid = site_of(CATALOG, region, cooling="direct_to_chip")
    assert liquid.pue_ratio < air.pue_ratio
    assert (air.rack_limit_w, liquid.rack_limit_w) == (20e3, 132e3)
    assert site_of(CATALOG, region).rack_limit_w is None
