"""The gate that `up` serves through: the one that `simulate` rehearses, and what is other all the same."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from twofold.app.simulate_inputs import opened, rehearsable
from twofold.contracts.spec.scenario import Scenario
from twofold.core.errors import ValueRefusedError
from twofold.gating.build import BuiltGate
from twofold.rehearse.run import PoolTask, RehearsalSettings, pool_tasks

AS_GUESSED = "a prompt's tokens are guessed from its bytes before it is sent; the twin knows their number"
AS_BATCHED = "an engine batches as it does; the twin's batches are as large as the plan's memory allows"
AT_HOME = "all replicas share this machine, which the load's clients use too; the twin's have one each"
TOGETHER = "priority"  # one pool of all replicas, whose gate knows who can wait
ONE_POOL = f"all classes share the replicas here; `fleet: {{pools: {TOGETHER}}}` rehearses that"
AS_PLANNED = Scenario()
SILENT = (
    "a replica that is silent for three times the goal is given up; the twin waits until a request has failed"
)
STAYS = "what the hosted API would not heed stays here; the twin's requests ask for nothing of the kind"
# What no gateway has as the twin has it.
DIFFERS: tuple[str, ...] = (AS_GUESSED, AS_BATCHED, AT_HOME, SILENT)


@dataclass(frozen=True, slots=True)
class ServedGate:
    """One service's gate, and how many replicas stand behind it."""

    task: PoolTask  # the rehearsal that has it
    in_flight_limit: int  # requests that one replica may have at once
    replica_count: int
    differs: tuple[str, ...]  # from the rehearsal, by necessity

    @property
    def built(self) -> BuiltGate:
        """What the gate is told at its start."""
        return self.task.gate


def served_gate(
    spec: Path, slot_count: int, today: date | None, scenario: Scenario = AS_PLANNED
) -> ServedGate:
    """The gate of a spec's one service under a scenario's policies, on a machine that holds so many replicas.

    Pools that are planned apart are one here. Raises ValueRefusedError for two pools behind one gate, and
    for more replicas than the machine holds.
    """
    given = rehearsable(opened(spec, today))
    [service] = given.plan.serving
    tasks, differs = pool_tasks(service, RehearsalSettings(scenario), given.tables), DIFFERS
    if len(tasks) > 1:
        fleet = scenario.fleet.model_copy(update={"pools": TOGETHER})
        scenario, differs = scenario.model_copy(update={"fleet": fleet}), (ONE_POOL, *differs)
        tasks = pool_tasks(service, RehearsalSettings(scenario), given.tables)
    [task] = tasks
    built = task.gate
    if len(built.in_flight_limits) > 1:
        what = "two pools behind one gate are for more machines than this one"
        raise ValueRefusedError(what, hint="leave `pools` out of `fleet`")
    scaling = built.settings.scaling
    if scaling is not None and scaling.pools[0].max_count > slot_count:
        most = scaling.pools[0].max_count
        what = f"`scaling` may start {most} replicas, and this machine holds {slot_count}"
        raise ValueRefusedError(what, hint=f"write `scaling: {{most: {slot_count}}}`")
    if built.settings.overflow is not None:
        differs = (*differs, STAYS)
    [(_, limit)] = built.in_flight_limits
    planned = service.replica_count
    if planned > slot_count:
        differs = (f"{slot_count} replicas, as many as this machine holds, of {planned} planned", *differs)
    return ServedGate(task, limit, min(planned, slot_count), differs)
