"""The portfolio of a plan as data: what to hold, rent and release over a year, and what else was possible."""

from dataclasses import dataclass

from twofold.contracts.results.ledger import LineItem


@dataclass(frozen=True, slots=True)
class Lease:
    """Units of one offer for some weeks, or by the hour, and what they are for."""

    offer: str  # provider, instance, region and term
    provider: str  # whose machines
    accelerator: str  # catalogue name
    accelerators_per_unit: int  # in one unit
    term: str  # on_demand spot reserved_1y reserved_3y owned …
    use: str  # training, serving, or both in turn
    what: str  # the runs or services, in words
    units: int  # at most at once
    start_week: int  # of the plan, from 0
    weeks: int  # held, or in which hours are rented
    release: str  # day on which they go back, or the week's number; "" at the end of the plan
    unit_h: float  # paid for
    used_fraction: float  # of these hours, by work
    usd: float  # USD with support, without egress
    region: str = ""  # as the price names it; "" where it names none


@dataclass(frozen=True, slots=True)
class ServedShare:
    """Which part of a class an offer answers, how late, and what a million requests cost there."""

    demand: str  # service.class, with @region where users stand in several
    offer: str  # that answers
    variant: str  # model and formats of the replicas
    share_fraction: float  # of the year's requests
    p95_s: float | None  # of what is promised, the way to the users included; null: nothing waits
    rtt_s: float | None  # of it, the way; null: no region of users is stated
    usd_per_million: float  # USD per million requests on units used without a break


@dataclass(frozen=True, slots=True)
class MonthDemand:
    """Accelerators that one month asks for, and how many of them cannot be had."""

    label: str  # the calendar month, or four weeks of the plan
    training_count: int  # accelerators at once, at most
    serving_count: int  # in the busiest hour
    available_count: int | None  # of owned, leased and limited offers together; null: no limit
    shortage_count: int  # missing in the busiest hour
    what: str  # runs of that month; classes that are short


@dataclass(frozen=True, slots=True)
class FleetOption:
    """One way to get the capacity: this portfolio, or what people do instead."""

    name: str  # portfolio, one cluster, dedicated fleets
    what: str  # machines, in words
    usd: float  # of the weeks of the plan
    slo: str  # which classes are met
    deadline: str  # which runs are on time
    saving_fraction: float  # what the portfolio saves against it
    break_even_ratio: float | None  # load at which it costs what dedicated fleets do; null: none


@dataclass(frozen=True, slots=True)
class MaterialRow:
    """One line of a bill of materials."""

    half: str  # training or serving
    instance: str  # node or instance type
    accelerator: str  # catalogue name
    units: int  # at most at once
    accelerator_count: int  # in them
    unit_h: float  # over the plan
    fabric: str  # what the half asks of the network between units


@dataclass(frozen=True, slots=True)
class OfferRank:
    """An offer by what bandwidth and tokens cost on it, egress included."""

    offer: str  # provider, instance, region and term
    usd_per_h_per_tb_s: float  # USD/h of one TB/s of memory bandwidth
    usd_per_million: float | None  # USD per million output tokens of the first class; null: it serves none
    used: bool  # whether the portfolio has it


@dataclass(frozen=True, slots=True)
class WindowCost:
    """Machines of a run for its window, against the same all year round."""

    run: str  # the training run
    units: int  # of the offer
    offer: str  # that it runs on
    start: str  # day or week
    release: str  # day or week
    usd: float  # for the window
    year_usd: float  # the same units, the whole plan


@dataclass(frozen=True, slots=True)
class TermSplit:
    """Reserved against hourly units of one accelerator, and the use above which a reservation pays."""

    accelerator: str  # catalogue name
    reserved_unit_h: float  # of leases
    hourly_unit_h: float  # by the hour
    break_even_fraction: float | None  # of the year's hours; null: only one of the two is on offer


@dataclass(frozen=True, slots=True)
class Restriction:
    """What a rule would cost: fewer platforms, or one provider."""

    rule: str  # in words
    usd: float | None  # of the portfolio under it; null: impossible
    extra_fraction: float | None  # over the portfolio; null: impossible


@dataclass(frozen=True, slots=True)
class YearScenario:
    """Another year than planned: the portfolio's leases in it, and what one who knew would have paid."""

    name: str  # what is different
    usd: float | None  # with this portfolio's leases; null: they do not suffice
    best_usd: float | None  # had it been known; null: impossible
    regret_usd: float | None  # the difference
    short: str  # dates on which capacity is missing, and what would help; "" where none is
    gap_fraction: float = 0.0  # how far `best_usd` may lie above the cheapest


@dataclass(frozen=True, slots=True)
class Leasing:
    """What leases cost together; not of measured rows, nor of runs on reserved or spot machines alone."""

    usd: float  # of the first year: rent after discount with support, egress, file systems of runs
    cheapest_usd: float  # the same, where nothing is paid for being simple
    text: str  # what there is to manage, as `1 kind of machine, 2 providers, 3 leases`
    cheapest_text: str  # the same of the cheapest, and which leases these are where they are others


@dataclass(frozen=True, slots=True)
class Portfolio:
    """The cheapest mix of leases for the same work, as an alternative: where and when, and its bill."""

    start: str  # day of week 0; "" where the spec has none
    weeks: int  # of the plan
    usd: float  # of these weeks
    bound_usd: float  # no portfolio is cheaper
    gap_fraction: float  # between the two
    finished: bool  # within the gap asked for; false: time was up
    offers_count: int  # considered
    kept_count: int  # of them, that no other always beats
    owed_usd: float  # of commitments, after the plan
    leases: tuple[Lease, ...]  # what to hold and rent
    served: tuple[ServedShare, ...]  # who answers what
    calendar: tuple[MonthDemand, ...]  # accelerators by month
    options: tuple[FleetOption, ...]  # the portfolio and its two honest alternatives
    materials: tuple[MaterialRow, ...]  # a bill for each half
    ranking: tuple[OfferRank, ...]  # cheapest bandwidth first
    windows: tuple[WindowCost, ...]  # runs whose machines are released
    splits: tuple[TermSplit, ...]  # reserved against hourly
    restrictions: tuple[Restriction, ...]  # what rules would cost
    scenarios: tuple[YearScenario, ...]  # price, demand, slip
    conflict: tuple[str, ...]  # what contradicts itself; demand is then met as far as possible
    items: tuple[LineItem, ...]  # the bill
    notes: tuple[str, ...]  # what to know
