"""The pools of a plan as the twin runs them: each replica built again from what the plan wrote down.

One that is given by measured rows serves batches as long as the rows say.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil

from twofold.answer.context import model_of
from twofold.answer.offers import Offer, node_of_size
from twofold.answer.quick_serve import read_rate_bytes_per_s
from twofold.answer.serving_choice import serving_stack
from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure
from twofold.catalog.types import Model, Node
from twofold.contracts.results import serving
from twofold.contracts.results.parts import Machine
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.rows.measured_rows import read_service_rows
from twofold.contracts.spec.scenario_fleet import EngineChange
from twofold.contracts.spec.scenario_policies import Policies, Smaller
from twofold.contracts.spec.service import Service
from twofold.contracts.spec.supply import Supply
from twofold.core.display import format_memory
from twofold.core.errors import InputError, ValueRefusedError
from twofold.gating.beliefs import in_flight_limit, measured_beliefs, planned_load, replica_beliefs
from twofold.inference.fleet import warm_up
from twofold.inference.measured import MeasuredService
from twofold.inference.replica import Replica, capacity, replica_of
from twofold.inference.table import ServiceTable
from twofold.perf.constants import Constants
from twofold.perf.device import device
from twofold.perf.shape import ModelShape
from twofold.perf.software import engine_software
from twofold.perf.types import Device, one
from twofold.policy.gate import settings as gates
from twofold.rehearse.engine import engine_of
from twofold.twin.serving import fleet_types
from twofold.twin.serving.measured import BatchServer
from twofold.twin.serving.step_table import StepTable

UNSTATED_CONTEXT = 131_072  # tokens, where a config says nothing of it
AS_PLANNED = EngineChange()
RAMP_LIMIT = "utility ramp limit (of the site's load per minute)"  # a row of the table `facility`
CONTEXT_TOKENS = 1e9  # no row says that a request could be too long
START_S = 30.0  # no row says how long a replica takes to start


@dataclass(frozen=True, slots=True)
class RehearsalTables:
    """What plans are made from, and where the models that they name are found."""

    catalog: Catalog
    constants: Constants
    supply: Supply
    model_named: Callable[[str], Model]
    measured: Mapping[str, MeasuredService] = field(default_factory=dict)  # rows by service
    overflows: Mapping[str, gates.OverflowSettings | None] = field(default_factory=dict)  # by service
    policies: Mapping[str, Policies] = field(default_factory=dict)  # of the spec, by service
    slow_ratios: Mapping[str, float] = field(default_factory=dict)  # of true steps, by pool; none: the middle


@dataclass(frozen=True, slots=True)
class PoolWorld:
    """One pool of a service, ready for the twin."""

    pool: serving.Pool  # its replicas as the scenario makes them of planned ones
    model: fleet_types.ReplicaModel
    beliefs: gates.Beliefs  # true ones
    context_tokens: float  # the longest request with its answer that a replica can hold
    cache_tokens: float  # that a replica holds of all
    ramp_fraction_per_s: float = 0.0  # of a site's load, that a utility lets its power change by; 0: unknown
    ramp_w_per_s: float | None = None  # instead, where a scenario states it
    replica_text: str = ""  # how a replica is other than planned


def pool_world(
    service: ServicePlan, pool: serving.Pool, tables: RehearsalTables, change: EngineChange = AS_PLANNED
) -> PoolWorld:
    """A pool's replica as the plan chose it, with its step times as a table and its engine around them."""
    replica = planned_replica(service, pool, tables)
    if change.max_batch is not None:
        replica = replace(replica, rank_batch=change.max_batch / replica.dp)
    if change.chunk_tokens is not None:
        replica = replace(replica, chunk_tokens=change.chunk_tokens)
    cache_tokens = one(capacity(replica).kv_tokens)
    if cache_tokens < 1:
        raise ValueRefusedError(
            f"set as the scenario says, a replica of pool `{pool.name}` has no memory left for a cache",
            hint="write a smaller `chunk` or `max_batch` under `engine`",
        )
    table = ServiceTable.of(replica).slowed(tables.slow_ratios.get(pool.name, 1.0))
    steps = StepTable.from_service_table(table)
    workers = change.worker_count
    weights = weights_bytes(replica)
    model = fleet_types.ReplicaModel(
        new_engine=engine_of(replica, steps, change),
        in_flight_limit=workers * in_flight_limit(service, pool, one(replica.max_batch)),
        accelerator_count=workers * pool.replica.accelerator_count,
        weight_bytes=workers * weights,
        read_bytes_per_s_max=workers * read_rate_bytes_per_s(tables.catalog),
        warm_up_s=warm_up(tables.constants, replica.cluster.device.name, replica.engine.name).value,
    )
    parts = f"{change.prefill_workers} for prompts, {change.decode_workers} for answers"
    return PoolWorld(
        grouped(pool, change),
        metered(model, replica.cluster.device, service, tables.constants),
        replica_beliefs(replica, table, planned_load(service, pool, table)),
        min(one(replica.shape.max_context_tokens), cache_tokens),
        cache_tokens,
        figure(tables.catalog, "power", RAMP_LIMIT).value,
        replica_text=f"each of planned ones: {parts}" if workers > 1 else "",
    )


