"""The driver of a queue: `python -m twofold.live.jobs.driver STATE`, one per state folder.

It tells `ClusterBrain` what happens, writes down what that answers, and does it. All that it remembers is the
log, all that runs carries marks: so it may be killed at any moment, and the next one reads the log, finds the
gangs, and goes on. A disk that takes no line ends it: what is not written is not done.
"""

import fcntl
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from twofold.core.errors import TwofoldError
from twofold.live import processes, watchdog
from twofold.live.jobs import gangs
from twofold.live.jobs.job_log import LOG, JobLog, read_job_log, replayed
from twofold.live.jobs.orders import (
    JobOrder,
    QueueSettings,
    cancelled,
    forget_environments,
    jobs_folder,
    lost_slots,
    order_files,
    read_order,
    read_settings,
    slots,
)
from twofold.live.jobs.progress import Heard, ask_to_save
from twofold.policy.cluster import events
from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.gang_queue import JobState
from twofold.policy.machine import Entry, Woke

LOOK_S = 0.2
WATCHDOG_EVERY_S = 5.0
AT_ONCE = {events.StopReason.HUNG, events.StopReason.FAILED, events.StopReason.GAVE_UP}  # nothing to be saved


@dataclass(slots=True)
class Ending:
    """A gang that is being ended; nothing is started on its slots before it is gone. Mutable."""

    slots: tuple[str, ...]
    kill_at_s: float


@dataclass(slots=True)
class QueueClock:
    """Seconds since a queue began: it runs on over restarts, and never back. Mutable: set at each run."""

    began_s: float = 0.0  # Unix time
    base_s: float = 0.0
    since_s: float = field(default_factory=time.monotonic)

    def set(self, began_s: float, last_s: float) -> None:
        """The queue began then; its last event was so long after it."""
        self.began_s, self.base_s = began_s, max(last_s, time.time() - began_s)
        self.since_s = time.monotonic()

    def now_s(self) -> float:
        """The time that the brain is told."""
        return self.base_s + time.monotonic() - self.since_s


