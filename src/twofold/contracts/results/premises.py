"""The building of a plan as data: racks, cooling, networks, storage, power, a year of it, and sites."""

from dataclasses import dataclass

from twofold.contracts.results.ledger import LineItem
from twofold.core.estimate import Estimate


@dataclass(frozen=True, slots=True)
class RackHeat:
    """One rack."""

    index: int  # along the rows, from 0
    holds: dict[str, int]  # servers by run or service
    planned_w: float  # at the vendor's maximum, W
    heat_w: float  # in use, W
    binding: str  # what would be full first: cooling, power, rack units, ports, weight
    hot: bool  # more than 15 % over the mean


@dataclass(frozen=True, slots=True)
class RackLimit:
    """How many of one server a rack takes by one limit."""

    limit: str  # cooling, power, rack units, ports, weight
    nodes: int  # servers


@dataclass(frozen=True, slots=True)
class RackGroup:
    """The racks of one run or service: its own for a run, shared with other services for a service."""

    name: str  # of the run or service
    use: str  # training or serving
    node: str  # server type
    node_count: int  # servers
    owned: bool  # yours: the bill is below; else what a provider must have
    rack_count: int  # that hold any of them
    nodes_per_rack: int  # in the fullest
    binding: str  # the limit of a full rack
    limits: tuple[RackLimit, ...]  # by each limit
    rack_w: float  # of the fullest rack at the vendor's maximum, W
    band: str  # in, below or above the band that circulates for that use
    band_low_w: float  # of that band, W
    band_high_w: float  # of that band, W
    cooling: str  # how they are cooled
    cooling_limit_w: float  # heat of one rack that it carries, W
    cooling_why: str  # the limit in words


@dataclass(frozen=True, slots=True)
class CoolingWay:
    """One way to cool a run's or service's servers."""

    kind: str  # air contained_air rear_door direct_to_chip immersion liquid_800_v
    feasible: bool  # holds at least one server in a rack
    nodes_per_rack: int  # by every limit
    rack_count: int  # for all of them
    pue_ratio: float  # facility over IT power
    usd_per_year: float  # energy, building and racks, USD
    why: str  # the limit in words


@dataclass(frozen=True, slots=True)
class CoolingChoice:
    """Every way to cool the servers of one run or service."""

    name: str  # of the run or service
    ways: tuple[CoolingWay, ...]  # the best first


@dataclass(frozen=True, slots=True)
class NodeDraw:
    """What one server draws."""

    node: str  # server type
    stated_w: float | None  # maximum by the catalogue, W; null: not stated
    modelled_w: float  # maximum by its parts, W
    in_use_w: Estimate  # training or serving, W
    idle_w: float  # at rest, W
    parts: dict[str, float]  # accelerators, processors, memory … at their maximum, W


@dataclass(frozen=True, slots=True)
class BuiltPart:
    """Parts of a network of one kind."""

    part: str  # name in the catalogue
    kind: str  # switch transceiver cable
    count: int  # of them
    unit_usd: float | None  # USD; null: no price


@dataclass(frozen=True, slots=True)
class BuiltNetwork:
    """One network between servers."""

    name: str  # of the run or service
    shape: str  # rail-optimised, fat tree, pairs of leaves, one switch
    switch: str  # type; "" where the catalogue has none of this rate
    switches: tuple[int, ...]  # by tier, leaves first
    port_count: int  # of one switch at this rate
    card_bytes_per_s: float  # one card, bytes/s
    cable_count: int  # all
    transceiver_count: int  # all
    cable_m_mean: float  # length, m
    cable_m_longest: float  # length, m
    oversubscription_ratio: float  # at the leaves
    survives: str  # what may fail without losing a server
    usd: float | None  # all parts, USD; null: a part has no price
    power_w: float  # typical, W
    parts: tuple[BuiltPart, ...]  # the bill of parts
    note: str  # in words


@dataclass(frozen=True, slots=True)
class BuiltStorage:
    """One class of storage for one run or service."""

    name: str  # of the run or service
    kind: str  # parallel_fs object nvme
    product: str  # cheapest that does
    unit: str  # of it
    unit_count: int  # units
    capacity_bytes: float  # bought
    read_bytes_per_s: float  # asked
    read_term: str  # what asks for it
    write_bytes_per_s: float  # asked
    write_term: str  # what asks for it
    bound: str  # read, write or capacity sizes it
    usd_per_month: float  # USD
    source: str  # of the price


@dataclass(frozen=True, slots=True)
class Feed:
    """Power strips of the fullest rack of one run or service: two sides, either carries it alone."""

    name: str  # of the run or service
    rack_w: float  # planned, W
    amps: int  # per phase of one strip
    strip_count: int  # on each side
    load_fraction: float  # of a side's rating, both sides up
    load_alone_fraction: float  # of a side's rating, the other lost: at most 80 %


