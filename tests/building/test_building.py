"""The building of a plan: every server stands once, parts add up, and what is asked for changes it."""

import re
from collections.abc import Callable

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.catalog.figures import figure
from twofold.contracts.results.ledger import total_usd
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.premises import Building
from twofold.core.errors import InfeasibleError
from twofold.perf.constants import load_constants

TRAIN = """
name: own
model: llama-3.1-8b
training: {kind: finetune, tokens: 1 Gtok, deadline: 14 d, on: 8x8xH100-SXM}
"""
OWNED = """
name: own
model: llama-3.2-1b
training: {kind: finetune, tokens: 1 Gtok, deadline: 14 d}
supply: {own: [{node: DGX-H100, count: 4, region: aws:us-east-1}]}
"""
SITES = """
  sites:
    - {name: east, region: aws:us-east-1, electricity: 0.09 $/kWh, power_cap: 1 MW}
    - {name: west, region: aws:us-west-2, electricity: PRICE, power_cap: CAP}
"""
NAMES = ("assistant", "moe", "finetune", "portfolio")


def building_of(planned: Callable[[str], Plan], text: str) -> Building:
    found = planned(text).building
    assert found
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_server_of_the_plan_stands_in_a_rack(name: str, examples: dict[str, Plan]) -> None:
    plan = examples[name]
    assert plan.building
    wanted = {part.name: part.machine.node_count for part in (*plan.training, *plan.serving)}
    held = dict.fromkeys(wanted, 0)
    for rack in plan.building.heat:
        for owner, count in rack.holds.items():
            held[owner] += count
    assert held == wanted
    assert [rack.index for rack in plan.building.heat] == list(range(len(plan.building.heat)))


@pytest.mark.parametrize("name", NAMES)
def test_no_rack_passes_its_cooling_and_no_side_its_rating(name: str, examples: dict[str, Plan]) -> None:
    found = examples[name].building
    assert found
    limits = {group.name: group.cooling_limit_w for group in found.racks}
    for rack in found.heat:
        assert rack.planned_w <= min(limits[owner] for owner in rack.holds) * (1 + 1e-9)
        assert rack.heat_w < rack.planned_w
    assert all(feed.load_alone_fraction <= 0.8 for feed in found.power.feeds)
    assert found.warnings == ()


@pytest.mark.parametrize("name", NAMES)
def test_power_adds_up_from_servers_to_the_meter(name: str, examples: dict[str, Plan]) -> None:
    found = examples[name].building
    assert found
    servers_w = sum(rack.planned_w for rack in found.heat)
    assert servers_w < found.power.it_w < 1.2 * servers_w  # networks and storage besides
    assert found.power.meter_w == pytest.approx(found.power.it_w * found.power.pue_ratio)
    assert found.power.in_use_w.value < found.power.expected_peak_w < found.power.it_w
    year = found.year
    # Runs and services may stand in several regions: one whose PUE no table has takes the usual one.
    ratios = found.power.pue_ratio, load_constants().get("pue_ratio")
    assert 0.95 * min(ratios) < year.meter_j.value / year.it_j < 1.05 * max(ratios)
    assert sum(year.carbon_by_hour_gco2) * 365 == pytest.approx(year.carbon_gco2.value)
    assert year.it_j < found.power.it_w * 365 * 86400


def test_the_run_of_512_gpus_is_a_published_half_of_a_superpod(examples: dict[str, Plan]) -> None:
    """64 nodes are two units of 32: 16 leaves, 8 spines, 512 and 512 cables."""
    found = examples["assistant"].building
    assert found
    fabric = next(network for network in found.networks if network.name == "pretrain")
    assert (fabric.shape, fabric.switches, fabric.cable_count) == ("rail-optimised", (16, 8), 1024)
    assert fabric.usd == pytest.approx(sum(part.count * (part.unit_usd or 0.0) for part in fabric.parts))


def test_storage_is_asked_for_by_the_job(examples: dict[str, Plan]) -> None:
    plan = examples["assistant"]
    assert plan.building
    asked = next(store for store in plan.building.storage if store.kind == "parallel_fs")
    checkpoints = plan.training[0].run.checkpoints
    assert asked.write_bytes_per_s == pytest.approx(checkpoints.write_bytes_per_s)
    assert asked.write_term == "checkpoint write"


