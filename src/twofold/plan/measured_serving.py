"""A service whose times are measured rows instead of a model: embeddings, vision, speech, anything else."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from twofold.contracts import (
    ClassPlan,
    Derivation,
    Input,
    Loser,
    Machine,
    Part,
    Service,
    ServicePlan,
    SloOutcome,
    plan_to_dict,
)
from twofold.contracts import Replica as ReplicaPlan
from twofold.core import (
    Estimate,
    FileError,
    InfeasibleError,
    Place,
    Source,
    ValueRefusedError,
    format_seconds,
)
from twofold.inference import (
    Latency,
    MeasuredService,
    ReplicaCount,
    measured_latency,
    measured_rate_limit,
    measured_service,
    replicas_for,
)
from twofold.perf import device, power_w
from twofold.plan.context import Context, price_used, price_warnings
from twofold.plan.derivation import derived
from twofold.plan.facility import carbon, facility_energy
from twofold.plan.offers import Offer, fixed_offer
from twofold.plan.paths import is_estimate, leaves
from twofold.plan.serving_choice import ClassLoad, class_load

COLUMNS = ("batch_size", "service_s")
YEAR_H, HOUR_S, DAY_S = 8760.0, 3600.0, 86400.0


def read_rows(path: Path) -> list[tuple[float, float]]:
    """(batch size, seconds) of a CSV file with the columns `batch_size` and `service_s`."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if not set(COLUMNS) <= set(rows.fieldnames or ()):
                hint = f"the first line must name {' and '.join(COLUMNS)}"
                raise FileError("no measured rows", place=Place(str(path), 1, 1), hint=hint)
            return [_row(cells, Place(str(path), line, 1)) for line, cells in enumerate(rows, 2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"cannot read measured rows from '{path}': {error}") from error


def _row(cells: dict[str, str | None], place: Place) -> tuple[float, float]:
    try:
        size, seconds = (float(cells[name] or "") for name in COLUMNS)
    except ValueError as error:
        raise FileError(f"not a measured row: {error}", place=place, hint="two numbers: 8, 0.021") from error
    return size, seconds


def measured_plan(entry: Service, context: Context) -> ServicePlan:
    """Replicas, latency and cost of a measured workload on the machines it was measured on.

    Raises ValueRefusedError without `on`, InfeasibleError where a lone request misses its goal.
    """
    path = entry.model.measured
    assert path
    if entry.on is None:
        raise ValueRefusedError(
            f"`{entry.name}` is measured, but not where",
            hint="name the machines of one replica, for example `on: 1xL40S`",
        )
    supply = context.spec.supply
    offer = fixed_offer(entry.on, context.catalog, supply, supply.shop.terms)
    service = measured_service(read_rows(path), offer.node.accelerator_count)
    loads = tuple(class_load(name, each) for name, each in entry.classes.items())
    pools = [(load, *_pool(entry, load, service)) for load in loads]
    return _plan(entry, offer, service, pools, context)


def _pool(entry: Service, load: ClassLoad, service: MeasuredService) -> tuple[float, ReplicaCount]:
    """Requests/s of one replica within the goals of a class, and how many replicas it takes."""
    goals = [limit for name, limit in load.traffic.slo.targets().items() if not name.startswith("tpot")]
    most = service.batch_sizes[-1] / service.service_s[-1]
    limit = measured_rate_limit(service, min(goals)) if goals else most
    if limit <= 0:
        fastest = format_seconds(min(service.service_s))
        goal = format_seconds(min(goals))
        lines = (("binds", f"one batch takes {fastest} alone, {goal} is promised"),)
        raise InfeasibleError(f"no replica serves `{entry.name}` within its objectives", lines=lines)
    count = replicas_for(
        load.peak_per_s, limit, zones=entry.zones, availability_fraction=entry.availability_fraction
    )
    return limit, count


def _plan(
    entry: Service,
    offer: Offer,
    service: MeasuredService,
    pools: Sequence[tuple[ClassLoad, float, ReplicaCount]],
    context: Context,
) -> ServicePlan:
    size, count = service.accelerators, sum(each.total for _, _, each in pools)
    price = price_used(offer, context)
    cost = None
    if price:
        used = price.usd_per_accelerator_h
        cost = _scaled(used, count * size * YEAR_H, "USD")
    hardware = device(offer.accelerator, context.constants)
    watts = float(power_w(hardware, hardware.serving_power_fraction)) * count * size
    energy_j = facility_energy(_exact(watts * YEAR_H * HOUR_S, "J"), offer.price, context)
    rate = sum(load.mean_rate_per_s for load, _, _ in pools)
    name = entry.model.label
    return ServicePlan(
        name=entry.name,
        model=name,
        parameters=0,
        quality_note="",
        machine=Machine(
            offer.accelerator.name, offer.node.name, count, size, count * size, offer.node.fabric, price
        ),
        replica=_replica(size, service),
        classes=tuple(_class(load, limit, each, service, cost, count) for load, limit, each in pools),
        replica_count=count,
        spare_count=sum(each.spare for _, _, each in pools),
        spare_reason=f"{100 * entry.availability_fraction:.6g} % available",
        zones=entry.zones,
        regions=entry.regions,
        memory_bytes=_exact(0.0, "B"),
        memory_parts=(),
        memory_capacity_bytes=hardware.memory_bytes,
        kv_bytes_per_token=0.0,
        kv_utilisation_fraction=0.0,
        batch_limit="measured",
        cold_start_s=_exact(0.0, "s"),
        warm_pool_count=0,
        output_tokens_per_s_per_accelerator=_exact(0.0, "tok/s"),
        output_tokens_per_j=_exact(0.0, "tok/J"),
        peak_ratio=_exact(0.0, "ratio"),
        communication_exposed_fraction=0.0,
        pooling_loss_fraction=0.0,
        cost_usd_per_year=cost,
        energy_j_per_year=energy_j,
        carbon_gco2_per_year=carbon(energy_j, offer.price, context),
        bounds=(),
        tried=len(service.batch_sizes),
        rejected=(),
        losers=(Loser("other machines", "not measured"),),
        flip_fraction=0.0,
        warnings=(
            f"times of {name} are measured rows: memory, tokens and cold start are not known",
            f"{rate:.3g} requests/s on average",
            *price_warnings(offer, context),
        ),
    )


def _replica(size: int, service: MeasuredService) -> ReplicaPlan:
    text = f"measured · batches up to {service.batch_sizes[-1]:g}"
    return ReplicaPlan(
        size, 1, 1, 1, 1, "measured", "none", "measured", int(service.batch_sizes[-1]), 0, text
    )


def _class(
    load: ClassLoad,
    limit: float,
    count: ReplicaCount,
    service: MeasuredService,
    cost: Estimate | None,
    replicas: int,
) -> ClassPlan:
    found = measured_latency(service, load.peak_per_s / max(count.needed, 1))
    percentiles = {f"e2e_{which}": _exact(_quantile(found, which), "s") for which in ("p50", "p95", "p99")}
    outcomes = []
    for name, goal_s in load.traffic.slo.targets().items():
        metric, _, which = name.split("_")
        if metric != "tpot":
            predicted = percentiles[f"e2e_{which}"]
            outcomes.append(SloOutcome(f"{metric}_{which}", goal_s, predicted, predicted.value <= goal_s))
    window_s = load.traffic.slo.finish_within_s
    if window_s is not None:
        done_s = load.mean_rate_per_s * DAY_S / (limit * count.needed)
        outcomes.append(SloOutcome("finish_within", window_s, _exact(done_s, "s"), done_s <= window_s))
    tokens_per_y = load.mean_rate_per_s * float(load.traffic.lengths.output_tokens) * YEAR_H * HOUR_S
    share = count.total / replicas
    return ClassPlan(
        name=load.name,
        rate_per_s=load.mean_rate_per_s,
        peak_per_s=load.peak_per_s,
        input_tokens=float(load.traffic.lengths.input_tokens),
        output_tokens=float(load.traffic.lengths.output_tokens),
        percentiles=percentiles,
        slos=tuple(outcomes),
        replica_count=count.needed,
        rate_per_replica_per_s=_exact(limit, "1/s"),
        holds_until_per_s=_exact(limit * count.needed, "1/s"),
        knee_per_s=limit * count.needed,
        usd_per_1k_output_tokens=_scaled(cost, share / tokens_per_y * 1e3, "USD") if cost else None,
        latency_budget=_budget(found, service),
        replica_text=_replica(service.accelerators, service).text,
    )


def _budget(found: Latency, service: MeasuredService) -> tuple[Part, ...]:
    mean = float(found.mean_s)
    alone = min(service.service_s[0], mean)
    parts = {"queue": mean - alone, "service": alone}
    return tuple(Part(name, _exact(value, "s"), value / mean) for name, value in parts.items())


def _quantile(found: Latency, which: str) -> float:
    return float(getattr(found, f"{which}_s"))


def _exact(value: float, unit: str) -> Estimate:
    return Estimate(value, value, value, unit, Source.MEASURED)


def _scaled(like: Estimate, factor: float, unit: str) -> Estimate:
    return Estimate(like.value * factor, like.low * factor, like.high * factor, unit, like.source)


def measured_derivations(entry: Service, plan: ServicePlan) -> Iterator[Derivation]:
    """Every estimate follows from the rows, the traffic and the price."""
    rows = Input(
        "measured rows", f"{plan.tried} batch sizes", "", Source.MEASURED.value, str(entry.model.measured)
    )
    at = f"serving.{plan.name}"
    for path, leaf in leaves(plan_to_dict(plan), at):
        if is_estimate(leaf):
            yield derived(path, "bulk queue over the measured batch times", rows)