@dataclass(frozen=True, slots=True)
class Swing:
    """How far one run's or service's load jumps."""

    name: str  # of the run or service
    swing_w: float  # between rest and work, W
    phase_swing_w: float  # within a training step, W
    ramp_s: float  # at the grid's limit, s
    buffer_j: float  # storage that makes the jump a ramp, J


@dataclass(frozen=True, slots=True)
class CapTrade:
    """What a power cap on accelerators does."""

    name: str  # of the run or service
    cap_fraction: float  # of the vendor's limit
    saved_w: float  # at the plug, W
    throughput_fraction: float  # of the uncapped
    energy_per_work_fraction: float  # of the uncapped


@dataclass(frozen=True, slots=True)
class BuiltPower:
    """What the building must deliver."""

    it_w: float  # servers, networks and storage at their maximum, W
    expected_peak_w: float  # as fleets measured it, W
    in_use_w: Estimate  # mean while all of it works, W
    meter_w: float  # `it_w` with cooling and conversion, W
    pue_ratio: float  # facility over IT power
    pue_source: str  # the region, the cooling, or the spec
    cap_w: float | None  # the most that the spec allows, W
    feeds: tuple[Feed, ...]  # by run and service
    swings: tuple[Swing, ...]  # by run and service
    ramp_limit_w_per_s: float  # of the grid, W/s
    ride_through_j: float  # of the UPS, J
    caps: tuple[CapTrade, ...]  # by run and service
    tier: str  # I to IV
    scheme: str  # N, N+1 or 2N
    availability_fraction: float  # of power and cooling
    down_h_per_year: float  # h
    redundancy_capex_factor: float  # over a building without


@dataclass(frozen=True, slots=True)
class BuildingYear:
    """A year: runs as often as they repeat, services all year."""

    it_j: float  # J
    meter_j: Estimate  # J
    electricity_usd_per_kwh: float  # USD/kWh
    energy_usd: Estimate  # USD
    demand_usd: float  # for the monthly peaks, USD
    wue_l_per_kwh: float  # site water per kWh of IT
    water_l: float  # l
    grid_gco2_per_kwh: float  # mean of the region
    carbon_gco2: Estimate  # g
    carbon_by_hour_gco2: tuple[float, ...]  # of a mean day, 0 to 23 h, g
    cleanest_hours: tuple[int, ...]  # for work that may wait
    place: str  # the region whose figures these are
    power_by_hour_w: tuple[float, ...] = ()  # at the meter, of a mean day, 0 to 23 h, W; none: an older plan


@dataclass(frozen=True, slots=True)
class RankedSite:
    """One place for the load."""

    name: str  # of the site
    region: str  # catalogue region
    feasible: bool  # has the power and the cooling
    why: str  # what it lacks
    meter_w: float  # at its PUE, W
    power_cap_w: float | None  # W; null: not limited
    electricity_usd_per_kwh: float  # USD/kWh
    energy_usd_per_year: float  # USD
    carbon_gco2_per_year: float  # g
    water_l_per_year: float  # l
    transfer_s: float  # of the data set over its backbone, s
    chosen: bool  # where the plan rents or the spec stands


@dataclass(frozen=True, slots=True)
class UserRoundTrip:
    """One region of users on one site."""

    users: str  # region
    site: str  # region
    rtt_s: float  # round trip, s
    ttft_s: float | None  # of the tightest class with it, s; null: no class has one


@dataclass(frozen=True, slots=True)
class BuildingRequirement:
    """One thing that whoever provides rented machines must have."""

    what: str  # of the building
    value: str  # in words and figures
    source: str  # where the figure is from


@dataclass(frozen=True, slots=True)
class Racks:
    """The racks of a plan's machines, from which the rest of their building is computed."""

    racks: tuple[RackGroup, ...]  # by run and service
    heat: tuple[RackHeat, ...]  # rack by rack
    training_imbalance_ratio: float | None  # hottest over mean; null: nothing is trained
    serving_imbalance_ratio: float | None  # hottest over mean; null: nothing is served
    cooling: tuple[CoolingChoice, ...]  # ways by run and service


@dataclass(frozen=True, slots=True)
class Building(Racks):
    """What a plan's machines stand in. For rented ones what the provider must have, for owned ones a bill."""

    nodes: tuple[NodeDraw, ...]  # by server type
    networks: tuple[BuiltNetwork, ...]  # by run and service
    storage: tuple[BuiltStorage, ...]  # by run and service
    power: BuiltPower  # delivery
    year: BuildingYear  # energy, water, carbon
    sites: tuple[RankedSite, ...]  # for the steady load, the cheapest first
    dataset_bytes: float  # that a site must receive
    users: tuple[UserRoundTrip, ...]  # round trips of serving
    split: tuple[str, ...]  # fewest regions within the round-trip budget
    split_budget_s: float | None  # round trip that the goals leave, s
    requirements: tuple[BuildingRequirement, ...]  # of a provider; none where all is owned
    bill: tuple[LineItem, ...]  # of owned machines; none where all is rented
    bill_usd: float  # its sum
    warnings: tuple[str, ...]  # what does not fit
