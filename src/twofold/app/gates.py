"""The gate that `up` serves through: the one that `simulate` rehearses, and what is other all the same."""

from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from twofold.app.simulate_inputs import opened, rehearsable
from twofold.contracts.spec.scenario import Scenario
from twofold.core.errors import ValueRefusedError
from twofold.gating.build import BuiltGate
from twofold.live.control.service import PoolShare
from twofold.rehearse.run import PoolTask, RehearsalSettings, pool_tasks
from twofold.twin.serving import fleet_types

AS_GUESSED = "a prompt's tokens are guessed from its bytes before it is sent; the twin knows their number"
AS_BATCHED = "an engine batches as it does; the twin's batches are as large as the plan's memory allows"
AT_HOME = "all replicas share this machine, which the load's clients use too; the twin's have one each"
TOGETHER = "priority"  # one pool of all replicas, whose gate knows who can wait
ONE_POOL = f"all classes share the replicas here; `policies: {{pools: {TOGETHER}}}` rehearses that"
AS_PLANNED = Scenario()
SILENT = (
    "a replica that is silent for three times the goal is given up; the twin waits until a request has failed"
)
AS_FAST = (
    "`--prove` rehearses the smaller model as fast as the service's own: its steps are measured of that alone"
)
STAYS = "what the hosted API would not heed stays here; the twin's requests ask for nothing of the kind"
# What no gateway has as the twin has it.
DIFFERS: tuple[str, ...] = (AS_GUESSED, AS_BATCHED, AT_HOME, SILENT)


@dataclass(frozen=True, slots=True)
class ServedGate:
    """One service's gate, and how many replicas stand behind it."""

    task: PoolTask  # the rehearsal that has it
    in_flight_limit: int  # requests that one replica may have at once, of the first pool
    replica_count: int
    differs: tuple[str, ...]  # from the rehearsal, by necessity
    pools: tuple[PoolShare, ...] = ()  # that the replicas are parted into; none: they are one

    @property
    def built(self) -> BuiltGate:
        """What the gate is told at its start."""
        return self.task.gate


def served_gate(
    spec: Path, slot_count: int, today: date | None, scenario: Scenario = AS_PLANNED
) -> ServedGate:
    """The gate of a spec's one service under a scenario's policies, on a machine that holds so many replicas.

    Pools that are planned apart are one here, but for a spec whose policies say `pools: split`. Raises
    ValueRefusedError for fewer replicas than pools, and for more than the machine holds.
    """
    given = rehearsable(opened(spec, today))
    [service] = given.plan.serving
    tasks, differs = pool_tasks(service, RehearsalSettings(scenario), given.tables), DIFFERS
    if len(tasks) > 1:
        pools = scenario.policies.pools.model_copy(update={"kind": TOGETHER})
        policies = scenario.policies.model_copy(update={"pools": pools})
        scenario, differs = scenario.model_copy(update={"policies": policies}), (ONE_POOL, *differs)
        tasks = pool_tasks(service, RehearsalSettings(scenario), given.tables)
    [task] = tasks
    built = task.gate
    in_need = task.world.replicas[len(fleet_types.own_groups(task.world)) :]
    smaller_count = sum(group.count for group in in_need)
    if smaller_count >= slot_count:
        what = f"{smaller_count} to answer in need and one besides are more than this machine's {slot_count}"
        hint = "leave `smaller` out of `degradation`, or let each replica have fewer threads"
        raise ValueRefusedError(what, hint=hint)
    slot_count -= smaller_count
    _need_slots(built, slot_count)
    if built.settings.overflow is not None:
        differs = (*differs, STAYS)
    planned = service.replica_count
    if planned > slot_count:
        differs = (f"{slot_count} replicas, as many as this machine holds, of {planned} planned", *differs)
    if smaller_count:
        differs = (AS_FAST, *differs)
    limits, count = built.in_flight_limits, min(planned, slot_count)
    shares = shares_of(task, count) if len(limits) > 1 else ()
    return ServedGate(task, limits[0][1], count, differs, shares)


def _need_slots(built: BuiltGate, slot_count: int) -> None:
    """Refuse a gate that a machine has too few replicas for, or that would start too many."""
    pool_count, scaling = len(built.in_flight_limits), built.settings.scaling
    if pool_count > slot_count:
        what = f"{pool_count} pools need a replica each, and this machine holds {slot_count}"
        raise ValueRefusedError(what, hint=f"write `pools: {TOGETHER}`, or fewer threads for each replica")
    most = sum(pool.max_count for pool in scaling.pools) if scaling is not None else 0
    if most > slot_count:
        what = f"`scaling` may start {most} replicas, and this machine holds {slot_count}"
        raise ValueRefusedError(what, hint=f"write `scaling: {{most: {slot_count // pool_count}}}`")


def shares_of(task: PoolTask, count: int) -> tuple[PoolShare, ...]:
    """So many replicas over the pools of one gate, as planned, each with one at least."""
    planned = Counter[str]()
    for group in fleet_types.own_groups(task.world):
        planned[group.order.pool] += group.count
    given = dict.fromkeys(planned, 1)
    for _ in range(count - len(given)):  # each to the pool that lacks most of its part
        given[min(given, key=lambda name: (given[name] / planned[name], name))] += 1
    return tuple(PoolShare(name, given[name], limit) for name, limit in task.gate.in_flight_limits)