class Driver:
    """One queue's driver. Mutable."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.clock = QueueClock()
        self.gangs: dict[str, gangs.Gang] = {}
        self.ending: dict[str, Ending] = {}
        self.starting: dict[str, int] = {}  # job: attempt that is to begin
        self.known: set[str] = set()  # jobs that a brain was told of
        self._beaten_s = self._watched_s = float("-inf")
        self._watchdog: Any = None  # psutil's process, once it was found
        self.settings = read_settings(state)
        path = jobs_folder(state) / LOG
        self.log = JobLog(path)
        runs = read_job_log(path)
        for entry in (entry for run in runs for entry in run.entries):
            if isinstance(entry.event, events.JobSubmitted):
                self.known.add(entry.event.job_id)
        if not runs:
            self._new_run(self.settings)
            return
        run = runs[-1]
        self.settings, self.brain = run.settings, replayed(run)
        self.clock.set(run.began_s, run.entries[-1].now_s if run.entries else 0.0)
        self._add_slots()
        self._adopt()

    def run(self) -> None:
        """Until the state is to end."""
        while not watchdog.is_ending(self.state):
            self._keep_watch()
            self.look()
            time.sleep(LOOK_S)

    def look(self) -> None:
        """What is new, what follows, and that done."""
        processes.reap()
        self._renew()
        self._hear_owners()
        self._hear_slots()
        for job_id, gang in list(self.gangs.items()):
            if self.gangs.get(job_id) is gang:  # else what was told of another one ended it
                self._hear(job_id, gang)
        wake_s = self.brain.wake_at_s()
        if wake_s is not None and self.clock.now_s() >= wake_s:
            self._tell(Woke())
        self._end_what_ends()
        self._start_what_starts()

    # --- what is there at the start ---

    def _new_run(self, settings: QueueSettings) -> None:
        self.settings, self.brain = settings, ClusterBrain(settings.cluster)
        self.clock.set(self.log.start(settings), 0.0)
        self._add_slots()

    def _add_slots(self) -> None:
        """Tell of slots that a killed driver had no time to tell of."""
        for slot in slots(self.settings):
            if slot not in self.brain.view.nodes:
                self._tell(events.NodeAdded(slot, 1))

    def _adopt(self) -> None:
        """Gangs go on under another driver; what should not run is ended, what should and does not begins."""
        there = gangs.strays(self.state)
        for job in self.brain.view.jobs.values():
            if job.state not in (JobState.STARTING, JobState.RUNNING):
                continue
            held = gangs.slots_of(job.placement)
            gang = gangs.adopted(self.state, read_order(self.state, job.job_id), held, job.attempt)
            codes = gangs.exit_codes(self.state, gang)
            if job.state is JobState.STARTING and gangs.KILLED in codes.values():
                self.starting[job.job_id] = job.attempt  # it never was whole, or was killed with us
                continue
            self.gangs[job.job_id] = gang
            if job.saving_since_s is not None:
                self._save(job.job_id)  # the killed one may not have asked
        for job_id in there - self.gangs.keys():
            self._end(job_id, at_once=True)

    def _renew(self) -> None:
        """Changed settings hold from when the queue is idle: a brain is told its own but once."""
        if self.brain.view.jobs or self.ending:
            return
        settings = read_settings(self.state)
        if settings != self.settings:
            self._new_run(settings)

    # --- what happens ---

    def _tell(self, event: events.ClusterEvent) -> None:
        now_s = self.clock.now_s()
        effects = self.brain.handle(event, now_s)
        self.log.told(Entry(now_s, event, tuple(effects)))
        for effect in effects:
            self._do(effect)

    def _hear_owners(self) -> None:
        for job_id, _ in order_files(self.state):
            if job_id not in self.known:
                self.known.add(job_id)
                try:
                    self._tell(_submitted(read_order(self.state, job_id)))
                except TwofoldError as error:
                    processes.say(error.message)
        for job_id in cancelled(self.state) & self.brain.view.jobs.keys():
            self._tell(events.JobCancelled(job_id))
        forget_environments(self.state, self.known - self.brain.view.jobs.keys())

    def _hear_slots(self) -> None:
        lost = lost_slots(self.state, self.settings)
        for slot, node in self.brain.view.nodes.items():
            if slot in lost and node.down_since_s is None:
                self._tell(events.NodeFailed(slot, events.FaultCause.ACCELERATOR))
            elif slot not in lost and node.down_since_s is not None:
                self._tell(events.NodeRepaired(slot, events.RepairKind.REPLACED))

    def _hear(self, job_id: str, gang: gangs.Gang) -> None:
        """What one attempt has written since, and whether it has ended."""
        codes = gangs.exit_codes(self.state, gang)  # before its lines: what it wrote before it ended counts
        heard, told = gang.listener.heard(), False
        if gang.order.saves:
            told = self._hear_steps(job_id, gang, heard)
        elif self.brain.view.jobs[job_id].state is JobState.STARTING:
            self._tell(events.JobStarted(job_id, gang.attempt))
        for write_s in heard.write_s if gang.order.saves else ():
            self._tell(events.CheckpointWritten(job_id, write_s, gang.attempt))
            told = True
        for _ in range(heard.failed_count):
            self._tell(events.CheckpointFailed(job_id, gang.attempt))
        if told:
            gang.listener.keep(gang.attempt)
        if self.gangs.get(job_id) is gang:
            self._hear_end(job_id, gang, codes)

    def _hear_steps(self, job_id: str, gang: gangs.Gang, heard: Heard) -> bool:
        """The first step says that the attempt has begun; now and then the brain hears of the others."""
        gang.pace.add(heard)
        if not gang.pace.steps_s:
            return False
        if self.brain.view.jobs[job_id].state is JobState.STARTING:
            self._tell(events.JobStarted(job_id, gang.attempt))
        now_s = self.clock.now_s()
        if not gang.pace.is_whole or now_s - gang.pace.reported_s < self.settings.report_s:
            return False
        step_s, own_s = gang.pace.report(now_s)
        whole = len(own_s) == len(gang.slots)
        node_s = tuple((gang.slots[rank], each_s) for rank, each_s in sorted(own_s.items())) if whole else ()
        self._tell(events.JobProgressed(job_id, step_s, node_s, gang.attempt))
        return True

    def _hear_end(self, job_id: str, gang: gangs.Gang, codes: dict[int, int | None]) -> None:
        """One rank that failed ends the gang; it has finished when all ranks have."""
        failed = [code for code in codes.values() if code]
        if failed:
            cause = events.FaultCause.SOFTWARE if failed[0] < 128 else events.FaultCause.UNKNOWN
            self._end(job_id, at_once=True)
            self._tell(events.JobFailed(job_id, cause, "", gang.attempt))
        elif all(code == 0 for code in codes.values()):
            del self.gangs[job_id]
            self._tell(events.JobFinished(job_id, gang.attempt))

    # --- what is done ---

    def _do(self, effect: events.ClusterEffect) -> None:
        match effect:
            case events.StartJob() | events.ResizeJob() | events.SwapNode():
                self._end(effect.job_id, at_once=True)
                self.starting[effect.job_id] = effect.attempt
            case events.SaveCheckpoint():
                self._save(effect.job_id)
            case events.StopJob():
                self.starting.pop(effect.job_id, None)
                self._end(effect.job_id, at_once=effect.reason in AT_ONCE)
            case events.RefuseJob() | events.QuarantineNode() | events.ReleaseNode() | events.SlowNode():
                pass  # told by the log and by `jobs list`
            case events.GrantServing() | events.ReclaimServing():
                raise AssertionError(f"nobody serves from a queue of jobs: {effect}")
            case _:
                assert_never(effect)

    def _save(self, job_id: str) -> None:
        gang = self.gangs.get(job_id)
        if gang is not None:
            ask_to_save(Path(gang.order.folder), f"{gang.attempt} {self.clock.now_s():.6f}")

    def _end(self, job_id: str, *, at_once: bool) -> None:
        gang = self.gangs.pop(job_id, None)
        now_s = self.clock.now_s()
        if gang is None and at_once and gangs.is_gone(self.state, job_id):
            return
        held = gang.slots if gang else ()
        if job_id in self.ending:
            held += self.ending[job_id].slots
        if not at_once:
            gangs.ask_to_end(self.state, job_id)
        self.ending[job_id] = Ending(held, now_s + (0.0 if at_once else self.settings.grace_s))

    def _end_what_ends(self) -> None:
        now_s = self.clock.now_s()
        for job_id, ending in list(self.ending.items()):
            left = gangs.kill(self.state, job_id) if now_s >= ending.kill_at_s else True
            if not left or (now_s < ending.kill_at_s and gangs.is_gone(self.state, job_id)):
                del self.ending[job_id]

    def _start_what_starts(self) -> None:
        """An attempt begins once all that had its slots is gone."""
        leaving = {slot for ending in self.ending.values() for slot in ending.slots}
        for job_id, attempt in list(self.starting.items()):
            job = self.brain.view.jobs[job_id]
            held = gangs.slots_of(job.placement)
            if job_id in self.ending or leaving & set(held):
                continue
            del self.starting[job_id]
            try:
                order = read_order(self.state, job_id)
                self.gangs[job_id] = gangs.start_gang(self.state, self.settings, order, held, attempt)
            except (OSError, TwofoldError) as error:
                processes.say(str(error))
                self._tell(events.JobFailed(job_id, events.FaultCause.HOST, "", attempt))

    def _keep_watch(self) -> None:
        """Beat, and see that a watchdog is there."""
        import psutil

        now_s = time.monotonic()
        if now_s - self._beaten_s >= watchdog.BEAT_S:
            self._beaten_s = now_s
            with suppress(OSError):
                watchdog.beat(self.state, watchdog.JOBS)
        known = self._watchdog is not None and processes.lives(self._watchdog)
        if known and now_s - self._watched_s < WATCHDOG_EVERY_S:  # looking for it reads the whole table
            return
        self._watched_s = now_s
        there = processes.running(self.state, "watchdog", exact=True) or [watchdog.start_watchdog(self.state)]
        with suppress(psutil.Error):
            self._watchdog = psutil.Process(there[0].process_id)


def _submitted(order: JobOrder) -> events.JobSubmitted:
    return events.JobSubmitted(
        job_id=order.job_id,
        team=order.team,
        accelerator_count=order.slot_count,
        minimum_count=order.slot_count,
        priority=order.priority,
        expected_s=order.expected_s,
        checkpoint_write_s=order.checkpoint_write_s,
        restart_s=order.restart_s,
        preemptible=order.saves,
        saves=order.saves,
    )


def run_driver(state: Path) -> None:
    """Until the state is to end. One per state: a second one ends at once."""
    folder = jobs_folder(state)
    processes.make_private(folder)
    with open(folder / "lock", "w", opener=processes.private_opener) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        Driver(state).run()


def main() -> None:
    """The command line of the process."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    run_driver(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
