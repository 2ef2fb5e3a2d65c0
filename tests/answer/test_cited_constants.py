"""A derivation cites the constants that its number is computed with, and no other."""

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from twofold.answer.moved import SWITCHES, cited, moved
from twofold.catalog.catalog import load_catalog
from twofold.core import record
from twofold.inference.iteration import iteration_s
from twofold.inference.replica import Engine, Replica, capacity, engine
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.shape import ModelShape
from twofold.perf.types import Cluster
from twofold.training.job import TrainingJob
from twofold.training.layouts import Layouts, layouts_of
from twofold.training.memory import memory
from twofold.training.stack import Stack, load_stack
from twofold.training.step import step_time

LAYOUTS = ((2, 1, 1, 2, 1, 16, 1, 1, 1, 1), (4, 2, 1, 4, 2, 2, 1, 1, 2, 1), (1, 1, 8, 1, 1, 64, 1, 1, 0, 0))
SOFTWARE = (("megatron-core", "bf16"), ("nanotron", "bf16"), ("torchtitan", "fp8"), ("megatron", "fp16"))
MODELS = ("llama-3.1-8b", "mixtral-8x7b")
World = tuple[TrainingJob, Layouts, Cluster, Stack]


def worlds(model: str) -> Iterator[World]:
    """A model under four kinds of software, in layouts that use every exchange."""
    catalog, constants = load_catalog(), load_constants()
    part = catalog.accelerator("H100-SXM5-80GB")
    cluster = Cluster(device(part, constants), network(part, 8, 50e9, "infiniband", constants), 64)
    for framework, precision in SOFTWARE:
        job = TrainingJob(
            catalog.model(model), "pretrain", 8192, 256, precision=precision, framework=framework
        )
        for row in LAYOUTS:
            stack = load_stack(constants, framework, precision, "hopper")
            yield job, layouts_of([row]), cluster, stack


def priced(world: World) -> record.Book:
    """What is noted of a step and of memory."""
    job, layouts, cluster, stack = world
    with record.recording() as book:
        step = step_time(job.workload, job.precision, layouts, cluster, stack)
        held = memory(job.workload, layouts, stack)
        _ = step.compute_s, step.total_s, held.buffers_bytes, held.total_bytes
    return book


def middle(book: record.Book) -> dict[str, float]:
    return {name: float(np.ravel(np.asarray(note.value, float))[0]) for name, note in book.items()}


@cache
def books(model: str) -> list[tuple[World, record.Book]]:
    """Each world with the notes that cite what moves them."""
    found = []
    for job, layouts, cluster, stack in worlds(model):
        *machine, names = moved(cluster, stack)
        found.append(((job, layouts, cluster, stack), cited(priced((job, layouts, *machine)), names)))
    return found


def ends(book: record.Book, name: str) -> set[str]:
    """The constants of the software in which the tree of a number ends."""
    inputs = book[name].inputs
    own = {each.removeprefix("training_") for each in inputs if each.startswith("training_")}
    return own.union(*(ends(book, each) for each in inputs if each in book))


@pytest.mark.parametrize("model", MODELS)
def test_trees_end_in_the_constants_that_move_their_number_and_in_no_other(model: str) -> None:
    for world, book in books(model):
        job, layouts, cluster, stack = world
        before = middle(priced(world))
        movers: dict[str, set[str]] = {name: set() for name in before}
        hardly: dict[str, set[str]] = {name: set() for name in before}  # by less than rounding is told from
        for field in (field.name for field in fields(Stack) if field.name not in SWITCHES):
            value = getattr(stack, field)
            for other in (1.01 * value, 0.99 * value) if value else (0.01,):
                after = middle(priced((job, layouts, cluster, replace(stack, **{field: other}))))
                for name, number in after.items():
                    if number != pytest.approx(before[name], rel=1e-7, abs=1e-15):
                        movers[name].add(field)
                    if number != before[name]:
                        hardly[name].add(field)
        for name, number in before.items():
            if number and name != "memory_bytes":  # the sum leaves out parts that are 0, as a plan does
                assert movers[name] <= ends(book, name) <= hardly[name] | movers[name], name


@pytest.mark.parametrize("model", MODELS)
def test_what_is_computed_is_told_as_it_was_without_moving(model: str) -> None:
    for world, book in books(model):
        assert middle(book) == pytest.approx(middle(priced(world)), rel=1e-12)


