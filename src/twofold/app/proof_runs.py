"""One live run of a proof: requests at given times, something done to the service meanwhile, and what came of
it, told in the words in which the twin tells it too."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twofold.app.loop_stages import own_endpoint, own_load
from twofold.contracts.results import proof
from twofold.live.control import trials
from twofold.live.control.engines import EngineSettings
from twofold.live.control.machine_use import MachineWatch
from twofold.live.control.service import ServiceSettings
from twofold.live.gateway.told import entries_between
from twofold.live.loads import loader, loads
from twofold.live.loads.texts import Texts
from twofold.policy.gate import events
from twofold.policy.machine import Entry
from twofold.rehearse import as_measured
from twofold.twin.serving import fault_types, fleet_types

OUTCOMES = {
    loads.Outcome.FINISHED: as_measured.FINISHED,
    loads.Outcome.REFUSED: as_measured.REFUSED,
    loads.Outcome.FAILED: as_measured.LOST,
}

GateEntries = Sequence[Entry[events.Event, events.Effect]]


@dataclass(frozen=True, slots=True)
class Standing:
    """A service that runs, and what may be done to it."""

    state: Path
    settings: ServiceSettings
    release: EngineSettings  # that is worse, and is offered to the gate

    @property
    def log(self) -> Path:
        """The gate's."""
        return self.state / "gateway" / "events.jsonl"

    @property
    def release_version(self) -> str:
        """What the release is known by."""
        return replace(self.settings, engine=self.release).version


@dataclass(frozen=True, slots=True)
class LiveRan:
    """One live run, with what else the machine and others did meanwhile."""

    ran: as_measured.Ran
    use: proof.MachineUse
    others_asked: int  # requests that came from somebody else
    load: loads.Load
    done_s: float | None  # when something was done to the service, on the monotonic clock
    added_s: float | None  # from then until the gate was told of a replica that came again
    more_s: float | None = None  # from the load's begin until one more that started served


def run_live(
    standing: Standing,
    arrivals: Sequence[fleet_types.Arrival],
    texts: Texts,
    fault: fault_types.Fault | None = None,
    one_more_s: float | None = None,
) -> LiveRan:
    """Ask for these lengths at these times, with prompts from `texts`; what the fault says happens for real,
    or a replica more starts at `one_more_s` and goes again once it serves.

    Waits first until the service is whole. Raises RunError where it does not become so.
    """
    names = trials.until_whole(standing.state, standing.settings.version, standing.settings.replica_count)
    prompts = [texts.prompt(each.input_tokens, each.output_limit_tokens) for each in arrivals]
    endpoint = own_endpoint(standing.state, standing.settings.name or standing.settings.version)
    done = Deed(standing, names[0], fault, one_more_s)
    with MachineWatch(standing.state) as watch, own_load(standing.state):
        done.begin()
        try:
            load = loader.hold_open(
                endpoint,
                iter(prompts),
                [each.arrival_s for each in arrivals],
                duration_s=arrivals[-1].arrival_s,
                max_tokens=1,
            )
        finally:
            done.end()
    ended_s = time.monotonic()
    entries = list(entries_between(standing.log, load.begun_s, ended_s))
    if isinstance(fault, fault_types.Release):
        trials.withdraw_release(standing.state, standing.release_version)
    asked = sum(isinstance(entry.event, events.RequestArrived) for entry in entries)
    use = proof.MachineUse(watch.load_average_before, watch.load_average_after, watch.others_cores)
    added_s = None
    if done.done_s is not None:
        at_s = _added_s(entries, done.victim, done.done_s)
        added_s = at_s and at_s - done.done_s
    others = max(0, asked - len(load.answers))
    more_s = None if done.more is None else done.more.serving_s - load.begun_s
    return LiveRan(_ran(load, entries, done), use, others, load, done.done_s, added_s, more_s)


