"""Money as lines of a bill: what every room that prices something returns, and what adds up to the cent."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

from twofold.core.estimate import Estimate

CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class LineItem:
    """One line of a bill, before and after discount and tax; `total_usd` is rounded to the cent."""

    what: str  # in words: `base: 64 × H100-SXM5-80GB, 27.7 d`
    category: str  # rent energy storage network egress support staff capex financing compliance api facility
    quantity: float  # of `unit`
    unit: str  # accelerator-h, TB-month, Mtok …
    unit_usd: float  # list price of one unit, before discount
    discount_usd: float  # taken off
    tax_usd: float  # added
    total_usd: float  # quantity × unit_usd − discount + tax, to the cent
    source: str  # the offer, catalogue row or spec line that it rests on
    date: str  # of that price; "" where a price has no date


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What one unit costs, with where it was read."""

    usd: float  # of one unit
    source: str  # where the price was read
    date: str = ""  # on which, blank where nobody says


def line_item(
    what: str,
    category: str,
    quantity: float,
    unit: str,
    cost: UnitCost,
    *,
    discount_fraction: float = 0.0,
    tax_fraction: float = 0.0,
) -> LineItem:
    """A line with its discount, then its tax on what is left; each to the cent (half to even)."""
    gross = cents(quantity * cost.usd)
    discount = cents(gross * discount_fraction)
    tax = cents((gross - discount) * tax_fraction)
    total = cents(gross - discount + tax)
    return LineItem(what, category, quantity, unit, cost.usd, discount, tax, total, cost.source, cost.date)


def cents(usd: float) -> float:
    """An amount to the cent."""
    return float(Decimal(repr(usd)).quantize(CENT, ROUND_HALF_EVEN))


def total_usd(items: Iterable[LineItem]) -> float:
    """The sum of a bill's lines: exact in cents, whatever their order."""
    return float(sum((Decimal(repr(item.total_usd)) for item in items), Decimal(0)))


@dataclass(frozen=True, slots=True)
class ApiComparison:
    """A service against the cheapest hosted API for the same mix of tokens."""

    provider: str  # who hosts it
    model: str  # which model of the catalogue
    same_model: bool  # false: another open model of the same size, since nobody lists this one
    input_usd_per_mtok: float  # USD per 1e6 tokens sent
    output_usd_per_mtok: float  # USD per 1e6 tokens answered
    date: str  # of the price
    source: str  # where it was read
    usd_per_mtok: float  # at this service's mix, USD per 1e6 tokens
    api_usd_per_year: float  # for this service's tokens, with tax
    own_usd_per_year: float  # of this service's fleet: rent, support and egress, after discount and tax
    least_own_usd_per_month: float  # of the smallest fleet that answers, spares included
    once_usd: float  # of the run that makes the model; 0 where the spec trains none for it
    break_even_mtok_per_month: float | None  # from which owning costs less; null: never
    mtok_per_month: float  # that the service has
    pays_back_months: float | None  # until the run has come back; null: never
    pays_back_date: str  # that day, from the plan's own; empty: never, or the plan has no day


@dataclass(frozen=True, slots=True)
class ClassMoney:
    """What one latency class costs per query and per token, with the promise that the price is for."""

    name: str  # of the class
    slo: str  # its promise
    usd_per_query: Estimate  # USD
    usd_per_1k_tokens: Estimate | None  # input and output together, USD; null: not counted in tokens
    usd_per_mtok: Estimate | None  # the same of 1e6 tokens
    queries_per_day: float  # mean
    tokens_per_day: float | None  # input and output; null: not counted in tokens


@dataclass(frozen=True, slots=True)
class SpareStep:
    """So many spares of a pool: availability, and the yearly cost of machines and of outages."""

    spare_count: int  # replicas beyond those that carry the peak
    available_fraction: float  # of the year in which the peak is carried
    outage_h_per_year: float  # h
    fleet_usd_per_year: float  # USD
    outage_usd_per_year: float  # USD
    total_usd_per_year: float  # USD
    planned: bool  # as the plan has it
    best: bool  # the least total


@dataclass(frozen=True, slots=True)
class NineStep:
    """What the next nine of availability is worth."""

    from_fraction: float  # availability
    to_fraction: float  # the next nine
    saved_h_per_year: float  # h
    worth_usd_per_year: float  # USD


@dataclass(frozen=True, slots=True)
class ServiceMoney:
    """The money of one service."""

    name: str  # of the service
    classes: tuple[ClassMoney, ...]  # by latency class
    output_tokens_per_s_per_w: Estimate | None  # at the meter, over a year; null: not counted in tokens
    energy_usd_per_year: float  # at the region's tariff, USD; in the rent of rented machines
    api: ApiComparison | None  # null: nobody hosts a model like it, or it has no tokens
    downtime_usd_per_h: float  # an hour down, USD
    downtime_source: str  # the spec, or that it is assumed
    spares: tuple[SpareStep, ...]  # of the largest pool that somebody waits for; none without a price
    nines: tuple[NineStep, ...]  # what each is worth
    spares_of: str = ""  # the classes of that pool, where the service has several pools


@dataclass(frozen=True, slots=True)
class LifetimeStep:
    """A rate of requests: a year of serving it, and when serving has cost as much as the run."""

    requests_per_day: float  # mean
    serving_usd_per_year: float  # USD
    crossing_days: float | None  # d; null: never


