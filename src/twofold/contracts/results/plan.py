"""The plan as data, schema `twofold/plan/1`: what `plan --json` prints; `explain` and `diff` read it.

Nothing here computes. Every uncertain number is an `Estimate`; lengths of time are seconds, sizes bytes,
money USD. Arrays stay arrays with one run or service; a missing half is an empty array.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from twofold.catalog.types import Model
from twofold.contracts.results.compliance import Compliance
from twofold.contracts.results.holdings import Leasing, Portfolio
from twofold.contracts.results.ledger import Money
from twofold.contracts.results.premises import Building
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.errors import InfeasibleError
from twofold.core.estimate import Estimate

_SPEC = re.compile(r"\bSPEC\b")  # the user's file, in commands


@dataclass(frozen=True, slots=True)
class CrossCell:
    """One half on one fleet: what it costs and how it fares there."""

    half: str  # training or serving
    name: str  # of the run or service
    fleet: str  # training or serving
    text: str  # on one line
    feasible: bool  # meets its deadline or goals there
    wall_s: Estimate | None  # of the run, s
    cost_usd: Estimate | None  # a run, or a year of serving
    latency_s: Estimate | None  # TPOT p95 of the tightest class


@dataclass(frozen=True, slots=True)
class Factor:
    """One named unknown: its 80 % factor, and how far it alone moves a headline figure."""

    name: str  # compute memory_bandwidth link …
    low_factor: float  # 10th percentile
    high_factor: float  # 90th percentile
    step_swing_fraction: float | None  # of the first run's step
    tpot_swing_fraction: float | None  # of the first service's TPOT


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a derivation: another path of this plan, or a leaf with its reference."""

    label: str  # what it is
    text: str  # the value as shown
    path: str  # "" for a leaf
    source: str  # m f v a
    reference: str  # catalogue table and row, constant, or the spec's line; "" with a path


@dataclass(frozen=True, slots=True)
class Derivation:
    """How one number follows from others: of the plan, or of a derivation of it."""

    path: str  # what is derived
    formula: str  # how, with figures
    inputs: tuple[Input, ...]  # from what


@dataclass(frozen=True, slots=True)
class Digests:
    """What a plan was made from, as SHA-256; equal digests make an equal plan."""

    spec: str  # of the spec
    catalog: str  # of all tables
    constants: str  # of the fitted constants
    calibration: str  # "" without one


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do, or to know before it is done."""

    kind: str  # use rent also release cost or risk next; the first three make up `cost`
    text: str  # in words, with figures; of `next` a command, SPEC the user's file
    when: str  # how long machines are used, or after what they go back; "" where neither is known
    usd: float | None  # of the first year, with tax: rent and support, requests, or own energy; `cost`: all
    name: str = ""  # of the run or service that it is for; "" where it is for all


@dataclass(frozen=True, slots=True)
class Confidence:
    """With which probability goals hold that the spec asks for more than half."""

    # Why more machines do not make a goal surer, of a service and of a run.
    NOT_BY_REPLICAS = "not by replicas: measure, or another machine"
    NOT_BY_MACHINES = "not by machines: measure, or a later date"

    asked_fraction: float  # of each goal, by the spec
    joint_probability: float  # that all goals hold at once, by common draws; measured rows apart
    not_reached: dict[str, float]  # goals that no more machines bring there, each with its probability


@dataclass(frozen=True, slots=True)
class Rung:
    """What one half would take at one confidence, on the machines and layout that the plan chose."""

    name: str  # of the run or service
    confidence: float  # that each of its goals holds with
    replica_count: int  # that serve, without spares; 1 for a run
    accelerator_count: int  # with spares
    usd_per_year: float | None  # of a service a year, of a run every time in it; null: no price
    probability: float  # of its least probable goal
    binds: str  # why more replicas do not reach the confidence; "" where they do
    gate: str = ""  # where the plan's offer does not have as many: whom to ask


@dataclass(frozen=True, slots=True)
class MeasureFirst:
    """What an hour of measuring on one node is expected to save of one service."""

    name: str  # of the service
    what: str  # to measure, in words
    replica_count: int  # that serve as planned, without spares
    expected_replica_count: float  # after measuring, over what may be measured
    usd_per_year: float | None  # expected to be saved; null: no price


@dataclass(frozen=True, slots=True)
class Refusal:
    """A run or service that nothing meets, so that the plan is without it."""

    name: str  # of the run or service
    message: str  # what nothing does
    lines: tuple[tuple[str, str], ...]  # label and text: what is needed, what was tried, what would fit


@dataclass(frozen=True, slots=True)
class Plan:
    """Both halves of one spec, with everything that a screen shows and where it comes from."""

    schema: str  # `twofold/plan/1`
    name: str  # of the spec
    twofold: str  # version
    digests: Digests  # what made it
    rehearsed: bool  # on the twin
    training: tuple[TrainingPlan, ...]  # runs
    serving: tuple[ServicePlan, ...]  # services
    cross: tuple[CrossCell, ...]  # each half on each fleet
    first_year_usd: Estimate | None  # the bill's total: runs and a year of services, as leased
    budget_usd: float | None  # the spec's
    factors: tuple[Factor, ...]  # what is not known
    calibration: str  # which measurements of yours were used
    derivations: tuple[Derivation, ...]  # where numbers come from
    defaults: tuple[tuple[str, str], ...]  # path, value
    warnings: tuple[str, ...]  # of the whole plan
    portfolio: Portfolio | None = None  # the cheapest mix of leases, an alternative; null: none is for rent
    money: Money | None = None  # the bill, what tokens cost, owning; null: nothing has a price
    building: Building | None = None  # what the machines stand in; null: the plan has none
    compliance: Compliance | None = None  # what rules change; null: the spec names none
    actions: tuple[Action, ...] = ()  # what to do, in order
    budget_holds_probability: float | None = None  # that the first year keeps it; null: no budget or price
    confidence: Confidence | None = None  # how sure all goals are; null: not computed
    leasing: Leasing | None = None  # what the leases cost together; null: none were weighed
    models: tuple[Model, ...] = ()  # read from a config.json, so that the plan can be rehearsed without it
    ladder: tuple[Rung, ...] = ()  # each half at 50, 80 and 95 %, and at the plan's own confidence
    measure_first: tuple[MeasureFirst, ...] = ()  # where measuring is expected to save; the most first
    infeasible: tuple[Refusal, ...] = ()  # what nothing meets: the plan is of the rest

    def without(self, refused: Iterable[InfeasibleError]) -> "Plan":
        """The same with what nothing meets, of which it has nothing."""
        told = (Refusal(each.whose, each.message, each.lines) for each in refused)
        return replace(self, infeasible=tuple(told))

    @property
    def halves(self) -> tuple[TrainingPlan | ServicePlan, ...]:
        """Runs, then services."""
        return (*self.training, *self.serving)

    def told_for(self, spec: str) -> "Plan":
        """The same with the user's file in its commands, where they say `SPEC`."""
        actions = (replace(each, text=_SPEC.sub(lambda _: spec, each.text)) for each in self.actions)
        return replace(self, actions=tuple(actions))

    def own_usd(self, name: str) -> float | None:
        """What machines of one's own take for a run or service in the first year; None where it has none."""
        uses = (each.usd for each in self.actions if each.kind == "use" and each.name == name)
        return next(uses, None) or None