def weights_bytes(replica: Replica) -> float:
    """Of a whole replica, as it serves."""
    return one(replica.shape.weights_bytes(replica.weights_format).total_bytes)


def smaller_world(
    service: ServicePlan,
    pool: serving.Pool,
    tables: RehearsalTables,
    change: EngineChange,
    told: Smaller,
    beside: PoolWorld,
) -> PoolWorld:
    """The replicas that answer in need: as those `beside` them, with other weights.

    Raises ValueRefusedError for a model that is not described, for one that is not smaller or holds less than
    a request may ask for, and beside measured rows, which say nothing of another model.
    """
    if pool.replica.tp is None:
        what = f"`{service.name}` is measured rows, which do not say how fast another model is"
        raise ValueRefusedError(what, hint="leave `smaller` out of `degradation`")
    other = pool
    if told.quantisation is not None:
        other = replace(pool, replica=replace(pool.replica, weights_format=told.quantisation))
    else:
        assert told.model is not None
        model = model_of(told.model, tables.catalog)
        known = {pool.model: tables.model_named(pool.model), model.name: model}
        other, tables = replace(pool, model=model.name), replace(tables, model_named=known.__getitem__)
    needs, has = (weights_bytes(planned_replica(service, each, tables)) for each in (other, pool))
    if needs >= has:
        raise ValueRefusedError(
            f"`{told.label}` is not smaller than `{pool.model}` in {pool.replica.weights_format}: "
            f"{format_memory(needs)} of weights beside {format_memory(has)}",
            hint="name a smaller model, or narrower weights, for `smaller`",
        )
    world = pool_world(service, other, tables, change)
    if world.context_tokens < beside.context_tokens:
        raise ValueRefusedError(
            f"`{told.label}` holds requests of {world.context_tokens:,.0f} tokens, and `{pool.model}` of "
            f"{beside.context_tokens:,.0f}: it could not answer them all",
            hint="name a model for `smaller` whose context is as long",
        )
    return world


def metered(
    model: fleet_types.ReplicaModel, device: Device, service: ServicePlan, constants: Constants
) -> fleet_types.ReplicaModel:
    """With what its accelerators draw at the meter, and cost."""
    whole = power_factor(constants) * model.accelerator_count
    return replace(
        model,
        idle_w=one(device.power_w(0.0)) * whole,
        busy_w=one(device.power_w(device.serving_power_fraction)) * whole,
        price_usd_per_h=service.machine.usd_per_accelerator_h * model.accelerator_count,
    )