@pytest.mark.parametrize(
    ("path", "constant"),
    [
        ("step_parts.DP.value", "training_gradient_bytes"),
        ("step_parts.optimiser.value", "training_gradient_bytes"),
        ("step_parts.host.value", "training_host_moe_layer_s"),
        ("step_parts.compute.gemm", "gemm_half_k"),
        ("step_parts.EP.value", "all_to_all_efficiency_fraction"),
        ("memory_parts.buffers.value", "training_fragmentation_fraction"),
    ],
)
def test_a_plan_cites_what_a_part_is_computed_with(
    example_data: dict[str, dict[str, Any]], path: str, constant: str
) -> None:
    rows = {row["path"]: row["inputs"] for row in example_data["moe"]["derivations"]}
    references = [item["reference"] for item in rows[f"training.pretrain.{path}"]]
    assert any(reference.startswith(f"constants.csv {constant}") for reference in references)


def test_a_plan_cites_no_constant_that_its_part_does_not_use(example_data: dict[str, dict[str, Any]]) -> None:
    rows = {row["path"]: row["inputs"] for row in example_data["moe"]["derivations"]}
    counted = {"weights": "stage_copies_count", "gradients": "stage_copies_count"}
    for part in ("weights", "gradients", "optimiser"):
        inputs = rows[f"training.pretrain.memory_parts.{part}.value"]
        cited = [item["reference"] for item in inputs if item["reference"].startswith("constants.csv")]
        allowed = f"constants.csv training_{counted.get(part, 'optimizer_fraction')}"
        assert all(reference.startswith(allowed) for reference in cited)
    sent = " ".join(item["reference"] for item in rows["training.pretrain.step_parts.EP.value"])
    assert "attention" not in sent and "host_" not in sent


def replicas() -> Iterator[tuple[Replica, float]]:
    """Dense, latent and expert models on an engine, and the prefill that a step carries."""
    catalog, constants = load_catalog(), load_constants()
    part = catalog.accelerator("H100-SXM5-80GB")
    cluster = Cluster(device(part, constants), network(part, 8, 50e9, "infiniband", constants), 8)
    for name, fmt in (("llama-3.1-8b", "bf16"), ("mixtral-8x7b", "fp8"), ("deepseek-v3", "fp8")):
        software = engine(constants, "sglang", family="hopper", model="dense", weights_format=fmt)
        shape = ModelShape.of(catalog.model(name))
        for prefill in (0.0, 2048.0):
            yield Replica(shape, cluster, software, fmt, fmt, tp=8.0), prefill


def served(replica: Replica, prefill: float) -> record.Book:
    with record.recording() as book:
        _ = iteration_s(replica, prefill, prefill / 2, 32.0, 1000.0).total_s
        capacity(replica)
    return book


def test_the_steps_of_a_replica_end_in_what_moves_them_and_in_nothing_else() -> None:
    for replica, prefill in replicas():
        *machine, names = moved(replica.cluster, replica.engine)
        book = cited(served(replace(replica, cluster=machine[0], engine=machine[1]), prefill), names)
        before, loose = middle(served(replica, prefill)), middle(book)
        assert loose == pytest.approx(before, rel=1e-12)
        for field in (field.name for field in fields(Engine) if field.name not in ("name", "era")):
            value = getattr(replica.engine, field)
            movers, hardly = set(), set()
            for other in (1.01 * value, 0.99 * value) if value else (0.01,):
                after = middle(
                    served(replace(replica, engine=replace(replica.engine, **{field: other})), prefill)
                )
                movers |= {name for name in after if after[name] != pytest.approx(before[name], rel=1e-7)}
                hardly |= {name for name in after if after[name] != before[name]}
            told = {name for name in book if before[name] and f"serving_{field}" in all_ends(book, name)}
            assert {name for name in movers if before[name]} <= told <= hardly, field


def all_ends(book: record.Book, name: str) -> set[str]:
    inputs = book[name].inputs
    return {end for each in inputs for end in (all_ends(book, each) if each in book else {each})}


@pytest.mark.parametrize(
    ("path", "constant"),
    [
        ("percentiles.ttft_p95", "serving_first_token_steps"),
        ("decode_step.host", "serving_host_moe_layer_s"),
        ("decode_step.moe", "serving_expert_pad_factor"),
        ("prefill_step.gemm", "serving_prefill_factor"),
        ("decode_step.communication", "engine_launch_s"),
    ],
)
def test_a_plan_cites_what_a_latency_is_computed_with(
    example_data: dict[str, dict[str, Any]], path: str, constant: str
) -> None:
    rows = {row["path"]: row["inputs"] for row in example_data["moe"]["derivations"]}
    references = [item["reference"] for item in rows[f"serving.serve.classes.chat.{path}"]]
    assert any(reference.startswith(f"constants.csv {constant}") for reference in references)
