"""The stages of `up`, in their order: each keeps what still fits and returns what the next one needs."""

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

from twofold.answer.serve_answer import ServingEstimate
from twofold.app.estimating import Machines, estimate_serve
from twofold.app.gates import ServedGate, served_gate
from twofold.app.loop_page import SCALE_OUT, LoopShown, loop_page, notes_on_loads, share_of_load
from twofold.app.loop_settings import (
    BATCH_TOKENS,
    MACHINE,
    SEED,
    LoopRequest,
    ServeSettings,
    engine_settings,
    laid_out,
    longest_of,
    other_layout,
)
from twofold.app.loop_tiers import tier_notes, tiers_measured
from twofold.app.measuring import measure_device
from twofold.app.planning import plan, plan_to_json
from twofold.app.releasing import Release, engine_of_release, limits_of
from twofold.app.smaller import smaller_model
from twofold.app.sources import device_folder
from twofold.contracts.results import loop
from twofold.core.data import from_data, to_json
from twofold.core.errors import (
    AlteredError,
    BusyError,
    FileError,
    InfeasibleError,
    ValueRefusedError,
)
from twofold.core.estimate import Estimate
from twofold.device.files import DeviceRecord, notes_about, read_device
from twofold.live.control import trials
from twofold.live.control.admin_client import gateway_state
from twofold.live.control.engines import BLOCK_TOKENS, engine_name
from twofold.live.control.service import ServiceSettings
from twofold.live.control.supervisor import Service, bring_up
from twofold.live.control.tier_processes import tier_process
from twofold.live.line_file import wall_text
from twofold.live.loads import loader
from twofold.live.processes import running
from twofold.live.training.artefact import write_whole
from twofold.live.training.train_job import TrainJob, run_training, trained_model
from twofold.measure.doctor import diagnose
from twofold.pages.shown_plan import ShownPlan
from twofold.rehearse.loads import SEED_COUNT, OpenLoad, load_figures
from twofold.rendering.gateway_watch import watch_files

WARM_UP_REQUESTS = 2
LOAD_ENDED = "load-ended"  # when our own load of the service ended: whoever asked later is somebody else
SERVING_FILE = "serving.json"  # what was measured of the service
USERS_GONE_S = 300.0
TWIN_SAYS = (
    f"twin: the middle of {SEED_COUNT} rehearsals of the open load through the same gate, and the range that"
    " 80 % of them lie in; chance alone moves them"
)


def measure_machine(request: LoopRequest) -> DeviceRecord:
    """The measured device beside the spec; measured now unless there is a fresh one of this machine.

    One that was disturbed is kept, and its plan says so: measuring again would find our own service running.
    """
    beside, rank_count = request.spec.resolve().parent, request.share_count
    there = device_folder(beside)
    try:
        record = read_device(there)[0] if there else None
    except (AlteredError, FileError):  # broken is as good as absent
        record = None
    fresh = record and not notes_about(replace(record, load_average=0.0), date.today())
    is_accelerator = request.training is not None and request.training.device != "cpu"
    wanted = rank_count, is_accelerator
    if record and fresh and (record.rank_count, bool(record.identity.accelerator)) == wanted:
        request.progress(f"measured before, and taken as it is: this machine, on {record.measured_on}")
        return record
    request.progress("measure this machine")
    progress = request.progress
    return measure_device(beside, rank_count, date.today(), lambda text: progress(f"measure: {text}")).record


def plan_for_it(request: LoopRequest) -> ShownPlan:
    """Both halves, planned for the measured device, kept beside it."""
    request.progress("plan both halves")
    planned = plan(request.spec, date.today())
    write_whole(request.state / "plan.json", plan_to_json(planned))
    return planned