def test_rented_machines_ask_and_owned_ones_cost(planned: Callable[[str], Plan]) -> None:
    rented, owned = building_of(planned, TRAIN), building_of(planned, OWNED)
    assert rented.bill == () and rented.bill_usd == 0.0
    assert any(": racks" in each.what for each in rented.requirements)
    assert owned.requirements == ()
    assert owned.bill_usd == total_usd(owned.bill) > 0
    assert {"facility", "capex", "energy", "storage"} <= {line.category for line in owned.bill}
    assert all(line.source for line in owned.bill)
    # A run of some hours has its peak in one month of twelve; in the others the servers rest.
    charge = figure(load_catalog(), "tariff", "demand charge").value
    demand_usd = total_usd(line for line in owned.bill if "demand charge" in line.what)
    assert 0.0 < demand_usd < 0.5 * 12 * owned.power.meter_w * charge


SERVE = """
name: night
model: llama-3.1-8b
serving:
  on: H100-SXM
  classes:
    chat:
      traffic: {rate: 40 /s, peak: 20x, profile: consumer, input: 1000 tok, output: 200 tok}
      slo: {ttft_p95: 2 s, tpot_p95: 50 ms}
"""


@pytest.mark.parametrize(
    "own",
    ["", "supply: {own: [{node: DGX-H100, count: 16, region: aws:us-east-1}]}\n"],
    ids=["rented", "own"],
)
def test_servers_draw_in_the_quietest_hour_what_they_draw_with_nobody_asking(
    planned: Callable[[str], Plan], own: str
) -> None:
    found = building_of(planned, SERVE + own)
    hours, (draw,) = found.year.power_by_hour_w, found.nodes
    count = sum(group.node_count for group in found.racks)
    assert min(hours) > count * draw.idle_w * found.power.pue_ratio
    assert min(hours) < sum(hours) / 24 < max(hours) < found.power.meter_w
    assert sum(hours) * 365 * 3600 == pytest.approx(found.year.meter_j.value)


def test_the_bill_of_owned_machines_has_their_energy_though_others_are_rented(
    planned: Callable[[str], Plan],
) -> None:
    both = OWNED.replace("training: {kind", "training:\n  - {name: own, kind").replace(
        "deadline: 14 d}",
        "deadline: 14 d}\n  - {name: out, kind: finetune, tokens: 1 Gtok, on: 2x8xH200-SXM}",
    )
    found, alone = building_of(planned, both), building_of(planned, OWNED)
    kwh = [sum(line.quantity for line in each.bill if line.unit == "kWh") for each in (found, alone)]
    assert kwh[0] == pytest.approx(kwh[1], rel=0.02) and kwh[0] > 0
    assert found.year.meter_j.value / 3.6e6 > kwh[0]


def test_what_the_spec_says_about_racks_holds(planned: Callable[[str], Plan]) -> None:
    free = building_of(planned, TRAIN)
    narrow = building_of(planned, TRAIN + "facility: {rack_power: 12 kW, tier: IV, pue: 1.1x}\n")
    assert free.racks[0].rack_count == 2 and narrow.racks[0].rack_count == 8
    assert narrow.racks[0].binding == "power"
    assert narrow.power.pue_ratio == pytest.approx(1.1) and narrow.power.scheme == "2N"
    assert narrow.power.down_h_per_year < free.power.down_h_per_year
    ports = building_of(planned, TRAIN + "facility: {rack_ports: 16}\n")
    assert (ports.racks[0].nodes_per_rack, ports.racks[0].binding) == (2, "ports")


