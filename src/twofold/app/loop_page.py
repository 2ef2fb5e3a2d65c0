"""The page of the loop: each figure that was measured, beside what the plan had said of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from twofold.answer.serve_answer import ServingEstimate
from twofold.app.loop_tiers import tier_rows
from twofold.app.planning import plan_digest
from twofold.contracts.results import loop
from twofold.contracts.results.parts import Part
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import TierPlan
from twofold.core.estimate import Estimate, Source, exact
from twofold.device.files import DeviceRecord
from twofold.report.answers import Held
from twofold.report.loop import loop_lines

SCALE_OUT = "scale-out"  # among what the twin rehearsed
TAIL_REQUESTS = 20  # below so many, a 95th percentile is little but the slowest request
# The measured part that a planned one is in; launches, head and jitter pass in compute.
MEASURED_IN = dict.fromkeys(("TP", "CP", "EP", "PP", "DP", "bubble"), "communication")
MEASURED_IN |= {"optimiser": "optimiser", "data": "data"}


@dataclass(frozen=True, slots=True)
class LoopShown(Held[loop.LoopPage]):
    """The page of a loop. Exits 3 where a release, or what a kill cost, ended otherwise than it was to."""

    schema = loop.LOOP_SCHEMA

    @property
    def lines(self) -> list[str]:
        """Planned beside measured, then what the doctor saw."""
        return loop_lines(self.data)

    @property
    def exit_code(self) -> int:
        return 3 if self.data.missed else 0


def loop_page(
    plan: Plan,
    device: DeviceRecord,
    run: loop.TrainingMeasured | None,
    service: loop.ServingMeasured,
    planned: Mapping[str, ServingEstimate],
    findings: tuple[loop.Finding, ...],
    notes: tuple[str, ...],
    twin: Mapping[str, Mapping[str, Estimate]] = MappingProxyType({}),
) -> loop.LoopPage:
    """One run and one service beside their plan. `planned` holds one estimate per load by its name, `twin`
    the figures of those that were rehearsed."""
    served = plan.serving[0]
    rows = training_rows(plan, run) if run else ()
    rows += serving_rows(planned, service, served.cold_start_s, twin, served.tiers)
    return loop.LoopPage(
        name=plan.name,
        machine=device.identity.words,
        spec_digest=plan.digests.spec,
        plan_digest=plan_digest(plan),
        device_digest=device.digest,
        rows=rows,
        training=(run,) if run else (),
        serving=(service,),
        findings=findings,
        notes=(*notes, *plan.warnings),
    )


def training_rows(plan: Plan, run: loop.TrainingMeasured) -> tuple[loop.Row, ...]:
    """The training half: step and its parts, rate, memory, checkpoint, recovery."""
    planned = plan.training[0]
    step, parts = planned.step_s, _grouped(planned.step_parts)
    measured = run.parts
    tokens, compute_s = run.tokens_per_step, measured.forward_s + measured.backward_s
    size_bytes = planned.run.checkpoints.size_bytes
    rate = Estimate(tokens / step.value, tokens / step.high, tokens / step.low, "tok/s", step.source)
    size = exact(size_bytes, "B", step.source) if size_bytes is not None else None
    recovered_s = run.recovery.kill_to_step_s if run.recovery else None
    rows: list[tuple[str, str, Estimate | None, float | None]] = [
        ("step", "s", step, run.step_s_p50),
        ("· compute", "s", parts.get("compute"), compute_s),
        ("· communication", "s", parts.get("communication"), measured.communication_s),
        ("· optimiser", "s", parts.get("optimiser"), measured.optimiser_s),
        ("· waiting for data", "s", parts.get("data"), measured.data_s),
        ("· saving", "s", None, measured.checkpoint_s),
        ("· the rest", "s", None, measured.other_s),
        ("rate", "tok/s", rate, tokens / run.step_s_p50),
        ("memory of a rank", "memory B", planned.memory_bytes, float(run.peak_memory_bytes)),
        ("checkpoint size", "B", size, float(run.checkpoint_bytes)),
        ("checkpoint written in", "s", None, run.checkpoint_write_s),
        ("kill → next step", "s", None, recovered_s),
    ]
    return tuple(_row("training", *row) for row in rows)


def serving_rows(
    planned: Mapping[str, ServingEstimate],
    service: loop.ServingMeasured,
    cold_start: Estimate | None,
    twin: Mapping[str, Mapping[str, Estimate]] = MappingProxyType({}),
    tiers: Sequence[TierPlan] = (),
) -> tuple[loop.Row, ...]:
    """The serving half, load by load. `planned` holds one estimate per load, of one replica's share of it."""
    rows = [_row("serving", "cold start of a replica", "s", cold_start, service.cold_start_s)]
    for load in service.loads:
        seen = twin.get(load.name, {})
        rows += _load_rows(planned.get(load.name), load, service.replica_count, seen)
        if load.rate_per_s:
            rows += tier_rows(tiers, service.tiers, f"{load.rate_per_s:.2g} /s", seen)
    if (more := service.scale_out) is not None:
        tail = twin.get(SCALE_OUT, {}).get("ttft_p95")
        rows += [
            _row("serving", f"start beside {more.rate_per_s:.2g} /s", "s", cold_start, more.cold_start_s),
            _row("serving", "· warm", "s", None, more.warm_start_s),
            _row("serving", "· TTFT p95 before it", "s", None, more.ttft_s_p95_before),
            _row("serving", "· TTFT p95 while it starts", "s", None, more.ttft_s_p95, tail),
            _row("serving", "· memory of replicas before", "B", None, float(more.memory_before_bytes)),
            _row("serving", "· memory with it", "B", None, float(more.memory_after_bytes)),
        ]
    return tuple(rows)


