"""The rows of the tables about rules: regimes, authorisations, costs, keys, controls, mandates."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Regime:
    """What a spec's `compliance` stands for."""

    name: str
    title: str
    baseline: Literal["moderate", "high"]
    rented: bool  # machines may be rented where somebody is authorised
    closed: bool  # no connection to other networks
    dedicated: bool  # machines are not shared with other tenants
    hsm_per: Literal["site", "enclave"]
    retention_months: float
    online_months: float
    source: str
    licence: str
    confidence: str
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Authorisation:
    """One region of one provider that is authorised for one regime."""

    provider: str
    region: str
    regime: str
    since: str  # "" where not known
    conditions: str
    source: str
    licence: str
    confidence: str


@dataclass(frozen=True, slots=True)
class CostItem:
    """One thing that a regime makes one pay for: `count` units for each of its `driver`."""

    name: str
    category: str
    regimes: str  # names with spaces between
    place: Literal["any", "rented", "owned"]
    driver: str  # system site enclave node spare_node user admin hsm offline_hsm tb_log tb_online tb_archive
    count: float
    unit: str
    recurs: Literal["once", "year"]
    usd_low: float
    usd: float
    usd_high: float
    date: str
    source: str
    licence: str
    confidence: str
    notes: str = ""
    provider: str = ""  # who alone charges it; "" whoever rents


@dataclass(frozen=True, slots=True)
class ComplianceFigure:
    """One figure in its own `unit`; ends that the source does not state are None."""

    category: str
    item: str
    value: float
    low: float | None
    high: float | None
    unit: str
    source: str
    licence: str
    confidence: str
    notes: str = ""


@dataclass(frozen=True, slots=True)
class KeyPoint:
    """One place where a key is used, and how often a module works for it."""

    name: str
    half: Literal["any", "training", "serving"]
    regimes: str  # names with spaces between
    per: str  # year day enclave_s release transfer node_start checkpoint_node request
    operations: float
    protects: str
    standard: str
    evidence: str
    source: str
    licence: str
    confidence: str


@dataclass(frozen=True, slots=True)
class ControlRow:
    """One control of NIST SP 800-53 rev 5: who implements it, and how much of it is there."""

    id: str
    family: str
    title: str
    baseline: Literal["moderate", "high"]
    implementer: Literal["product", "platform", "organisation"]
    status: Literal["whole", "partial", "gap", "inherited", "yours"]
    evidence: str  # a file or command of the product; "" where another implements it
    gap: str
    source: str
    licence: str
    confidence: str


@dataclass(frozen=True, slots=True)
class MandateRow:
    """One law, order, memorandum or standard; empty dates and names: none."""

    name: str
    title: str
    kind: str  # law order memorandum rule standard guidance
    date: str
    revoked_on: str
    revoked_by: str
    replaced_by: str
    rests_on: str
    bears_on: str
    source: str
    licence: str
    confidence: str
    notes: str = ""