def test_a_connection_that_is_too_small_is_refused_with_what_binds_and_what_would_fit(
    planned: Callable[[str], Plan], refused: Callable[[str], InfeasibleError]
) -> None:
    meter_w = building_of(planned, TRAIN).power.meter_w
    small, close = (
        refused(f"{TRAIN}facility: {{power_cap: {watts / 1e3:.3f} kW}}\n")
        for watts in (0.5 * meter_w, 0.99 * meter_w)
    )
    assert small.exit_code == 3 and "facility.power_cap" in small.message
    lines = [dict(error.lines) for error in (small, close)]
    assert "at the meter" in lines[0]["needs"] and "power at the meter" in lines[0]["binds"]
    assert "about 4 of the 8 servers" in lines[0]["would fit"] and "cooling" not in lines[0]["would fit"]
    assert "`facility.cooling: " in lines[1]["would fit"]
    kind = lines[1]["would fit"].split("`facility.cooling: ")[1].split("`")[0]
    fits = f"{TRAIN}facility: {{power_cap: {0.99 * meter_w / 1e3:.3f} kW, cooling: {kind}}}\n"
    assert building_of(planned, fits).power.meter_w <= 0.99 * meter_w


TWO = """
name: two
model: llama-3.2-1b
training:
  - {name: here, kind: finetune, tokens: 1 Gtok, on: 1x8xH100-SXM}
  - {name: there, kind: finetune, tokens: 1 Gtok, on: 2x8xH200-SXM}
"""


@pytest.mark.parametrize(
    ("own", "cap", "refuses"),
    [
        ("supply: {own: {node: DGX-H100, count: 1, region: aws:us-east-1}}", "16 kW", None),
        ("supply: {own: {node: DGX-H100, count: 1, region: aws:us-east-1}}", "10 kW", ("here", "1 server")),
        (
            "supply: {simplicity: 0 %, shop: {accelerators: [H100-SXM, H200]}}",
            "16 kW",
            ("there", "2 servers"),
        ),
    ],
    ids=["one's own fits", "one's own does not", "rented"],
)
def test_the_cap_is_of_ones_own_hall_whatever_is_rented_elsewhere(
    planned: Callable[[str], Plan],
    refused: Callable[[str], InfeasibleError],
    own: str,
    cap: str,
    refuses: tuple[str, str] | None,
) -> None:
    text = f"{TWO}{own}\nfacility: {{power_cap: {cap}, cooling: contained_air}}\n"
    if refuses is None:
        found = building_of(planned, text)
        assert found.power.meter_w > 16e3 and "is of one hall" in " ".join(found.warnings)
        return
    lines = dict(refused(text).lines)
    assert re.findall(r"(here|there) [\d.]+ kW \((\d servers?)\)", lines["needs"]) == [refuses]
    assert ("1 of the 2 servers" in lines["would fit"]) == (refuses[0] == "there")
    assert "of the 1 servers" not in lines["would fit"]


@pytest.mark.parametrize(("rules", "held"), [("fedramp-high", True), ("air-gapped", False)])
def test_sites_and_leases_are_authorised_where_rules_bind(
    planned: Callable[[str], Plan], rules: str, held: bool
) -> None:
    where = "" if held else "supply: {own: {node: DGX-H100, count: 8, region: aws:us-east-1}}\n"
    shop = TRAIN.replace("8x8xH100-SXM", "2x8xH100-SXM") if held else TRAIN.replace(", on: 8x8xH100-SXM", "")
    plan = planned(f"{shop}{where}compliance: {rules}\n")
    assert plan.building and plan.compliance
    places = {place.where for place in plan.compliance.permitted}
    rows = load_catalog().authorisations(rules) if held else ()
    may = {f"{row.provider}:{row.region}" for row in rows} | ({"aws:us-east-1"} if not held else set())
    assert {site.region for site in plan.building.sites} <= may and plan.building.sites
    assert bool(places) == held
    leases = plan.portfolio.leases if plan.portfolio else ()
    assert all(
        lease.term == "owned" or any(p in lease.offer for p in ("aws", "azure", "gcp")) for lease in leases
    )


def test_racks_that_hold_nothing_are_told(planned: Callable[[str], Plan]) -> None:
    empty = building_of(planned, TRAIN + "facility: {rack_power: 5 kW}\n")
    assert empty.racks[0].rack_count == 0 and empty.heat == ()
    assert "no rack holds" in empty.warnings[0]


