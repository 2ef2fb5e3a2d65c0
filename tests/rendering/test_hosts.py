"""Processors and memory: the share of a server that goes with its accelerators, or that it is not known."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.object_fields import documents
from tests.rendered import Files, texts
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan

UNKNOWN = "lost: processors and memory: what a `{}` has is not in the catalogue; add requests"


def containers(text: str, kind: str) -> list[dict[str, Any]]:
    found = [each["spec"] for each in documents(text) if each["kind"] == kind]
    if kind == "JobSet":
        found = [each["replicatedJobs"][0]["template"]["spec"] for each in found]
    return [each["template"]["spec"]["containers"][0] for each in found]


def on(plan: Plan, node: str, instance: str = "") -> Plan:
    """The first service on another server, rented as an instance where one is named, else owned."""
    service: ServicePlan = plan.serving[0]
    price = service.machine.price
    price = replace(price, instance=instance) if price and instance else None
    machine = replace(service.machine, node=node, price=price)
    return replace(plan, serving=(replace(service, machine=machine), *plan.serving[1:]))


def test_pods_of_a_node_that_is_full_ask_for_nine_tenths_of_it(examples: dict[str, Plan]) -> None:
    """They asked for nothing, so that they were the first to be ended where memory ran out."""
    plan, catalog = examples["assistant"], load_catalog()
    files = texts(plan, "kubernetes")
    for pool in plan.serving[0].pools:
        (container,) = containers(files[f"assistant-serve-{pool.name}.yaml"], "Deployment")
        asked, size = container["resources"]["requests"], pool.replica.accelerator_count
        node = catalog.node("gpu_8x_b200_sxm6")
        assert node.vcpu_count and node.ram_bytes
        most = 0.9 * node.vcpu_count * size / 8
        assert most - 1 < asked["cpu"] <= most
        most = 0.9 * node.ram_bytes * size / 8 / 2**30
        assert most - 1 < int(asked["memory"].removesuffix("Gi")) <= most
    (container,) = containers(files["assistant-pretrain.yaml"], "JobSet")
    assert container["resources"]["requests"] == {"cpu": 187, "memory": "1508Gi"}
    assert "nodes gpu_8x_h100_sxm5 vcpus 208" in files["assistant-pretrain.yaml"]


def test_a_server_of_the_user_s_is_what_the_plan_takes_it_for(examples: dict[str, Plan]) -> None:
    files = texts(on(examples["finetune"], "DGX-H100"), "kubernetes")
    (container,) = containers(files["finetune-serve.yaml"], "Deployment")
    assert container["resources"]["requests"] == {"cpu": 25, "memory": "214Gi"}


def test_an_instance_that_the_catalogue_has_not_is_no_server_of_its(examples: dict[str, Plan]) -> None:
    """A provider's machine of 2 processors was not the one of 4 that the plan took in its place."""
    for target, file in (("kubernetes", "finetune-serve.yaml"), ("ray", "serve.yaml")):
        text = texts(on(examples["finetune"], "DGX-H100", "l40s_1x2v4gb"), target)[file]
        assert UNKNOWN.format("l40s_1x2v4gb") in text.replace("finetune-serve: ", "")
        assert "cpu:" not in text
    text = texts(on(examples["assistant"], "8 × B200"), "slurm")["assistant-serve-batch.sbatch"]
    assert UNKNOWN.format("8 × B200") in text and "--mem=" not in text


def test_processors_are_asked_for_where_the_server_is_known(files_of: Callable[[str, str], Files]) -> None:
    (container,) = containers(files_of("laptop", "kubernetes")["laptop-serve.yaml"], "Deployment")
    assert container["resources"] == {"requests": {"cpu": 14, "memory": "26Gi"}}
    text = files_of("laptop", "kubernetes")["laptop-tiny.yaml"]
    assert UNKNOWN.format("2 × CPU-8-core-AVX2") in text


def test_a_job_asks_for_what_goes_with_its_devices_or_for_whole_nodes(
    files_of: Callable[[str, str], Files],
) -> None:
    """Without a word Slurm gives one processor."""
    files = files_of("assistant", "slurm")
    part = files["assistant-serve-chat.sbatch"]
    assert re.search(r"^#SBATCH --cpus-per-task=46 +# 2 of 8 accelerators, less a tenth: nodes", part, re.M)
    assert re.search(r"^#SBATCH --mem=607G +# 2 of 8 ", part, re.M)
    assert '--cpus-per-task="$SLURM_CPUS_PER_TASK"' in part  # which no step takes from its job
    for whole in (files["assistant-pretrain.sbatch"], files_of("moe", "slurm")["moe-serve.sbatch"]):
        assert "#SBATCH --exclusive " in whole and "#SBATCH --mem=0 " in whole
        assert "srun" in whole and "--cpu-bind=none" in whole and "cpus-per-task" not in whole
