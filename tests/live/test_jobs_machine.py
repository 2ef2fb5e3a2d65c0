"""The driver of a queue in any order of what happens to it: its invariants hold, and in the end all is over.

Processes and clocks are stand-ins; driver, log, orders, files of steps and the brain are the real ones. A
driver is forgotten as kill -9 forgets it, at any moment, and the next one knows what it knew.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from twofold.core.errors import FileError
from twofold.live.jobs import driver as driving
from twofold.live.jobs import gangs
from twofold.live.jobs.driver import Driver
from twofold.live.jobs.job_log import LOG, read_job_log, replayed
from twofold.live.jobs.listing import OVER, jobs_of
from twofold.live.jobs.orders import (
    JobOrder,
    QueueSettings,
    cancel,
    cancelled,
    job_folder,
    jobs_folder,
    submit,
    write_settings,
)
from twofold.live.jobs.queue_clock import QueueClock
from twofold.policy.cluster import events
from twofold.policy.cluster import settings as cluster

SLOTS = 3
STATES = {"submitted", "queued", "starting", "running", "leaving", "paused", "held", *OVER}
SETTINGS = QueueSettings(
    SLOTS,
    cluster=cluster.ClusterSettings(
        preemption=cluster.PreemptionSettings(minimum_run_s=0.0, patience_s=0.0),
        cadence=cluster.CadenceSettings(fixed_interval_s=5.0, wait_s=20.0),
        faults=cluster.FaultSettings(spare_count=0, backoff_s=1.0, restart_limit=3, quarantine_s=1000.0),
        queue=cluster.GangQueueSettings(look_every_s=5.0),
        watch=cluster.WatchSettings(silence_s=60.0, start_wait_s=90.0),
    ),
    report_s=1.0,
    grace_s=10.0,
)


@dataclass
class Rank:
    """A process. It ends with a word, or is killed and leaves none."""

    slots: tuple[str, ...]
    is_alive: bool = True
    told_to_end: bool = False


@dataclass
class World:
    """The processes of a machine, as `gangs` shows them to a driver."""

    state: Path
    ranks: dict[tuple[str, int, int], Rank] = field(default_factory=dict)  # by job, attempt, rank
    words: dict[tuple[str, int, int], int] = field(default_factory=dict)
    never_again: set[str] = field(default_factory=set)  # jobs that no driver may start any more
    refuses: bool = False  # to start anything
    KILLED = gangs.KILLED
    slots_of = staticmethod(gangs.slots_of)

    def alive(self, job_id: str | None = None) -> dict[tuple[str, int, int], Rank]:
        return {k: each for k, each in self.ranks.items() if each.is_alive and job_id in (None, k[0])}

    def start_gang(
        self, state: Path, _: QueueSettings, order: JobOrder, held: tuple[str, ...], attempt: int
    ) -> gangs.Gang:
        assert order.job_id not in self.never_again, "a job that is over was started"
        busy = {slot for rank in self.alive().values() for slot in rank.slots}
        assert not busy & set(held), "INV-32: a slot is in two gangs"
        assert len(held) == len(set(held)) == order.slot_count, "INV-32: a gang starts whole"
        assert not self.alive(order.job_id), "a job is started beside itself"
        if self.refuses:
            raise OSError("cannot be started")
        for each in (job_folder(state, order.job_id), Path(order.folder)):
            each.mkdir(parents=True, exist_ok=True)
        listener = gangs.listener_of(state, order)
        listener.begin(attempt)
        for rank, slot in enumerate(held):
            self.ranks[order.job_id, attempt, rank] = Rank((slot,))
            self.words.pop((order.job_id, attempt, rank), None)
        return gangs.Gang(order, attempt, held, {rank: [] for rank in range(len(held))}, listener)

    def adopted(self, state: Path, order: JobOrder, held: tuple[str, ...], attempt: int) -> gangs.Gang:
        listener = gangs.listener_of(state, order)
        if not listener.go_on(attempt):
            listener.begin(attempt)
        return gangs.Gang(order, attempt, held, {rank: [] for rank in range(len(held))}, listener)

    def exit_codes(self, _: Path, gang: gangs.Gang) -> dict[int, int | None]:
        found: dict[int, int | None] = {}
        for rank in gang.ranks:
            key = gang.order.job_id, gang.attempt, rank
            process = self.ranks.get(key)
            found[rank] = None if process and process.is_alive else self.words.get(key, gangs.KILLED)
        return found

    def ask_to_end(self, _: Path, job_id: str) -> None:
        for rank in self.alive(job_id).values():
            rank.told_to_end = True

    def kill(self, _: Path, job_id: str) -> bool:
        found = self.alive(job_id)
        for rank in found.values():
            rank.is_alive = False
        return bool(found)

    def is_gone(self, _: Path, job_id: str) -> bool:
        return not self.alive(job_id)

    def strays(self, _: Path) -> set[str]:
        return {job_id for job_id, _, _ in self.alive()}


@contextmanager
def in_this(world: World) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driving, "gangs", world)
        patched.setattr("twofold.live.training.artefact.flush", lambda _: None)  # the power stays on
        yield


JOB = st.integers(0, 5)


class QueueInAWorld(RuleBasedStateMachine):
    """INV-15, INV-31, INV-32 and INV-34 of a live queue, whatever is killed, cut, cancelled or set."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.state = self.folder / ".twofold"
        write_settings(self.state, SETTINGS)
        self.world = World(self.state)
        self.entered = in_this(self.world)
        self.entered.__enter__()
        self.steady_s, self.wall_s = 1000.0, 1e9
        self.submitted: dict[str, JobOrder] = {}
        self.answered: dict[str, str] = {}  # what each job was last asked to save
        self.driver: Driver | None = self.new_driver()

    def new_driver(self) -> Driver:
        return Driver(self.state, QueueClock(lambda: self.steady_s, lambda: self.wall_s))

    def look(self) -> None:
        self.world.never_again = cancelled(self.state) & (
            self.driver.known - self.driver.brain.view.jobs.keys() if self.driver else set()
        )
        if self.driver is not None:
            self.driver.look()

    # --- what owners do ---

    @rule(
        slots=st.sampled_from([1, 1, 2, 3, 4]),
        priority=st.integers(0, 2),
        team=st.sampled_from(["red", "blue"]),
        saves=st.sampled_from([True, True, False]),
    )
    @precondition(lambda self: len(self.submitted) < 6)
    def submit(self, slots: int, priority: int, team: str, saves: bool) -> None:
        job_id = f"j{len(self.submitted)}"
        folder = str(job_folder(self.state, job_id) / "run")
        order = JobOrder(job_id, ("true",), slots, slots, folder, team, priority, saves=saves)
        submit(self.state, order, {"TOKEN": job_id})
        self.submitted[job_id] = order
        self.look()

    @rule(number=JOB)
    def cancel(self, number: int) -> None:
        if f"j{number}" in self.submitted:
            cancel(self.state, f"j{number}")
            self.look()

    # --- what jobs do ---

    def append(self, job_id: str, name: str, **line: Any) -> None:
        with (Path(self.submitted[job_id].folder) / name).open("a") as file:
            file.write(json.dumps(line) + "\n")

    @rule(number=JOB)
    def all_ranks_step(self, number: int) -> None:
        for job_id, _, rank in self.world.alive(f"j{number}"):
            name = f"steps-rank-{rank}.jsonl" if rank else "steps.jsonl"
            self.append(job_id, name, step=1, step_s=0.5, communication_s=0.1)
        self.look()

    @rule(failed=st.sampled_from([False, False, True]))
    def jobs_save_what_they_are_asked(self, failed: bool) -> None:
        for job_id in {job_id for job_id, _, rank in self.world.alive() if rank == 0}:
            path = Path(self.submitted[job_id].folder) / "save"
            asked = path.read_text() if path.exists() else ""
            if asked != self.answered.get(job_id, ""):
                self.answered[job_id] = asked
                kind = "checkpoint-failed" if failed else "checkpoint"
                self.append(job_id, "events.jsonl", event=kind, write_s=0.2)
        self.look()

    @rule(number=JOB, code=st.sampled_from([0, 0, 0, 3, 143]))
    def all_ranks_end(self, number: int, code: int) -> None:
        for key, rank in self.world.alive(f"j{number}").items():
            rank.is_alive, self.world.words[key] = False, code
        self.look()

    @rule(number=JOB, rank=st.integers(0, 2), word=st.booleans())
    def a_rank_dies(self, number: int, rank: int, word: bool) -> None:
        for key, process in self.world.alive(f"j{number}").items():
            if key[2] == rank:
                process.is_alive = False
                if word:
                    self.world.words[key] = 1
        self.look()

    @rule()
    def who_is_told_to_end_ends(self) -> None:
        for key, rank in self.world.alive().items():
            if rank.told_to_end:
                rank.is_alive, self.world.words[key] = False, 143
        self.look()

    # --- what the machine does ---

    @rule(past_s=st.sampled_from([0.2, 2.0, 6.0, 30.0, 100.0]))
    def time_passes(self, past_s: float) -> None:
        self.steady_s += past_s
        self.wall_s += past_s
        self.look()

    @rule(jump_s=st.sampled_from([-1e8, -3600.0, 3600.0, 1e8]))
    def the_clock_on_the_wall_is_set(self, jump_s: float) -> None:
        self.wall_s += jump_s
        self.look()

    @rule(number=st.integers(0, SLOTS - 1), lost=st.booleans())
    def a_slot_is_lost_or_back(self, number: int, lost: bool) -> None:
        mark = jobs_folder(self.state) / "slots" / f"slot-{number}.lost"
        mark.parent.mkdir(exist_ok=True)
        mark.touch() if lost else mark.unlink(missing_ok=True)
        self.look()

    @rule(refuses=st.booleans())
    def nothing_can_be_started(self, refuses: bool) -> None:
        self.world.refuses = refuses
        self.look()

    # --- what becomes of drivers ---

    @precondition(lambda self: self.driver is not None)
    @rule(torn=st.sampled_from([b"", b"", b'{"now_s":1.0,"ev']))
    def the_driver_is_killed(self, torn: bytes) -> None:
        assert self.driver is not None
        self.driver.log.close()
        with (jobs_folder(self.state) / LOG).open("ab") as file:
            file.write(torn)
        self.before, self.driver = self.driver, None

    @precondition(lambda self: self.driver is not None)
    @rule()
    def the_disk_refuses_a_line(self) -> None:
        """What it would have said is not done: the next driver hears of it anew."""
        assert self.driver is not None
        os.close(self.driver.log._file)
        self.driver.log._file = os.open("/dev/full", os.O_WRONLY)
        with suppress(FileError):
            self.look()
        self.driver.log.close()
        self.driver = None

    @precondition(lambda self: self.driver is None)
    @rule()
    def another_one_drives(self) -> None:
        self.driver = self.new_driver()
        if (before := getattr(self, "before", None)) is not None:
            for job_id, job in before.brain.view.jobs.items():
                again = self.driver.brain.view.jobs[job_id]
                assert (again.attempt, again.placement, again.state) == (
                    job.attempt,
                    job.placement,
                    job.state,
                )
            assert self.driver.brain.view.jobs.keys() == before.brain.view.jobs.keys()
            assert self.driver.clock.now_s() >= before.brain._seen_s
        self.before = None
        self.look()

    # --- what always holds ---

    @invariant()
    def no_slot_has_two_gangs(self) -> None:
        """INV-32, of what runs and of what was decided."""
        slots = [slot for rank in self.world.alive().values() for slot in rank.slots]
        assert len(slots) == len(set(slots))
        if self.driver is not None:
            view = self.driver.brain.view
            placed = [slot for job in view.jobs.values() for slot, _ in job.placement]
            assert len(placed) == len(set(placed))
            for job in view.jobs.values():
                assert sum(count for _, count in job.placement) in (0, job.submitted.accelerator_count)

    @invariant()
    def nothing_runs_that_is_not_written_down(self) -> None:
        ordered = {
            (effect.job_id, effect.attempt)
            for run in read_job_log(jobs_folder(self.state) / LOG)
            for entry in run.entries
            for effect in entry.effects
            if isinstance(effect, events.StartJob | events.ResizeJob | events.SwapNode)
        }
        assert {key[:2] for key in self.world.alive()} <= ordered

    @invariant()
    def every_job_is_something(self) -> None:
        """INV-31, by the log alone."""
        told = {each.job_id: each.state for each in jobs_of(self.state)}
        assert told.keys() == self.submitted.keys() and set(told.values()) <= STATES
        if self.driver is not None:
            live = self.driver.brain.view.jobs.keys()
            assert {job_id for job_id, is_so in told.items() if is_so not in (*OVER, "submitted")} == live

    @invariant()
    def what_runs_is_known(self) -> None:
        """No process of a job runs that the driver neither has, nor ends, nor is about to end."""
        if self.driver is not None:
            known = self.driver.gangs.keys() | self.driver.ending.keys()
            assert {job_id for job_id, _, _ in self.world.alive()} <= known

    def teardown(self) -> None:
        try:
            self.settle()
            self.the_log_replays()
        finally:
            if self.driver is not None:
                self.driver.log.close()
            self.entered.__exit__(None, None, None)
            shutil.rmtree(self.folder)

    def settle(self) -> None:
        """When the machine is well again and jobs do what they are for, each is over before long."""
        self.world.refuses = False
        for number in range(SLOTS):
            self.a_slot_is_lost_or_back(number, False)
        self.driver = self.driver or self.new_driver()
        for _ in range(200):
            if all(each.state in OVER for each in jobs_of(self.state)):
                break
            self.time_passes(10.0)
            self.jobs_save_what_they_are_asked(failed=False)
            self.who_is_told_to_end_ends()
            for job_id in self.submitted:
                self.all_ranks_end(int(job_id[1:]), 0)
        told = {each.job_id: each.state for each in jobs_of(self.state)}
        assert set(told.values()) <= set(OVER), told
        asked = cancelled(self.state)
        for job_id, state in told.items():
            assert state != "cancelled" or job_id in asked
            assert (state == "refused") == (self.submitted[job_id].slot_count > SLOTS) or job_id in asked
        self.time_passes(100.0)
        assert self.world.alive() == {} and not list(jobs_folder(self.state).glob("orders/*.environment"))

    def the_log_replays(self) -> None:
        """INV-15, and INV-34: whoever makes room has been written."""
        path = jobs_folder(self.state) / LOG
        for run in read_job_log(path):
            replayed(run, path)
            for entry in run.entries:
                for effect in entry.effects:
                    if isinstance(effect, events.StopJob) and effect.reason is events.StopReason.PREEMPTED:
                        assert isinstance(entry.event, events.CheckpointWritten), entry
                        assert entry.event.job_id == effect.job_id and self.submitted[effect.job_id].saves


TestQueueInAWorld = QueueInAWorld.TestCase
TestQueueInAWorld.settings = settings(
    max_examples=400 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 30, stateful_step_count=40
)