def gate_for_it(request: LoopRequest) -> tuple[LoopRequest, ServedGate]:
    """The gate that a rehearsal of the spec has, and the request with as many replicas as are planned."""
    gate = served_gate(request.spec, request.serving.replica_count, date.today())
    serving = request.serving
    if serving.server is not None and gate.pools:
        what = "a server of your own is one replica, which two pools cannot share"
        raise ValueRefusedError(what, hint="leave `pools: split` out of the service's `policies`")
    count = 1 if serving.server is not None else gate.replica_count  # how many a server has it does not say
    serving = replace(serving, replica_count=count)
    if serving.device != "cpu" and serving.server is None:  # it has memory of its own to fill
        count = max(1, int(gate.task.pool.cache_tokens) // BLOCK_TOKENS)
        serving = replace(serving, kv_block_count=count)
    return replace(request, serving=serving), gate


def need_idle_slots(job: TrainJob, state: Path, *, as_ordered: bool = False) -> None:
    """Raise BusyError where this would train beside jobs of the state's queue, and has not before;
    `as_ordered` once the job is as planned: then it is to have been this very job.
    """
    jobs = sorted({each.role.removeprefix("job-") for each in running(state, "job-")})
    if not jobs:
        return
    try:
        trained_model(job, state, as_ordered=as_ordered)
    except FileError as error:
        what = f"`{jobs[0]}` runs on the slots that `{job.name}` is to be trained on"
        hint = "wait for it, `twofold jobs cancel` it, or queue the training too with `twofold jobs submit`"
        raise BusyError(what, hint=hint) from error


def train(request: LoopRequest, job: TrainJob, planned: ShownPlan) -> tuple[loop.TrainingMeasured, Path]:
    """Train as planned, losing one worker on the way; at once when that was done before."""
    job = laid_out(job, planned)
    need_idle_slots(job, request.state, as_ordered=True)
    record = run_training(job, request.state, lambda text: request.progress(f"train: {text}"))
    return record, trained_model(job, request.state)


def keep_watch_files(request: LoopRequest, planned: ShownPlan, gate: ServedGate) -> None:
    """What Prometheus and Grafana read to watch the gateway, beside its logs."""
    folder = request.state / "watch"
    folder.mkdir(parents=True, exist_ok=True)
    classes = gate.built.settings.classes
    written_s = planned.training[0].run.checkpoints.write_s if planned.training else None
    reach = request.reach
    told = watch_files(
        planned.serving[0],
        classes,
        reach.own_host,
        request.port,
        written_s,
        reach.certificate,
    )
    for name, text in told.items():
        write_whole(folder / name, text)


def serve(request: LoopRequest, gate: ServedGate, release: Release) -> Service:
    """Bring up replicas and the gateway, whose gate is the one that was rehearsed."""
    for note in (*without_hosted(request), *in_clear(request)):
        request.progress(note)
    what = f"{request.serving.engine_count} replicas and the gateway"
    request.progress("start " + ("the gateway" if request.serving.server else what))
    return bring_up(service_settings(request, gate, release), request.state, request.progress)


def in_clear(request: LoopRequest) -> tuple[str, ...]:
    """What is to be said where keys of others can be read on their way."""
    if not request.reach.is_clear:
        return ()
    return (f"keys come to {request.reach.host} in clear text: `--certificate FILE` serves by TLS",)


def without_hosted(request: LoopRequest) -> tuple[str, ...]:
    """What is to be said where the spec's hosted API cannot be asked."""
    hosted = request.serving.overflow
    why = hosted.unasked if hosted is not None else ""
    return (
        (f"no hosted API takes what finds no place: {why}; put that right and call `up` again",)
        if why
        else ()
    )


def service_settings(request: LoopRequest, gate: ServedGate, release: Release) -> ServiceSettings:
    """What the supervisor is told. A copy that answers in need is made first, where there is none yet."""
    beliefs = gate.built.beliefs
    return ServiceSettings(
        engine=engine_of_release(request, release),
        replica_count=request.serving.replica_count,
        in_flight_limit=gate.in_flight_limit,
        pools=gate.pools,
        smaller=smaller_model(request),
        port=request.port,
        reach=request.reach,
        input_token_s=beliefs.input_token_s,
        output_token_s=beliefs.output_token_s,
        first_token_s=beliefs.first_token_s,
        gate=gate.built.settings,
        gate_digest=gate.built.digest,
        context_tokens=longest_of(request.serving.model_config),
        name=request.serving.name,
        zones=tuple(dict.fromkeys(group.order.zone for group in gate.task.world.replicas)),
        overflow=request.serving.overflow,
        registry=str(request.registry),
        registered=release.text.partition(":")[0],
        questions=release.questions,
        samples_fraction=request.serving.samples_fraction,
        limits=limits_of(request, gate.built.settings),
        prompt_tokens=request.serving.input_tokens,
        answer_tokens=request.serving.output_tokens,
        tier_servers=request.serving.tier_servers,
        tier_processes=tuple(
            tier_process(*told, str(request.spec.resolve().parent)) for told in request.serving.tier_commands
        ),
    )


def engine_text(told: ServeSettings) -> str:
    """The engine as the page names it; the release of one that runs elsewhere is not known."""
    return told.engine if told.server else engine_name(told.engine)


def measured_service(
    request: LoopRequest, service: Service, artefact: Path, gate_digest: str, *, load_asked: bool
) -> tuple[loop.ServingMeasured, tuple[str, ...]]:
    """The service under load, and what is to be said of that: at the first `up` of an artefact, or when it is
    asked for, and never while others use the service. Otherwise what was measured before is shown."""
    path = request.state / SERVING_FILE
    try:
        before = from_data(loop.ServingMeasured, json.loads(path.read_text("utf-8")))
    except (OSError, ValueError):
        before = None
    engine = engine_text(request.serving)
    if before is not None and (before.artefact, before.engine) != (artefact.name, engine):
        before = None  # of another model, or served by another engine
    since_s = own_load_ended_s(request.state)
    users = others_asked_ago_s(request.state, since_s)
    if users is not None and users < USERS_GONE_S:
        note = f"not put under load: others asked it {users:.0f} s ago"
        if before is not None and (other := other_gate(before, gate_digest)):
            note = f"{note}; loads as measured by an earlier `up`{other}"
    elif before is not None and not load_asked:
        note = f"loads as measured by an earlier `up`{other_gate(before, gate_digest)}"
        note = f"{note}; `--load-for` measures them again"
    else:
        with own_load(request.state):
            measured = put_under_load(request, service, artefact)
        scale_out = before.scale_out if before else None
        measured = replace(measured, scale_out=scale_out, gate_digest=gate_digest)
        write_whole(path, to_json(measured))
        return measured, ()
    if before is None:
        before = _served(request, service, artefact, ())
    return before, (note,)


def other_gate(before: loop.ServingMeasured, gate_digest: str) -> str:
    """What is to be said of loads that came through a gate which is not the one that serves now."""
    if before.gate_digest in ("", gate_digest):
        return ""
    return f" under gate {before.gate_digest[:12]}, the twin's column under this one"


@contextmanager
def own_load(state: Path) -> Iterator[None]:
    """A load of ours. When it ended is kept, however it did: what came before is nobody else's."""
    try:
        yield
    finally:
        write_whole(state / LOAD_ENDED, f"{time.monotonic():.3f}")


def own_endpoint(state: Path, model: str = "") -> loader.Endpoint:
    """The completions of a state's service, as our own loads ask for them. Raises RunError without one."""
    url, headers, certificate = trials.own_door(state)
    bare = loader.bare_endpoint(url, model)
    return replace(bare, headers=tuple(headers.items()), certificate=certificate)


def own_load_ended_s(state: Path) -> float:
    """When our own load ended, on the machine's clock; minus infinity when there was none in this boot."""
    try:
        ended_s = float((state / LOAD_ENDED).read_text())
    except (OSError, ValueError):
        return -math.inf
    return ended_s if ended_s <= time.monotonic() else -math.inf


def others_asked_ago_s(state: Path, since_s: float) -> float | None:
    """How long ago somebody else asked the service for something, later than `since_s`; None: nobody did."""
    found = gateway_state(state)
    asked_s = found["recent"]["arrived_at_s"] if found else None
    if asked_s is None or asked_s <= since_s:
        return None
    return float(time.monotonic() - asked_s)


def put_under_load(request: LoopRequest, service: Service, artefact: Path) -> loop.ServingMeasured:
    """Closed loops, then an open one at the rate that the class plans for."""
    wanted, loads = request.serving, []
    prompts = loader.prompts_of(artefact, wanted.input_tokens, seed=SEED)
    endpoint = own_endpoint(request.state)
    closed = partial(loader.closed_loop, endpoint, prompts, duration_s=wanted.load_s, seed=SEED)
    for clients in wanted.closed_loads:
        request.progress(f"load: {clients} client{'s' if clients > 1 else ''} in a closed loop")
        loads.append(closed(concurrency=clients, max_tokens=wanted.output_tokens, warmup_count=clients))
    request.progress(f"load: {wanted.rate_per_s:.2g} requests/s at random")
    since = wall_text(time.time())
    loads.append(
        loader.open_loop(
            endpoint,
            prompts,
            rate_per_s=wanted.rate_per_s,
            duration_s=wanted.load_s,
            max_tokens=wanted.output_tokens,
            seed=SEED,
            warmup_count=WARM_UP_REQUESTS,
        )
    )
    served = _served(request, service, artefact, tuple(loads))
    names = list(dict.fromkeys(each.replica_id.rpartition("-")[0] for each in wanted.tier_servers))
    return replace(served, tiers=tiers_measured(request.state, names, since))


def _served(
    request: LoopRequest, service: Service, artefact: Path, loads: tuple[loop.LoadPoint, ...]
) -> loop.ServingMeasured:
    wanted = request.serving
    capacity = engine_settings(wanted, artefact).kv_capacity_tokens * wanted.replica_count
    return loop.ServingMeasured(
        engine=engine_text(wanted),
        replica_count=wanted.replica_count,
        kv_capacity_tokens=capacity,
        cold_start_s=service.cold_start_s,
        artefact=artefact.name,
        loads=loads,
    )


def page_of(
    request: LoopRequest,
    planned: ShownPlan,
    device: DeviceRecord,
    run: loop.TrainingMeasured | None,
    served: loop.ServingMeasured,
    gate: ServedGate,
    said: tuple[str, ...] = (),
    releases: tuple[loop.ReleaseTried, ...] = (),
    tail_of_start: Estimate | None = None,
) -> loop.LoopPage:
    """Everything on one page, kept beside the plan."""
    estimates = {load.name: estimate_of(request, served, load) for load in served.loads if load.finished}
    known = {name: estimate for name, estimate in estimates.items() if estimate is not None}
    notes = tuple(
        f"the plan says that {name} saturates the replicas: it has no figures there"
        for name, estimate in estimates.items()
        if estimate is None
    )
    notes += (*filter(None, [other_layout(planned)]), *said, *without_hosted(request))
    in_need = request.serving.engine_count - request.serving.replica_count
    notes += notes_on_loads(served, device.rank_count - in_need)
    twin = rehearsed_loads(request, gate, served)
    if twin:
        notes += (TWIN_SAYS,)
    if tail_of_start is not None:
        twin[SCALE_OUT] = {"ttft_p95": tail_of_start}
    notes += tuple(tier_notes(planned.serving[0].tiers, served.tiers))
    page = loop_page(
        planned, device, run, served, known, diagnose([run] if run else [], [served]), notes, twin
    )
    page = replace(page, gate_digest=gate.built.digest, differs=gate.differs, releases=releases)
    write_whole(request.state / "page.json", LoopShown(page).json)
    return page


def rehearsed_loads(
    request: LoopRequest, gate: ServedGate, served: loop.ServingMeasured
) -> dict[str, Mapping[str, Estimate]]:
    """What the twin shows of each open load behind the gate that served it; it knows no closed ones."""
    found: dict[str, Mapping[str, Estimate]] = {}
    for load in served.loads:
        if load.rate_per_s and load.finished:
            request.progress(f"rehearse {load.rate_per_s:.2g} requests/s in the twin, {SEED_COUNT} times")
            asked = OpenLoad(
                request.serving.class_name,
                load.rate_per_s,
                load.sent / load.rate_per_s,
                load.input_tokens,
                max(load.output_tokens, 1.0),
            )
            found[load.name] = load_figures(gate.task, served.replica_count, asked)
    return found


def estimate_of(
    request: LoopRequest, served: loop.ServingMeasured, load: loop.LoadPoint
) -> ServingEstimate | None:
    """What the plan's models say of one replica's share of a load; None where they say it saturates."""
    clients, rate_per_s, _ = share_of_load(load, served.replica_count)
    engine, _, version = served.engine.partition(" ")
    try:
        answer = estimate_serve(
            str(request.serving.model_config),
            Machines(f"1x{MACHINE}", device=request.state / "device"),
            input_tokens=f"{load.input_tokens:.6g}",
            output_tokens=f"{max(load.output_tokens, 1.0):.6g}",
            concurrency=clients,
            rate=f"{rate_per_s:.6g} /s" if rate_per_s else "",
            weights=request.serving.planned_format,
            kv=request.serving.planned_format,
            engine=f"{engine} {version}",
            chunk=BATCH_TOKENS,
        )
    except InfeasibleError:
        return None
    return answer.data
