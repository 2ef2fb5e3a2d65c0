"""From what `up` has brought up to the page of a proof: what it is made with, and what is said of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from twofold.app.gates import AT_HOME, ServedGate
from twofold.app.loop_settings import LoopRequest
from twofold.app.loop_stages import (
    USERS_GONE_S,
    estimate_of,
    others_asked_ago_s,
    own_load_ended_s,
    service_settings,
)
from twofold.app.planning import plan_digest
from twofold.app.proof_calibration import SEEN_COUNT
from twofold.app.proof_runs import Standing
from twofold.app.proof_scenarios import FEW, NAMES
from twofold.app.proving import Proved, Proving, proved
from twofold.app.releasing import Release, engine_of_release, slower_variant
from twofold.contracts.results import loop, proof
from twofold.core.errors import BusyError, ValueRefusedError
from twofold.core.estimate import Estimate
from twofold.device.files import DeviceRecord
from twofold.gating.build import BuiltGate
from twofold.live.control.admin_client import CONFIG
from twofold.live.control.engines import engine_name
from twofold.live.gateway.gateway_config import read_gateway_config
from twofold.live.loads import loads
from twofold.live.loads.texts import texts_of
from twofold.live.training.artefact import write_whole
from twofold.measure import proof_goals
from twofold.pages.shown_plan import ShownPlan
from twofold.rehearse.traffic import DrawnTraffic
from twofold.report import proof as shown
from twofold.report.answers import Held
from twofold.twin.serving.traffic import TrafficModel

FOLDER = "proof"
PAGE_FILE = "proof.json"
FIGURES = ("TTFT p50", "TPOT p50", "E2E p50")  # an estimate at mean lengths has no tail of theirs
GATE_MISS = 3
LENGTHS = (
    "prompts of the runs are of a half of the text that no calibration saw; answers end as they did there"
)
MEANS = "planned: the estimate of one replica's share at mean lengths; half of all requests are shorter"
SHARED = (
    "all replicas share this machine, which the load's clients use too: in the twin each that works or starts"
    " beside all of the service slows all {:.1f}×, as calibrated, and as evenly as no machine does"
)


@dataclass(frozen=True, slots=True)
class ProofShown(Held[proof.Proof]):
    """The page of a proof."""

    schema = proof.PROOF_SCHEMA

    @property
    def lines(self) -> list[str]:
        """Planned, rehearsed and live, side by side."""
        return shown.proof_lines(self.data)

    @property
    def exit_code(self) -> int:
        """3 where a goal is missed."""
        return 0 if self.data.is_inside else GATE_MISS


def proof_of(
    request: LoopRequest,
    plan: ShownPlan,
    device: DeviceRecord,
    run: loop.TrainingMeasured | None,
    gate: ServedGate,
    release: Release,
    requests: int,
    seed: int,
) -> proof.Proof:
    """Prove it, and keep the page in the state's folder. Raises what `proved` raises."""
    settings = service_settings(request, gate, release)
    request.progress("calibrate: make a slower build")
    slower = engine_of_release(request, slower_variant(request))
    standing = Standing(request.state, settings, slower)
    found = proved(
        Proving(
            standing=standing,
            task=gate.task,
            model=traffic_of(gate, request.serving.class_name),
            texts=texts_of(seed, release.folder),
            folder=request.state / FOLDER,
            seed=seed,
            finished_count=requests,
            seen_count=min(SEEN_COUNT, requests),
            tell=request.progress,
        )
    )
    page = page_of(request, plan, device, run, gate, found, standing, requests, seed)
    write_whole(request.state / FOLDER / PAGE_FILE, ProofShown(page).json)
    return page


def need_alone(state: Path) -> None:
    """Raise BusyError while others use the service: its replicas are about to be killed."""
    users = others_asked_ago_s(state, own_load_ended_s(state))
    if users is not None and users < USERS_GONE_S:
        what = f"others asked this service {users:.0f} s ago, and a proof kills replicas of it"
        hint = f"prove it when nobody has asked for {USERS_GONE_S / 60:.0f} minutes, or on another machine"
        raise BusyError(what, hint=hint)


def traffic_of(gate: ServedGate, class_name: str) -> TrafficModel:
    """How requests of a class come. Raises ValueRefusedError for one that is replayed from a trace."""
    for part in gate.task.traffic.parts:
        if isinstance(part, DrawnTraffic) and part.model.class_name == class_name:
            return part.model
    what = f"class `{class_name}` is replayed from a trace, and a proof draws its requests"
    raise ValueRefusedError(what, hint="give `rate`, `input` and `output` under `traffic`")


