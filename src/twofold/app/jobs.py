"""`jobs`: a queue of training runs, evaluations, quantisations and commands on this machine's slots."""

import json
import os
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path

from twofold.app.loop_settings import MACHINE, config_of, laid_out, other_layout, train_settings
from twofold.app.looping import known_state
from twofold.app.model_jobs import ModelWanted, command_of
from twofold.app.operating import OnText, ShownLogs, following, last_of
from twofold.app.planning import ready
from twofold.app.sources import load, spec_path
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.scenario import find_scenario
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.errors import FileError, TwofoldError, UnknownNameError, UsageError, ValueRefusedError
from twofold.core.extras import require_extra
from twofold.core.nvidia import accelerator_count
from twofold.core.quantity import Dimension, parse_quantity
from twofold.live import watchdog
from twofold.live.jobs import campaigns, orders
from twofold.live.jobs.listing import JobStatus, jobs_of
from twofold.live.jobs.trouble import Trouble, trouble_of
from twofold.live.processes import log_path, python_module, running
from twofold.live.training.artefact import write_whole
from twofold.live.training.train_job import TrainJob
from twofold.live.training.train_order import queued_order
from twofold.rehearse.training import brain_settings
from twofold.report.answers import Shown
from twofold.report.jobs import campaign_lines, jobs_lines, trouble_lines
from twofold.report.lines import heading


@dataclass(frozen=True, slots=True)
class JobSubmitted(Shown):
    """A job that is in the queue now."""

    schema = "twofold/job/1"
    job: str
    team: str
    priority: int
    ranks: int
    slots: int  # that the machine has
    command: str
    trouble: Trouble | None = None  # for which nothing is started
    campaign: campaigns.Campaign | None = None  # that it is the first job of
    notes: tuple[str, ...] = ()  # what it does otherwise than planned

    @property
    def lines(self) -> list[str]:
        """What was taken, and how to follow it."""
        shares = f"{self.ranks} of {self.slots} slots, team {self.team}, priority {self.priority}"
        see = f"see `twofold jobs list SPEC` and `twofold jobs logs SPEC {self.job}`"
        again = campaign_lines((self.campaign,)) if self.campaign else []
        notes = [line for note in self.notes for line in heading("NOTE", note)]
        return [f"{self.job} is queued: {shares}", *notes, *again, *trouble_lines(self.trouble), see]


@dataclass(frozen=True, slots=True)
class JobsListed(Shown):
    """Every job of a queue, oldest first."""

    schema = "twofold/jobs/1"
    jobs: tuple[JobStatus, ...]
    controlled: bool  # a driver is alive
    trouble: Trouble | None = None  # for which nothing is decided
    repeated: tuple[campaigns.Campaign, ...] = ()

    @property
    def lines(self) -> list[str]:
        """A row each, and what the queue stands still for."""
        driven = self.controlled or (all(each.is_over for each in self.jobs) and not self.repeated)
        return [
            *jobs_lines(self.jobs, driven),
            *campaign_lines(self.repeated),
            *trouble_lines(self.trouble),
        ]

    @property
    def exit_code(self) -> int:
        return 3 if self.trouble else 0