def test_sites_are_ranked_by_energy_within_what_their_grid_gives(planned: Callable[[str], Plan]) -> None:
    def order(price: str, cap: str) -> list[tuple[str, bool]]:
        text = TRAIN + "facility:" + SITES.replace("PRICE", price).replace("CAP", cap)
        return [(site.name, site.feasible) for site in building_of(planned, text).sites]

    assert order("0.04 $/kWh", "1 MW") == [("west", True), ("east", True)]
    assert order("0.12 $/kWh", "1 MW") == [("east", True), ("west", True)]
    assert order("0.04 $/kWh", "50 kW") == [("east", True), ("west", False)]


SERVED = """
serving:
  classes:
    chat: {traffic: {rate: 4 /s}, slo: {ttft_p95: 800 ms, tpot_p95: 60 ms}}
"""


def energy_lines(plan: Plan) -> dict[str, float]:
    assert plan.money
    return {line.what: line.total_usd for line in plan.money.lines if line.category == "energy"}


def test_who_has_machines_of_its_own_pays_for_these_whoever_stands_beside(
    planned: Callable[[str], Plan],
) -> None:
    """A service on a node of its own was counted on the run's, whose demand charge was five times its own."""
    run, both = planned(OWNED), planned(OWNED + SERVED)
    service = planned(
        OWNED.replace("training: {kind: finetune, tokens: 1 Gtok, deadline: 14 d}", "") + SERVED
    )
    assert run.building and both.building and service.building
    assert energy_lines(both) == energy_lines(run) | energy_lines(service)
    assert sum(group.node_count for group in both.building.racks) == 2 and not both.building.warnings
    whole = run.building.year.it_j + service.building.year.it_j
    assert both.building.year.it_j == pytest.approx(whole)
    assert both.money and both.money.owning
    servers = [line.quantity for line in both.money.owning.lines if line.what.startswith("servers")]
    assert sum(servers) == 2


def test_machines_that_several_use_in_turn_stand_once(planned: Callable[[str], Plan]) -> None:
    """Each run alone takes all four nodes."""
    run = "{kind: finetune, tokens: 1 Gtok, deadline: 14 d, on: 4x8xH100-SXM, name: NAME}"
    text = OWNED.replace("{kind: finetune, tokens: 1 Gtok, deadline: 14 d}", "[FIRST, SECOND]")
    for name in ("FIRST", "SECOND"):
        text = text.replace(name, run.replace("NAME", name.lower()))
    plan = planned(text)
    assert plan.building and plan.money and plan.money.owning
    assert [group.node_count for group in plan.building.racks] == [4]
    assert "counted once" in " ".join(plan.building.warnings)
    assert [line.quantity for line in plan.money.owning.lines if line.what.startswith("servers")] == [4]


@pytest.mark.parametrize("count", [2, 4])
def test_what_another_size_costs_more_is_what_its_own_plan_does(
    count: int, planned: Callable[[str], Plan]
) -> None:
    """Half the months with a peak that is twice as high were told to cost a whole demand charge more."""
    longer = OWNED.replace("1 Gtok", "2 Ttok").replace("14 d", "340 d")
    small, large = (planned(longer.replace("340 d", f"340 d, on: {each}x8xH100-SXM")) for each in (1, count))
    told = next(each.text for each in planned(longer).actions if each.kind == "or")
    assert small.money and large.money
    more = large.money.total_usd - small.money.total_usd
    found = re.search(rf"\b{8 * count} of them in [^(]*\(\S+ % energy, ([\d.]+) \$ for peaks\)", told)
    assert found and float(found[1]) == pytest.approx(more, abs=0.02)


def test_a_desk_has_no_building(examples: dict[str, Plan]) -> None:
    assert examples["laptop"].building is None


def test_a_cap_saves_power_and_costs_less_than_it_saves(planned: Callable[[str], Plan]) -> None:
    trade = building_of(planned, TRAIN + "facility: {accelerator_cap: 60 %}\n").power.caps[0]
    assert trade.cap_fraction == pytest.approx(0.6) and trade.saved_w > 0
    assert 0.6 < trade.throughput_fraction < 1.0 and trade.energy_per_work_fraction < 1.0
