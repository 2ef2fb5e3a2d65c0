"""Plans of the examples with other numbers: few replicas, several zones, replicas over several servers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import Pool, ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.estimate import exact

DEVICES = ("H100-SXM5-80GB", "MI300X", "Gaudi3", "Max-1550", "H100-SXM5-80GB:1g.10gb", "CPU-8-core-AVX2")


@st.composite
def pools(draw: Callable[..., Any], pool: Pool, per_node: int) -> Pool:
    """Of one to three servers a replica; the engine has words for several where it needs them."""
    servers = draw(st.integers(1, 3))
    count = draw(st.integers(1, 40))
    engines = (
        ("vllm", "vllm 0.11.0", "sglang")
        if servers > 1
        else ("vllm", "sglang", "trtllm", "llama.cpp", "transformers")
    )
    size = per_node * servers if servers > 1 else draw(st.integers(1, per_node))
    changed = replace(pool.replica, accelerator_count=size, tp=size, engine=draw(st.sampled_from(engines)))
    spare = draw(st.integers(0, count - 1))
    return replace(pool, replica=changed, replica_count=count, spare_count=spare)


@st.composite
def services(draw: Callable[..., Any], service: ServicePlan) -> ServicePlan:
    """Its pools stand on another device, lease and number of zones; goals lie between and on buckets."""
    per_node = draw(st.integers(1, 8))
    device, held = draw(st.sampled_from(DEVICES)), draw(st.sampled_from([0.3, 0.9, 1.0]))
    machine = replace(service.machine, accelerator=device, accelerators_per_node=per_node, held_fraction=held)
    if draw(st.booleans()):
        machine = replace(machine, price=None)
    made = tuple(draw(pools(pool, per_node)) for pool in service.pools)
    limit = st.floats(1e-3, 100.0)
    classes = tuple(
        replace(each, slos=tuple(replace(slo, limit_s=draw(limit)) for slo in each.slos))
        for each in service.classes
    )
    cold = draw(st.one_of(st.none(), st.floats(1.0, 4000.0).map(lambda s: exact(s, "s"))))
    zones = draw(st.integers(1, 4))
    return replace(service, machine=machine, pools=made, classes=classes, cold_start_s=cold, zones=zones)


@st.composite
def runs(draw: Callable[..., Any], run: TrainingPlan) -> TrainingPlan:
    """On another device and number of nodes; a checkpoint takes longer or shorter."""
    nodes, per_node = draw(st.integers(1, 300)), draw(st.integers(1, 16))
    machine = replace(
        run.machine,
        accelerator=draw(st.sampled_from(DEVICES)),
        node_count=nodes,
        accelerators_per_node=per_node,
        accelerator_count=nodes * per_node,
    )
    saved = replace(run.run.checkpoints, write_s=draw(st.floats(0.1, 3600.0)))
    return replace(run, machine=machine, run=replace(run.run, checkpoints=saved))


@st.composite
def plans(draw: Callable[..., Any], plan: Plan) -> Plan:
    """The plan with other numbers."""
    serving = tuple(draw(services(each)) for each in plan.serving)
    return replace(plan, serving=serving, training=tuple(draw(runs(each)) for each in plan.training))
