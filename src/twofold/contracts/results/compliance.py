"""The part of a plan about rules: who may supply, what it costs, how it is built, who does what."""

from dataclasses import dataclass

from twofold.contracts.results.ledger import LineItem
from twofold.core.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Refusal:
    """Offers of one provider and region that a regime forbids."""

    where: str  # provider:region
    offer_count: int  # rows of the table of prices
    reason: str  # in words


@dataclass(frozen=True, slots=True)
class Permitted:
    """One place that is authorised and has prices."""

    where: str  # provider:region
    offer_count: int  # rows of the table of prices
    since: str  # when it was authorised; "" where not known
    conditions: str  # what that hangs on
    confidence: str  # high, medium or low, of the row


@dataclass(frozen=True, slots=True)
class Enclave:
    """Machines behind one boundary."""

    name: str  # training, serving, management, staging …
    holds: str  # in words
    place: str  # rented or owned
    node_count: int  # nodes of the plan in it; 0: small servers of its own
    connects_to: tuple[str, ...]  # other enclaves, in the direction of what flows


@dataclass(frozen=True, slots=True)
class KeyUse:
    """One point where a key is used."""

    name: str  # of the point
    protects: str  # what
    standard: str  # controls that ask for it
    evidence: str  # who does it
    operations_per_s: float  # of modules, at the peak


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """Key-use points and the modules that hold the keys."""

    points: tuple[KeyUse, ...]  # where keys are used
    operations_per_s: float  # of all points at the peak
    module_operations_per_s: float  # that one module does
    cluster_count: int  # clusters of modules, by site or enclave
    module_count: int  # online, all clusters
    offline_count: int  # root of trust and its copy
    reason: str  # how the count comes about


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """What crosses a one-way link into a closed system, and how long it takes."""

    weights_bytes: float  # models
    data_bytes: float  # training data
    update_bytes: float  # images and packages of one update
    link_bytes_per_s: float  # of the one-way link
    first_s: float  # all of the first load, s
    update_s: float  # one update, s
    update_every_days: float  # between updates


@dataclass(frozen=True, slots=True)
class LogPlan:
    """What is recorded, how much room that takes, and how long it may hold up a request."""

    recorded: str  # audit, content or attribution
    bytes_per_request: float | None  # mean of all requests; null: nothing is served
    requests_per_s: float  # mean of the year
    host_bytes_per_s: float  # of all nodes' own logs
    bytes_per_year: Estimate  # of both, B
    retention_days: float  # kept
    online_days: float  # of it searchable
    online_bytes: Estimate  # once the store is full, B
    archive_bytes: Estimate  # once the store is full, B
    synchronous_s: Estimate | None  # a request waits for its durable record, s; null: nothing is served
    asynchronous_s: Estimate | None  # it waits for an append in memory, s
    budget_s: float | None  # share of the tightest goal; null: no goal is a latency
    synchronous_fits: bool | None  # the high end within the budget


@dataclass(frozen=True, slots=True)
class ComplianceItem:
    """One line of what the rules cost, with its range."""

    name: str  # of the item, in paths
    category: str  # provider region assessor staff people monitoring keys supply chain boundary spares other
    recurs: str  # once or year
    line: LineItem  # the middle, to the cent
    low_usd: float  # low end of the line
    high_usd: float  # high end of the line
    confidence: str  # high, medium or low, of the price


@dataclass(frozen=True, slots=True)
class Uplift:
    """What the rules add to a year of machines, at one size."""

    accelerator_count: int  # in use all year
    base_usd: float  # their year at the same provider's price without the rules
    items_usd: Estimate  # a year of the bill without the change of provider; what is paid once is spread
    uplift_fraction: Estimate  # of the base
    claim: str  # below, within or above the 20–40 % that is claimed


@dataclass(frozen=True, slots=True)
class DoneOtherwise:
    """One thing that is done otherwise."""

    what: str  # update path, telemetry …
    usually: str  # in words
    here: str  # in words


@dataclass(frozen=True, slots=True)
class FamilyCount:
    """One family of controls: who does how many, and what is missing."""

    family: str  # in words
    control_count: int  # in the baseline
    product_count: int  # done by the product, wholly or in part
    platform_count: int  # done by an authorised platform
    organisation_count: int  # yours
    gaps: tuple[str, ...]  # controls of which the product lacks something


@dataclass(frozen=True, slots=True)
class Control:
    """One control of the baseline."""

    id: str  # of NIST SP 800-53 rev 5
    family: str  # in words
    title: str  # in our words
    implementer: str  # product platform organisation
    status: str  # whole partial gap inherited yours
    evidence: str  # file or command of the product; "" where another does it
    gap: str  # what is missing


@dataclass(frozen=True, slots=True)
class Mandate:
    """One entry of the policy register."""

    name: str  # order, memorandum, standard
    title: str  # in our words
    kind: str  # law order memorandum rule standard guidance
    date: str  # of issue
    status: str  # in force, revoked, or flagged: rests on what was revoked
    because: str  # when and by what it was revoked, or what it rests on
    replaced_by: str  # what stands in its place
    bears_on: str  # what it asks of a system
    source: str  # where it was read
    confidence: str  # high, medium or low


@dataclass(frozen=True, slots=True)
class Compliance:
    """What a regime changes in a plan."""

    regime: str  # fedramp-moderate fedramp-high il5 air-gapped custom
    title: str  # in words
    baseline: str  # moderate or high
    offers_in_all: int  # prices of the catalogue
    permitted: tuple[Permitted, ...]  # places that are authorised
    refused: tuple[Refusal, ...]  # places that are not, most offers first
    enclaves: tuple[Enclave, ...]  # boundaries
    keys: KeyPlan  # where keys are used, and in what they are held
    transfer: TransferPlan | None  # one way into a closed system; null: not closed
    logs: LogPlan  # records
    items: tuple[ComplianceItem, ...]  # the bill
    first_year_usd: Estimate  # all lines: what the rules add to the plan's first year
    rent_usd: float  # of it what the plan's rent holds already: lines of provider and region
    later_year_usd: Estimate  # those that recur
    uplift: Uplift | None  # of this plan; null: it has no price
    sizes: tuple[Uplift, ...]  # at three sizes, at this plan's price of an hour
    differences: tuple[DoneOtherwise, ...]  # what is done otherwise
    families: tuple[FamilyCount, ...]  # controls in numbers
    controls: tuple[Control, ...]  # every control of the baseline
    mandates: tuple[Mandate, ...]  # the policy register
    notes: tuple[str, ...]  # what to know
    without_usd: float | None = None  # the plan's first year less these lines, not planned again; null: none