@dataclass(slots=True)
class Deed:
    """What is done to the service at a moment of the load, in a thread. Mutable."""

    standing: Standing
    victim: str
    fault: fault_types.Fault | None
    one_more_s: float | None = None
    more: trials.StartSeen | None = None  # what came of that
    done_s: float | None = None  # when, on the monotonic clock
    _timer: threading.Timer | None = None

    def begin(self) -> None:
        """From now on the fault's time counts."""
        match self.fault:
            case fault_types.ReplicaCrash(at_s=at_s):
                self._later(at_s, lambda: trials.kill_replica(self.standing.state, self.victim))
            case fault_types.Release(at_s=at_s):
                version, engine = self.standing.release_version, self.standing.release
                self._later(at_s, lambda: trials.offer_release(self.standing.state, version, engine))
            case _ if self.one_more_s is not None:
                self._later(self.one_more_s, self._one_more)
            case _:
                pass

    def _one_more(self) -> float:
        asked_s = time.monotonic()
        self.more = trials.one_more(self.standing.state)
        return asked_s

    def end(self) -> None:
        """The load is over: what has not been done is not done any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _later(self, in_s: float, deed: Callable[[], float]) -> None:
        def do() -> None:
            self.done_s = deed()

        self._timer = threading.Timer(in_s, do)
        self._timer.daemon = True
        self._timer.start()


def _ran(load: loads.Load, entries: GateEntries, done: Deed) -> as_measured.Ran:
    seen = tuple(_seen(answer, load.begun_s) for answer in load.answers)
    sends = [
        (entry.now_s, effect)
        for entry in entries
        for effect in entry.effects
        if isinstance(effect, events.Send)
    ]
    ran = as_measured.Ran(seen, retried_count=sum(effect.attempt > 1 for _, effect in sends))
    since_s = done.done_s
    if since_s is None or done.fault is None:
        return ran
    if isinstance(done.fault, fault_types.ReplicaCrash):
        added_s = _added_s(entries, done.victim, since_s)
        to_it = [at_s for at_s, effect in sends if effect.replica_id == done.victim and at_s > since_s]
        before = [at_s for at_s in to_it if added_s is None or at_s < added_s]
        after = [at_s for at_s in to_it if added_s is not None and at_s >= added_s]
        routed_s = max(before) - since_s if before else 0.0
        return replace(ran, routed_s=routed_s, back_s=min(after) - since_s if after else None)
    tried, back_s = _of_release(entries, done.standing.release_version, since_s)
    count = sum(effect.replica_id in tried and (back_s is None or at_s <= back_s) for at_s, effect in sends)
    return replace(ran, rolled_back_s=None if back_s is None else back_s - since_s, tried_count=count)


def _seen(answer: loads.Answer, begun_s: float) -> as_measured.Seen:
    first_s = answer.first_s - answer.due_s if answer.first_s else None
    ended_s = answer.ended_s - answer.due_s
    outcome = OUTCOMES[answer.outcome]
    return as_measured.Seen(answer.due_s - begun_s, outcome, "", answer.output_tokens, first_s, ended_s)


def _added_s(entries: GateEntries, replica_id: str, since_s: float) -> float | None:
    """When the gate was first told of this replica after it had died."""
    for entry in entries:
        event = entry.event
        if (
            entry.now_s > since_s
            and isinstance(event, events.ReplicaAdded)
            and event.replica_id == replica_id
        ):
            return entry.now_s
    return None


def _of_release(entries: GateEntries, version: str, since_s: float) -> tuple[set[str], float | None]:
    """The replicas that a release got, and when it was rolled back."""
    names, back_s = set(), None
    for entry in entries:
        if isinstance(entry.event, events.ReplicaAdded) and entry.event.version == version:
            names.add(entry.event.replica_id)
        for effect in entry.effects:
            if isinstance(effect, events.RollBackRelease) and entry.now_s > since_s and back_s is None:
                back_s = entry.now_s if effect.version == version else None
    return names, back_s
