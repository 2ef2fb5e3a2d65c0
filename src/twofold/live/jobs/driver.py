"""The driver of a queue: `python -m twofold.live.jobs.driver STATE`, one per state folder.

It tells `ClusterBrain` what happens, writes down what that answers, and does it. All that it remembers is the
log, all that runs carries marks: so it may be killed at any moment, and the next one reads the log, finds the
gangs, and goes on. Where a disk takes no line, or the log cannot be read, nothing is decided, since what is
not written is not done: its process says so and reads the log again by and by.
"""

import fcntl
import os
import signal
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from twofold.core.errors import TwofoldError
from twofold.live import processes, watchdog
from twofold.live.jobs import campaigns, gangs
from twofold.live.jobs.job_log import LOG, JobLog, read_job_log, replayed
from twofold.live.jobs.orders import (
    OF_REGISTRY,
    AcceleratorWatch,
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
from twofold.live.jobs.queue_clock import QueueClock
from twofold.live.jobs.trouble import Patience
from twofold.policy.cluster import events
from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.gang_queue import JobState
from twofold.policy.machine import Entry, Woke

LOOK_S = 0.2
WATCHDOG_EVERY_S = 5.0
REFUSED = (2, 3)  # how `twofold` ends where what it was told is wrong, or judged and missed
AT_ONCE = {events.StopReason.HUNG, events.StopReason.FAILED, events.StopReason.GAVE_UP}  # nothing to be saved


@dataclass(slots=True)
class Ending:
    """A gang that is being ended; nothing is started on its slots before it is gone. Mutable."""

    slots: tuple[str, ...]
    kill_at_s: float


class Keeper:
    """Says that the driver's process is alive, and sees that a watchdog is there. Mutable."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._beaten_s = self._watched_s = float("-inf")
        self._watchdog: Any = None  # psutil's process, once it was found

    def goes_on(self) -> bool:
        """Beat, look after the watchdog; False once the state is to end."""
        import psutil

        if watchdog.is_ending(self._state):
            return False
        now_s = time.monotonic()
        if now_s - self._beaten_s >= watchdog.BEAT_S:
            self._beaten_s = now_s
            with suppress(OSError):
                watchdog.beat(self._state, watchdog.JOBS)
        known = self._watchdog is not None and processes.lives(self._watchdog)
        if known and now_s - self._watched_s < WATCHDOG_EVERY_S:  # looking for it reads the whole table
            return True
        self._watched_s = now_s
        there = processes.running(self._state, "watchdog", exact=True)
        there = there or [watchdog.start_watchdog(self._state)]
        with suppress(psutil.Error):
            self._watchdog = psutil.Process(there[0].process_id)
        return True


class Driver:
    """One queue's driver. Mutable. Raises TwofoldError for a log or settings that cannot be gone on with."""

    def __init__(self, state: Path, clock: QueueClock | None = None) -> None:
        self.state = state
        self.clock = clock or QueueClock()
        self.accelerators = AcceleratorWatch()
        self.gangs: dict[str, gangs.Gang] = {}
        self.ending: dict[str, Ending] = {}
        self.starting: dict[str, int] = {}  # job: attempt that is to begin
        self.known: set[str] = set()  # jobs that a brain was told of
        self.settings = read_settings(state)
        path = jobs_folder(state) / LOG
        runs = read_job_log(path)
        for entry in (entry for run in runs for entry in run.entries):
            if isinstance(entry.event, events.JobSubmitted):
                self.known.add(entry.event.job_id)
        if runs:
            run = runs[-1]
            self.settings, self.brain = run.settings, replayed(run, path)
            self.clock.go_on(path.parent, run.began_s, run.entries[-1].now_s if run.entries else 0.0)
        self.log = JobLog(path)
        if cut := self.log.cut_bytes:
            processes.say(
                f"the last line of `{path}` is cut after {cut} bytes, and dropped: nobody acted on it"
            )
        try:
            self._add_slots() if runs else self._new_run(self.settings)
            self._adopt()
        except BaseException:
            self.log.close()
            raise

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
        at_s = self.clock.wall()
        self.log.start(settings, at_s)
        self.clock.begin(jobs_folder(self.state), at_s)
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
            try:
                order = read_order(self.state, job.job_id)
            except TwofoldError:  # it is started, which says what is wrong
                self.starting[job.job_id] = job.attempt
                continue
            gang = gangs.adopted(self.state, order, held, job.attempt)
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
        jobs = self.brain.view.jobs
        campaigns.take_turns(
            self.state, self.clock.wall(), lambda each: each in jobs or each not in self.known
        )
        for job_id, _ in order_files(self.state):
            if job_id not in self.known:
                self.known.add(job_id)
                try:
                    order = read_order(self.state, job_id)
                except TwofoldError as error:
                    processes.say(error.message)
                    continue
                self._tell(_submitted(order))
        for job_id in cancelled(self.state) & self.brain.view.jobs.keys():
            self._tell(events.JobCancelled(job_id))
        forget_environments(self.state, self.known - self.brain.view.jobs.keys())

    def _hear_slots(self) -> None:
        listed = self.accelerators.listed() if self.settings.accelerators else None
        lost = lost_slots(self.state, self.settings, listed)
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
        for write_s, stall_s in heard.writes if gang.order.saves else ():
            self._tell(events.CheckpointWritten(job_id, write_s, gang.attempt, stall_s))
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
            if gang.order.kind in OF_REGISTRY and failed[0] in REFUSED:
                cause = events.FaultCause.INPUT
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
        checkpoint_stall_s=order.checkpoint_stall_s,
    )


def run_driver(state: Path) -> None:
    """Until the state is to end. One per state: a second one ends at once."""
    folder = jobs_folder(state)
    processes.make_private(folder)
    # Not opened to be written: where the disk is read-only the queue is looked after as well.
    lock = os.open(folder / "lock", os.O_RDONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        drive(state)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def drive(state: Path) -> None:
    """Driver after driver: what one cannot go on for is told, and the next reads the log anew."""
    keeper, patience = Keeper(state), Patience(state)
    while keeper.goes_on():
        patience.begin()
        try:
            driver = Driver(state)
            with closing(driver.log):
                while keeper.goes_on():
                    driver.look()
                    patience.well()
                    time.sleep(LOOK_S)
        except Exception as error:  # whatever it is: jobs run on, and their owner is to hear of it
            patience.failed(error)
            patience.wait(keeper.goes_on)


def main() -> None:
    """The command line of the process."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    run_driver(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