def page_of(
    request: LoopRequest,
    plan: ShownPlan,
    device: DeviceRecord,
    run: loop.TrainingMeasured | None,
    gate: ServedGate,
    found: Proved,
    standing: Standing,
    requests: int,
    seed: int,
) -> proof.Proof:
    """What was found as a page, with what the plan had said of the steady scenario."""
    planned = planned_figures(request, found, standing)
    rows = tuple(
        replace(row, planned=planned.get(row.name)) if row.scenario == "steady" else row for row in found.rows
    )
    uses = [(each.scenario, each.use) for each in found.runs]
    live = read_gateway_config(request.state / CONFIG)
    limits = gate.task.gate.in_flight_limits
    return proof.Proof(
        name=plan.name,
        machine=device.identity.words,
        seed=seed,
        spec_digest=plan.digests.spec,
        plan_digest=plan_digest(plan),
        device_digest=device.digest,
        twin_gate_digest=replace(gate.task.gate, settings=gate.task.world.gate).digest,
        live_gate_digest=BuiltGate(live.gate, live.beliefs, limits).digest,
        frozen_sha256=found.frozen.sha256,
        frozen_at=found.frozen.at,
        rate_per_s=found.rate_per_s,
        knee_per_s=found.calibration.knee_per_s,
        replica_count=standing.settings.replica_count,
        calibration=found.calibration.use,
        differs=(*differs_of(gate, found.calibration.fit.times.crowd_ratio), LENGTHS, MEANS),
        rows=(*(training_rows(plan, run) if run else ()), *rows),
        runs=found.runs,
        findings=proof_goals.findings_of(rows, uses, found.calibration.use),
        learned=learned_from(rows),
        notes=notes_on(found, requests),
    )


def differs_of(gate: ServedGate, crowd_ratio: float) -> tuple[str, ...]:
    """What differs by necessity. Where the gate scales, no crowd was calibrated."""
    if gate.built.settings.scaling is not None:
        return gate.differs
    return (*(each for each in gate.differs if each != AT_HOME), SHARED.format(crowd_ratio))


def planned_figures(request: LoopRequest, found: Proved, standing: Standing) -> Mapping[str, Estimate]:
    """What the plan's models say of the steady scenario; nothing where they say it saturates."""
    wanted, count = request.serving, standing.settings.replica_count
    served = loop.ServingMeasured(engine_name(), count, 0.0, None, "", ())
    load = replace(
        loads.load_point("steady", loads.Load(), rate_per_s=found.rate_per_s),
        input_tokens=float(wanted.input_tokens),
        output_tokens=float(wanted.output_tokens),
    )
    estimate = estimate_of(request, served, load)
    percentiles = estimate.percentiles if estimate else {}
    return {name: each for name in FIGURES if (each := percentiles.get(name.lower().replace(" ", "_")))}


def training_rows(plan: ShownPlan, run: loop.TrainingMeasured) -> tuple[proof.ProofRow, ...]:
    """What the one training run of this service came to, for the same page; it is not run again."""
    planned = plan.training[0].step_s
    rows = [proof.ProofRow("train", "step", "s", planned, None, (run.step_s_p50,), None, None, "")]
    if run.recovery is not None:
        back_s = run.recovery.kill_to_step_s
        rows.append(proof.ProofRow("train", "kill → next step", "s", None, None, (back_s,), None, None, ""))
    return tuple(rows)


def learned_from(rows: tuple[proof.ProofRow, ...]) -> tuple[proof.Learned, ...]:
    """By what factors the plan's figures of the steady scenario are off."""
    return tuple(
        proof.Learned(row.name, fmean(known) / row.planned.value)
        for row in rows
        if row.planned is not None and row.planned.value
        if (known := [each for each in row.live if each is not None])
    )


def notes_on(found: Proved, requests: int) -> tuple[str, ...]:
    """What to know before trusting the page."""
    notes = []
    there = found.calibration
    notes.append(
        f"calibrated: a cold start beside others takes {there.there.cold_start_s:.1f} s, a token of the bad"
        f" release {there.release_factor:.2f}× as long; the fit is off by {there.fit.off_fraction:.0%}"
    )
    few = [f"{run.scenario} {run.finished}" for run in found.runs if run.finished < requests]
    if few:
        notes.append(f"fewer than {requests} requests finished: {', '.join(few)}")
    if left := [name for name in NAMES if name not in {run.scenario for run in found.runs}]:
        notes.append(f"not run: {' and '.join(left)}; they take `--requests {FEW}`")
    if found.others_asked:
        notes.append(f"others asked the service {found.others_asked:,} times during the runs")
    return tuple(notes)