def grouped(pool: serving.Pool, change: EngineChange) -> serving.Pool:
    """The pool in replicas that are made of several planned ones: as many whole groups as there are.

    Where fewer are needed than make a group there is one all the same.
    """
    workers = change.worker_count
    needed = ceil((pool.replica_count - pool.spare_count) / workers)
    count = max(needed, pool.replica_count // workers)
    rate_per_s = workers * pool.rate_per_replica_per_s
    return replace(pool, replica_count=count, spare_count=count - needed, rate_per_replica_per_s=rate_per_s)


def planned_replica(service: ServicePlan, pool: serving.Pool, tables: RehearsalTables) -> Replica:
    """The replica that a pool of a plan is made of, on the same hardware and software."""
    planned = pool.replica
    assert planned.tp and planned.weights_format and planned.engine, "measured rows have their own world"
    accelerator = tables.catalog.accelerator(service.machine.accelerator)
    node = planned_node(service.machine, tables.catalog)
    offer = Offer(accelerator, node, None, None, False, pool.virtual_overhead_fraction)
    name, _, words = planned.engine.partition(" ")
    system = serving_stack(offer, name, tables.constants, tables.catalog, tables.supply)
    formats = planned.weights_format, planned.kv_format or "bf16"
    model = tables.model_named(pool.model)
    model = replace(model, max_context_tokens=model.max_context_tokens or UNSTATED_CONTEXT)
    return replace(
        replica_of(ModelShape.of(model), *system, *formats),
        tp=float(planned.tp),
        pp=float(planned.pp or 1),
        ep=float(planned.ep or 1),
        dp=float(planned.dp or 1),
        rank_batch=planned.max_batch / float(planned.dp or 1),
        chunk_tokens=float(planned.chunk_tokens or 8192),
        halved_fraction=float(engine_software(system[1].name).halves_in(words)),
    )


def planned_node(machine: Machine, catalog: Catalog) -> Node:
    """The node that a plan names, or the one of its size where the catalogue has none of that name."""
    accelerator, size = catalog.accelerator(machine.accelerator), machine.accelerators_per_node
    try:
        node = catalog.node(machine.node)
    except InputError:
        return node_of_size(catalog, accelerator, size)
    fits = node.accelerator == accelerator.name and node.accelerator_count == size
    node = node if fits else node_of_size(catalog, accelerator, size)
    if machine.fabric_bytes_per_s is None:
        return node
    return replace(node, fabric=machine.fabric, nic_bytes_per_s=machine.fabric_bytes_per_s * size)


def power_factor(constants: Constants) -> float:
    """From an accelerator's watts to the meter's: the rest of the server, and cooling."""
    return constants.get("node_power_factor") * constants.get("pue_ratio")


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
        f"`{name}` is measured rows: {_start_text(rows)}tokens and caches are left out"
        for name, rows in found.items()
    )
    return found, tuple(notes)


def measured_pools(service: ServicePlan) -> tuple[serving.Pool, ...]:
    """A pool for each class with its own spares, as the plan counts them.

    A plan that was written before classes had their own shares them out by what classes need.
    """
    needed = [each.replica_count for each in service.classes]
    left, pools = service.spare_count, []
    for index, each in enumerate(service.classes):
        spares = min(left, ceil(left * each.replica_count / max(1, sum(needed[index:]))))
        left -= spares
        spares = spares if each.spare_count is None else each.spare_count
        counts, rate = (each.replica_count + spares, spares), each.rate_per_replica_per_s.value
        pools.append(
            serving.Pool(each.name, (each.name,), service.model, service.replica, *counts, rate, 0.0)
        )
    return tuple(pools)


def measured_world(
    service: ServicePlan, pool: serving.Pool, tables: RehearsalTables, change: EngineChange
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
    model = fleet_types.ReplicaModel(
        new_engine=partial(BatchServer, rows),
        in_flight_limit=in_flight_limit(service, pool, rows.batch_sizes[-1]),
        accelerator_count=pool.replica.accelerator_count,
        warm_up_s=rows.start_s or START_S,
    )
    hardware = device(tables.catalog.accelerator(service.machine.accelerator), tables.constants)
    model = metered(model, hardware, service, tables.constants)
    beliefs, ramp = measured_beliefs(service, pool, rows), figure(tables.catalog, "power", RAMP_LIMIT).value
    return PoolWorld(pool, model, beliefs, CONTEXT_TOKENS, CONTEXT_TOKENS, ramp)


def _start_text(rows: MeasuredService) -> str:
    return "" if rows.start_s is not None else f"a start is taken to last {START_S:g} s, "