def share_of_load(load: loop.LoadPoint, replica_count: int) -> tuple[int | None, float | None, int]:
    """What one replica gets of a load: its clients, or its requests/s, and how many replicas have work.

    Least work spreads clients evenly; a lone client keeps one replica busy.
    """
    if load.concurrency is None:
        return None, (load.rate_per_s or 0.0) / replica_count, replica_count
    busy = min(load.concurrency, replica_count)
    return max(1, round(load.concurrency / busy)), None, busy


def notes_on_loads(service: loop.ServingMeasured, share_count: int) -> tuple[str, ...]:
    """What to know before trusting the serving half. The device is one of `share_count` equal shares."""
    silent = [load.name for load in service.loads if not load.finished]
    few = [f"{load.name} {load.finished}" for load in service.loads if 0 < load.finished < TAIL_REQUESTS]
    notes = []
    if silent:
        notes.append(f"no request of {', '.join(silent)} was answered: the logs of the service say why")
    if few:
        notes.append(f"fewer than {TAIL_REQUESTS} requests finished ({', '.join(few)}): p95 is the slowest")
    if share_count != service.replica_count:
        notes.append(
            f"the plan knows 1 of {share_count} shares of the machine, a replica has 1 of"
            f" {service.replica_count}: the serving half compares unequal things"
        )
    return tuple(notes)


def _load_rows(
    planned: ServingEstimate | None,
    load: loop.LoadPoint,
    replica_count: int,
    twin: Mapping[str, Estimate],
) -> list[loop.Row]:
    _, _, busy = share_of_load(load, replica_count)
    at = f"{load.concurrency} clients" if load.concurrency else f"{load.rate_per_s:.2g} /s"
    if load.concurrency == 1:
        at = "1 client"
    percentiles = planned.percentiles if planned else {}
    wanted = [
        ("TTFT p50", "ttft_p50", load.ttft.p50_s if load.ttft else None),
        ("TTFT p95", "ttft_p95", load.ttft.p95_s if load.ttft else None),
        ("TPOT p50", "tpot_p50", load.tpot.p50_s if load.tpot else None),
        ("E2E p95", "e2e_p95", load.e2e.p95_s if load.e2e else None),
    ]
    rows = [
        _row("serving", f"{at}: {name}", "s", percentiles.get(key), value, twin.get(key))
        for name, key, value in wanted
    ]
    if load.concurrency is None:  # an open load's output is what was asked of it
        return rows
    rate = planned.output_tokens_per_s.times(busy) if planned else None
    return [*rows, _row("serving", f"{at}: output", "tok/s", rate, load.output_tokens_per_s)]


def _row(
    half: str,
    name: str,
    unit: str,
    planned: Estimate | None,
    measured: float | None,
    twin: Estimate | None = None,
) -> loop.Row:
    inside = None
    if planned and measured is not None and planned.low < planned.high:  # a point has no inside
        inside = planned.low <= measured <= planned.high
    return loop.Row(half, name, unit, planned, measured, inside, twin)


def _grouped(parts: Iterable[Part]) -> dict[str, Estimate]:
    """Planned parts summed under the names of the measured ones; bounds add, as for one common cause."""
    groups: dict[str, list[Estimate]] = {}
    for part in parts:
        groups.setdefault(MEASURED_IN.get(part.name, "compute"), []).append(part.value)
    sums = {}
    for name, values in groups.items():
        low, middle, high = (sum(getattr(each, end) for each in values) for end in ("low", "value", "high"))
        weakest = max((each.source for each in values), key=list(Source).index)
        sums[name] = Estimate(middle, low, high, values[0].unit, weakest)
    return sums