@dataclass(frozen=True, slots=True)
class JobCancelled(Shown):
    """A job that nobody wants any more."""

    schema = "twofold/job-cancelled/1"
    job: str
    repeats: bool = False  # it was a campaign

    @property
    def lines(self) -> list[str]:
        """In one line."""
        if self.repeats:
            return [f"{self.job} is not repeated any more; a job of it that runs goes on"]
        return [f"{self.job} is cancelled: where it runs it writes a last checkpoint and ends"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a submission says of its job; empty and None where it says nothing."""

    name: str = ""
    team: str = ""
    priority: int | None = None
    ranks: int = 1
    slots: int | None = None
    kind: str = "command"
    saves: bool = False
    expect: str = ""
    env: tuple[str, ...] = ()  # names of variables that it is given of this environment
    order: Path | None = None  # JSON of what a training run does, in place of what the spec says
    model: ModelWanted = field(default_factory=ModelWanted)


def submit_job(
    spec: Path, command: Sequence[str] = (), wanted: Wanted = Wanted(), scenario: str = ""
) -> JobSubmitted:
    """Queue a training run of a spec, what becomes of a registry's version, or a command, and see that a
    driver is there.

    A run with `repeats:` is queued again at each of its turns, unless it is trained by an order of its own.
    Raises ValueRefusedError for what this machine's slots cannot run, FileError for what is no order,
    UsageError, MissingExtraError.
    """
    command, wanted = _of_model(tuple(command), wanted)
    if command and wanted.order:
        raise UsageError("`--order` is of a training run", hint="leave it out, or what else is to be run")
    require_extra("live", *(() if command else ("train",)))
    path = spec_path(spec)
    read, state = load(path).spec, known_state(spec)
    slot_count = slots_here(read)
    queue = queue_settings(slot_count, scenario)
    run = None if command else _run_of(read, wanted.name)
    of_spec = run if run is not None and wanted.order is None else None
    repeats_every_s = of_spec.repeats_every_s if of_spec else None
    planned, notes = _planned(path, of_spec) if of_spec else (None, ())
    if repeats_every_s and wanted.env:
        what = "keys of `--env` are forgotten when a job is over, and `repeats` runs it again"
        raise ValueRefusedError(what, hint="leave out one of the two")
    with orders.submitting(state):
        held = _as_held(state, queue, anew=bool(scenario))
        if run is None:
            order = _of_command(state, tuple(command), wanted)
        elif wanted.order:
            order = _of_order(state, run, wanted.order, wanted, accelerators=held.accelerators)
        else:
            order = order_of_run(state, read, wanted, accelerators=held.accelerators, planned=planned)
        if order.slot_count > slot_count:
            what = f"`{order.job_id}` asks for {order.slot_count} slots, and there are {slot_count}"
            fewer = "`--ranks`" if command else "ranks"
            hint = f"write fewer {fewer}, or `on: 1x{order.slot_count}x{MACHINE}`"
            raise ValueRefusedError(what, hint=hint)
        orders.write_settings(state, held)
        orders.submit(state, order, _named(wanted.env))
        campaign = _repeated(state, order, repeats_every_s) if repeats_every_s else None
    _see_to_a_driver(state)
    by = f" by {wanted.order.name}" if wanted.order else ""
    said = shlex.join(order.command) if command else f"training run of {path.name}{by}"
    told = order.job_id, order.team, order.priority, order.slot_count, slot_count
    return JobSubmitted(*told, said, trouble_of(state), campaign, notes)


def _of_model(command: tuple[str, ...], wanted: Wanted) -> tuple[tuple[str, ...], Wanted]:
    """The command that does what is wanted with a version; as it was where no version is named."""
    if not wanted.model.version:
        if wanted.model != ModelWanted():
            what = "`--on`, `--tasks`, `--bits` and `--registry` are of a version"
            raise UsageError(what, hint="name it: `--version NAME:3`")
        return command, wanted
    if command or wanted.ranks > 1:
        what = f"a version is `--kind {wanted.kind}` by one process of ours"
        raise UsageError(
            what, hint="leave out the command and `--ranks`; `--slots 2` gives it the cores of two"
        )
    if wanted.saves:
        raise UsageError(f"`--kind {wanted.kind}` writes no checkpoint", hint="leave out `--saves`")
    found = command_of(wanted.kind, wanted.model)
    return found, replace(wanted, name=wanted.name or wanted.kind)


def _planned(path: Path, run: TrainingRun) -> tuple[Plan | None, tuple[str, ...]]:
    """The run's plan, as `up` plans it beside a service, and what to say of it. A run that cannot be planned
    is trained as usual: the queue is for its owner to fill."""
    try:
        own = ready(path, date.today())
        alone = own.spec.model_copy(update={"training": (run,), "services": ()})
        planned = replace(own, spec=alone).planned()
    except TwofoldError as error:
        return None, (f"it shards as usual, since its layout cannot be planned: {error.message}",)
    return planned.plan, tuple(filter(None, [other_layout(planned.plan)]))


def _as_held(state: Path, queue: orders.QueueSettings, *, anew: bool) -> orders.QueueSettings:
    """What the queue has from its next idle moment on: what it has, unless it is told anew."""
    if anew or not (orders.jobs_folder(state) / orders.SETTINGS).exists():
        return queue
    before = orders.read_settings(state)
    if before.slot_count == queue.slot_count:
        return before
    return replace(before, slot_count=queue.slot_count, accelerators=queue.accelerators)


def _repeated(state: Path, order: orders.JobOrder, every_s: float) -> campaigns.Campaign:
    """The campaign is called like its jobs without their number."""
    return campaigns.begin(state, order.job_id.rpartition("-")[0], every_s, time.time(), order)


def list_jobs(spec: Path) -> JobsListed:
    """Every job that was submitted for a spec's machine. Raises FileError when none was."""
    require_extra("live")
    state = known_state(spec)
    orders.read_settings(state)
    controlled = bool(running(state, watchdog.JOBS, exact=True))
    repeated = tuple(campaigns.campaigns_of(state))
    return JobsListed(tuple(jobs_of(state)), controlled, trouble_of(state), repeated)


def cancel_job(spec: Path, job: str) -> JobCancelled:
    """Take a job out of the queue; one that runs writes a last checkpoint. The name of one that `repeats`,
    without a number, ends the repeating. Raises UnknownNameError."""
    require_extra("live")
    state = known_state(spec)
    if job in {each.name for each in campaigns.campaigns_of(state)}:
        campaigns.end(state, job)
        return JobCancelled(job, repeats=True)
    over = {each.job_id: each.state for each in jobs_of(state) if each.is_over}
    if job in over:
        raise ValueRefusedError(f"`{job}` is {over[job]}", hint=f"see `twofold jobs list {spec}`")
    orders.cancel(state, job)
    _see_to_a_driver(state)
    return JobCancelled(job)


def job_logs(spec: Path, tell: OnText, job: str, follow: bool = False) -> ShownLogs:
    """What a job said last; with `follow` what it says from now on, until it is over or Ctrl-C."""
    require_extra("live")
    state = known_state(spec)
    orders.read_order(state, job)
    path = log_path(state, f"job-{job}")
    if not path.exists() and not follow:
        raise FileError(
            f"`{job}` has said nothing yet", hint=f"see `twofold jobs list {spec}`, or add `--follow`"
        )
    said, end = (last_of(path), path.stat().st_size) if path.exists() else ([], 0)
    if not follow:
        return ShownLogs({job: tuple(said)})
    for line in said:
        tell(line)
    with suppress(KeyboardInterrupt):
        for _, line in following({job: path}, {job: end}, _goes_on(state, job)):
            tell(line)
    return ShownLogs({})


def slots_here(spec: Spec) -> int:
    """The shares of this machine that a spec plans with: each is a slot."""
    runs, services = spec.training, spec.services
    stated = [*(run.on for run in runs), *(service.on for service in services)]
    given = [on for on in stated if on is not None and on.accelerator == MACHINE]
    if not given:
        hint = f"write `on: 1x2x{MACHINE}` in `training:`: two slots, each with half of it"
        raise ValueRefusedError("the spec says nothing of this machine's slots", hint=hint)
    return max(on.count * (on.accelerators_per_node or 1) for on in given)


def queue_settings(slot_count: int, scenario: str = "") -> orders.QueueSettings:
    """What the queue's brain is told: as a rehearsal of the scenario tells its own, where one is named.

    `failures` of the scenario are believed from the start here, where the twin has them happen: a node is
    this machine.
    """
    queue = orders.QueueSettings(slot_count, accelerators=accelerator_count() >= slot_count)
    change = find_scenario(scenario).cluster if scenario else None
    if change is None:
        return queue
    shares = {quota.team: quota.share_fraction for quota in change.quotas}
    told = brain_settings(change, shares, slot_count)
    cadence = told.cadence
    if change.failures_per_node_per_s:
        rate = change.failures_per_node_per_s / slot_count
        cadence = replace(cadence, prior_failures_per_accelerator_s=rate)
    return replace(queue, cluster=replace(told, cadence=cadence, watch=queue.cluster.watch))


def _of_command(state: Path, command: tuple[str, ...], wanted: Wanted) -> orders.JobOrder:
    slot_count = wanted.ranks if wanted.slots is None else wanted.slots
    if slot_count % wanted.ranks:
        what = f"{slot_count} slots do not divide among {wanted.ranks} ranks"
        raise ValueRefusedError(
            what, hint=f"write `--slots {wanted.ranks * max(1, slot_count // wanted.ranks)}`"
        )
    job_id = orders.new_job_id(state, wanted.name or Path(command[0]).stem)
    order = orders.JobOrder(
        job_id=job_id,
        command=command,
        slot_count=slot_count,
        process_count=wanted.ranks,
        folder=str(orders.job_folder(state, job_id) / "run"),
        kind=wanted.kind,
        saves=wanted.saves,
        working_folder=str(Path.cwd()),
    )
    return _as_wanted(order, wanted)


def order_of_run(
    state: Path, spec: Spec, wanted: Wanted, *, accelerators: bool = False, planned: Plan | None = None
) -> orders.JobOrder:
    """The trainer, told what the spec says, laid out as planned. It writes a checkpoint when the brain asks,
    and its last one.

    It trains on what the slots are: `accelerators`, one for each rank, else cores.
    """
    run = _run_of(spec, wanted.name)
    job_id = orders.new_job_id(state, run.name)
    folder = orders.job_folder(state, job_id)
    job = replace(
        train_settings(spec.model_copy(update={"training": (run,)}), state),
        folder=folder / "run",
        kill_rank=None,
        kill_after_step=None,
        device="cuda" if accelerators else "cpu",  # ranks on cores are hidden the accelerators
    )
    job = replace(laid_out(job, planned) if planned else job, checkpoint_every_steps=job.steps)
    return _as_wanted(_queued(folder, run, job, run.kind), wanted)


def _of_order(
    state: Path, run: TrainingRun, path: Path, wanted: Wanted, *, accelerators: bool
) -> orders.JobOrder:
    """The trainer, told what a file says; the model, the team and what a checkpoint costs are of the run."""
    there = config_of(run.model, f"training `{run.name}`").resolve()
    unnamed = state / "nameless"  # until it is read what it is called
    job = queued_order(path, unnamed, there, device="cuda" if accelerators else "cpu")
    folder = orders.job_folder(state, orders.new_job_id(state, job.name))
    kind = "lora" if job.adapter_rank else "finetune" if job.weights else "pretrain"
    order = _queued(folder, run, replace(job, folder=folder / "run"), kind)
    here = str(Path.cwd())  # from which its paths are
    return _as_wanted(
        replace(order, slot_count=job.rank_count // job.host_count, working_folder=here), wanted
    )


def _queued(folder: Path, run: TrainingRun, job: TrainJob, kind: str) -> orders.JobOrder:
    """A job of the queue that runs the trainer, and the file that tells this what to do."""
    told = {key: value for key, value in asdict(job).items() if key not in ("folder", "model_config")}
    write_whole(folder / "order.json", json.dumps(told, indent=1) + "\n")
    where = ("--folder", str(job.folder.resolve()), "--model-config", str(job.model_config.resolve()))
    command = python_module("twofold.live.training.train_job", str((folder / "order.json").resolve()), *where)
    return orders.JobOrder(
        job_id=folder.name,
        command=tuple(command),
        slot_count=job.rank_count,
        process_count=1,
        folder=str(job.folder.resolve()),
        team=run.team or "default",
        priority=run.priority,
        kind=kind,
        checkpoint_write_s=run.checkpoint.write_within_s,
        checkpoint_stall_s=run.checkpoint.stall_s,
        saves=True,
        working_folder=str(folder.resolve()),
    )


def _named(variables: Sequence[str]) -> dict[str, str]:
    """What this environment has by these names. Raises ValueRefusedError for what it has not."""
    absent = [name for name in variables if name not in os.environ]
    if absent:
        what = f"this environment has no `{absent[0]}`"
        raise ValueRefusedError(what, hint=f"export {absent[0]}=… first, or leave it out of `--env`")
    return {name: os.environ[name] for name in variables}


def _as_wanted(order: orders.JobOrder, wanted: Wanted) -> orders.JobOrder:
    return replace(
        order,
        team=wanted.team or order.team,
        priority=order.priority if wanted.priority is None else wanted.priority,
        expected_s=parse_quantity(wanted.expect, Dimension.TIME) if wanted.expect else order.expected_s,
    )


def _run_of(spec: Spec, name: str) -> TrainingRun:
    if not spec.training:
        hint = "name a command behind `--`, or write `training:`"
        raise UsageError("the spec trains nothing, and no command is given", hint=hint)
    found = [run for run in spec.training if name in ("", run.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(run.name for run in spec.training)
    if name:
        raise UnknownNameError(f"no training run is named `{name}`", hint=f"runs: {names}")
    raise UsageError(
        f"the spec has {len(spec.training)} training runs", hint=f"write `--name` and one of {names}"
    )


def _see_to_a_driver(state: Path) -> None:
    (state / watchdog.ENDING).unlink(missing_ok=True)
    there = {child.role for child in running(state)}
    if watchdog.JOBS not in there:
        watchdog.start_manager(state, watchdog.JOBS)
    if "watchdog" not in there:
        watchdog.start_watchdog(state)


def _goes_on(state: Path, job: str) -> Callable[[], bool]:
    return lambda: not next(each.is_over for each in jobs_of(state) if each.job_id == job)