@dataclass(frozen=True, slots=True)
class RunMoney:
    """The money of one run, and of what serves its model."""

    name: str  # of the run
    usd_per_mtok: Estimate | None  # USD per 1e6 tokens trained on; null: not counted in tokens
    tokens_per_s_per_w: Estimate | None  # trained, at the meter; null: not counted in tokens
    runs_per_year: float  # as the spec repeats it
    served_by: str  # the service whose life it is held against; empty: none
    crossing_days: float | None  # until serving has cost as much as one run, d; null: nothing serves it
    crossing_date: str  # that day, from the plan's own; empty without one
    curve: tuple[LifetimeStep, ...]  # over requests a day


@dataclass(frozen=True, slots=True)
class RatioRow:
    """Training over serving for one figure, beside what is claimed of it."""

    name: str  # of the figure
    training_usd: float  # of training, USD
    serving_usd: float  # of serving, USD
    ratio: float  # training over serving, or as the name says
    claimed_low: float  # claimed, from
    claimed_high: float  # claimed, to
    verdict: str  # within below above
    inputs: str  # with which figures


@dataclass(frozen=True, slots=True)
class CashStep:
    """One year of the same plan, owned and rented."""

    year: int  # 1, 2, …
    capex_usd: float  # repaid of what the machines cost, USD
    financing_usd: float  # interest, USD
    opex_usd: float  # power, cooling, hall, upkeep, storage, staff, USD
    resale_usd: float  # what the machines are still worth, in the last year, USD
    owned_usd: float  # all of it, USD
    rented_usd: float  # the same plan's bill, USD


@dataclass(frozen=True, slots=True)
class Crossing:
    """Machines of one kind: how much of the year they must be used for owning to cost what renting does."""

    name: str  # the node
    accelerator_count: int  # of all of them
    owned_usd_per_accelerator_h: float  # all costs over every hour of the year, USD/h
    rented_usd_per_accelerator_h: float  # after discount, USD/h
    utilisation_fraction: float  # above 1: renting is cheaper even all year
    used_fraction: float  # of the year, as planned
    yours: bool = False  # already: nothing is left to buy


@dataclass(frozen=True, slots=True)
class Owning:
    """The same plan on bought machines, over `years`."""

    years: int  # held and paid off over
    lines: tuple[LineItem, ...]  # over all years
    owned_usd: float  # their sum, to the cent
    rented_usd: float  # the same plan's bill over the years, USD
    cash: tuple[CashStep, ...]  # by year
    owned_present_usd: float  # the years at the cost of capital, USD of today
    rented_present_usd: float  # the same of the rent
    crossings: tuple[Crossing, ...]  # by kind of machine
    left_out: tuple[str, ...]  # machines that nobody prices


@dataclass(frozen=True, slots=True)
class Shape:
    """An input that is larger than it must be, and the smaller shape that keeps the same promises."""

    name: str  # of the run or service
    given: str  # as the spec has it
    enough: str  # what would do
    keeps: str  # deadline or objectives, with figures
    saves_usd_per_year: float | None  # USD; null: owned machines, which become free, or no price
    freed_accelerator_count: int  # accelerators


@dataclass(frozen=True, slots=True)
class LeverRow:
    """One optimisation of a run or service, priced by planning with and without it."""

    name: str  # quantise batch cache speculate distil input checkpoint layout source utilise
    of: str  # the run or service
    pulled: str  # in use, or open
    saves_usd_per_year: float  # negative: it costs
    saves_fraction: float  # of what it costs without
    how: str  # with figures


@dataclass(frozen=True, slots=True)
class SwingRow:
    """One input at both ends of its 80 % range, and the first year there."""

    name: str  # of the input
    low_factor: float  # on its middle
    high_factor: float  # on its middle
    at_low_usd: float  # first year, USD
    at_high_usd: float  # first year, USD


@dataclass(frozen=True, slots=True)
class MeasuringRow:
    """One measurement and how much narrower it would make the 80 % range of the first year."""

    name: str  # what is measured
    command: str  # or where it goes in the spec
    pins: tuple[str, ...]  # inputs that are then known
    before_usd: float  # width of the range now, USD
    after_usd: float  # width with it, USD


@dataclass(frozen=True, slots=True)
class MoneyDetail:
    """What `--money` adds: levers, shapes, and how sure the first year is."""

    levers: tuple[LeverRow, ...]  # the largest saving first
    shapes: tuple[Shape, ...]  # inputs that are larger than they must be
    swings: tuple[SwingRow, ...]  # the ten inputs that move the first year most
    draw_count: int  # of the Monte-Carlo
    mean_usd: float  # of the first year over the draws
    low_usd: float  # 10th percentile
    median_usd: float  # of the first year over the draws
    high_usd: float  # 90th percentile
    over_budget_fraction: float | None  # of the draws; null: no budget
    measuring: tuple[MeasuringRow, ...]  # the best measurement first


@dataclass(frozen=True, slots=True)
class Money:
    """The bill of the first year, what a token costs, owning against renting."""

    currency: str  # that totals are also shown in
    exchange_ratio: float  # units of it for one USD
    discount_fraction: float  # off list prices of rent
    tax_fraction: float  # on what is left
    lines: tuple[LineItem, ...]  # of the first year
    total_usd: float  # their sum, to the cent
    difference: str  # how the total follows from rent at list price; empty where it is that
    services: tuple[ServiceMoney, ...]  # by service
    runs: tuple[RunMoney, ...]  # by run
    ratios: tuple[RatioRow, ...]  # training over serving; none for half a plan
    owning: Owning | None  # null: nobody prices the machines
    notes: tuple[str, ...]  # what to know about the money
    detail: MoneyDetail | None = None  # null: not asked for
