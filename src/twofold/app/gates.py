"""The gate that `up` serves through: the one that `simulate` rehearses, and what is other all the same."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from twofold.app.simulate_inputs import opened, rehearsable
from twofold.contracts.spec.scenario import Scenario
from twofold.core.errors import ValueRefusedError
from twofold.gating.build import BuiltGate
from twofold.live.gateway_config import not_live
from twofold.rehearse.run import RehearsalSettings, pool_tasks

AS_GUESSED = "a prompt's tokens are guessed from its bytes before it is sent; the twin knows their number"
AS_BATCHED = "an engine batches as it does; the twin's batches are as large as the plan's memory allows"
AT_HOME = "all replicas share this machine, which the load's clients use too; the twin's have one each"
AS_PLANNED = Scenario()
# What no gateway can have as the twin has it.
DIFFERS: tuple[str, ...] = (AS_GUESSED, AS_BATCHED, AT_HOME)


@dataclass(frozen=True, slots=True)
class ServedGate:
    """One service's gate, and how many replicas stand behind it."""

    built: BuiltGate
    in_flight_limit: int  # requests that one replica may have at once
    replica_count: int
    differs: tuple[str, ...]  # from the rehearsal, by necessity


def served_gate(
    spec: Path, slot_count: int, today: date | None, scenario: Scenario = AS_PLANNED
) -> ServedGate:
    """The gate of a spec's one service under a scenario's policies, on a machine that holds so many replicas.

    Raises ValueRefusedError for a policy that nobody carries out yet, and for a service behind several gates.
    """
    given = rehearsable(opened(spec, today))
    [service] = given.plan.serving
    tasks = pool_tasks(service, RehearsalSettings(scenario), given.tables)
    if len(tasks) != 1:
        what = f"`{service.name}` is planned behind {len(tasks)} gates, and `up` runs one"
        raise ValueRefusedError(what, hint="leave one class, or classes that one pool of replicas serves")
    built = tasks[0].gate
    if missing := not_live(built.settings):
        what = f"`{missing[0]}` works in simulations only so far"
        raise ValueRefusedError(what, hint="turn it off in the policies that `up` is told")
    [(_, limit)] = built.in_flight_limits
    planned, differs = service.replica_count, DIFFERS
    if planned > slot_count:
        differs = (f"{slot_count} replicas, as many as this machine holds, of {planned} planned", *differs)
    return ServedGate(built, limit, min(planned, slot_count), differs)
