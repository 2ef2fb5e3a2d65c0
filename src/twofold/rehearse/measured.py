"""Pools of a service that is given by measured rows: the twin serves batches as long as the rows say."""

from collections.abc import Sequence
from functools import partial
from math import ceil

from twofold.contracts.results import Pool, ServicePlan
from twofold.contracts.rows import read_service_rows
from twofold.contracts.spec import EngineChange, Service
from twofold.core import ValueRefusedError
from twofold.inference import MeasuredService
from twofold.perf import device, one
from twofold.policy.gate import Beliefs
from twofold.rehearse.pools import (
    PoolWorld,
    RehearsalTables,
    in_flight_limit,
    power_factor,
    ramp_fraction_per_s,
)
from twofold.twin.serving import BatchServer, ReplicaModel

CONTEXT_TOKENS = 1e9  # no row says that a request could be too long
START_S = 30.0  # no row says how long a replica takes to start
MOST_FRACTION = 0.95  # of what a replica carries at most, where beliefs are still finite


def measured_services(services: Sequence[Service]) -> tuple[dict[str, MeasuredService], tuple[str, ...]]:
    """The rows of those services of a spec that are measured, by name, and what they leave open.

    Raises as `read_service_rows`.
    """
    found = {
        service.name: MeasuredService.of(read_service_rows(service.model.measured))
        for service in services
        if service.model.measured
    }
    notes = (
        f"`{name}` is measured rows: a start is taken to last {START_S:g} s, tokens and caches are left out"
        for name in found
    )
    return found, tuple(notes)


def is_measured_pool(pool: Pool) -> bool:
    """Whether its replicas are measured rows: a plan then knows no layout of theirs."""
    return pool.replica.tp is None


def measured_pools(service: ServicePlan) -> tuple[Pool, ...]:
    """A pool for each class, as the plan counts them; spares are shared out by what classes need."""
    needed = [each.replica_count for each in service.classes]
    left, spares = service.spare_count, []
    for index, count in enumerate(needed):
        spares.append(min(left, ceil(left * count / max(1, sum(needed[index:])))))
        left -= spares[-1]
    return tuple(
        Pool(
            each.name,
            (each.name,),
            service.model,
            service.replica,
            each.replica_count + spare_count,
            spare_count,
            each.rate_per_replica_per_s.value,
            0.0,
        )
        for each, spare_count in zip(service.classes, spares, strict=True)
    )


def measured_world(
    service: ServicePlan, pool: Pool, tables: RehearsalTables, change: EngineChange
) -> PoolWorld:
    """A pool whose replicas answer in batches. Raises ValueRefusedError where there are no rows to go by."""
    rows = tables.measured.get(service.name)
    if rows is None:
        raise ValueRefusedError(
            f"`{service.name}` is measured rows, and a plan does not carry them",
            hint="rehearse the spec that names them: `twofold simulate SPEC`",
        )
    said = [field for field in change.model_fields_set if getattr(change, field) is not None]
    if said:
        keys = ", ".join(f"`{type(change).model_fields[name].alias or name}`" for name in sorted(said))
        raise ValueRefusedError(
            f"`{service.name}` is measured rows: {keys} of `engine` would not change its times",
            hint="leave `engine` out, or measure the service as it is set then",
        )
    hardware = device(tables.catalog.accelerator(service.machine.accelerator), tables.constants)
    accelerators = pool.replica.accelerator_count
    whole, price = power_factor(tables.constants) * accelerators, service.machine.price
    model = ReplicaModel(
        new_engine=partial(BatchServer, rows),
        in_flight_limit=in_flight_limit(service, pool, rows.batch_sizes[-1]),
        accelerator_count=accelerators,
        warm_up_s=START_S,
        idle_w=one(hardware.power_w(0.0)) * whole,
        busy_w=one(hardware.power_w(hardware.serving_power_fraction)) * whole,
        price_usd_per_h=price.usd_per_accelerator_h.value * accelerators if price else 0.0,
    )
    beliefs, ramp = measured_beliefs(service, pool, rows), ramp_fraction_per_s(tables.catalog)
    return PoolWorld(pool, model, beliefs, CONTEXT_TOKENS, CONTEXT_TOKENS, ramp)


def measured_beliefs(service: ServicePlan, pool: Pool, rows: MeasuredService) -> Beliefs:
    """What a request adds to a busy replica, put on its input, and what it takes at the peak to be answered.

    Formula  input token: service time of the largest batch / its requests / input tokens of a request
             first token: the mean that the rows give at the peak, spread over those that are needed
    """
    served = [each for each in service.classes if each.name in pool.classes]
    inputs = [each.input_tokens or 1.0 for each in served]
    request_s = rows.service_s[-1] / rows.batch_sizes[-1]
    needed = max(1, pool.replica_count - pool.spare_count)
    rate_per_s = min(sum(each.peak_per_s for each in served) / needed, MOST_FRACTION * rows.saturation_per_s)
    answered = rows.latency(rate_per_s, "ttft") or rows.latency(rate_per_s)
    assert answered is not None
    return Beliefs(
        input_token_s=request_s / (sum(inputs) / len(inputs)),
        output_token_s=0.0,
        first_token_s=one(answered.mean_s),
    )
