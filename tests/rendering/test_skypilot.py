"""SkyPilot's tasks and services hold the plan's counts, offers and scaling."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.object_fields import documents
from tests.random_plans import plans
from twofold.app.rendering import render
from twofold.contracts.results.plan import Plan

# Fields of SkyPilot 0.14.1, sky/utils/schemas.py: get_task_schema, get_service_schema, get_resources_schema.
TASK = {"name", "service", "resources", "num_nodes", "workdir", "envs", "secrets", "setup", "run"}
RESOURCES = {"infra", "use_spot", "accelerators", "ports", "network_tier"}
SERVICE = {"readiness_probe", "replica_policy", "replicas"}
POLICY = {"min_replicas", "max_replicas", "num_overprovision", "target_qps_per_replica"}


def tasks(plan: Plan) -> Iterator[dict[str, Any]]:
    for each in render(plan, "skypilot").files:
        if each.path.endswith(".sky.yaml"):
            yield documents(each.text)[0]


def whole(count: int, accelerator: str) -> int:
    """SkyPilot rents no slices; seven of the profile that is drawn are on one device."""
    return ceil(count / 7) if accelerator.endswith(":1g.10gb") else count


@settings(max_examples=6)
@given(data=st.data())
def test_tasks_have_the_fields_and_counts_of_the_plan(examples: dict[str, Plan], data: st.DataObject) -> None:
    plan = data.draw(plans(examples["assistant"]))
    found = list(tasks(plan))
    pools = [(service, pool) for service in plan.serving for pool in service.pools]
    for task, (service, pool) in zip(found, pools, strict=False):
        assert task.keys() <= TASK and task["resources"].keys() <= RESOURCES
        assert task["service"].keys() <= SERVICE
        delay_s = task["service"]["readiness_probe"]["initial_delay_seconds"]
        assert delay_s >= max(1200, 3 * service.cold_start_s.high if service.cold_start_s else 1800)
        policy = task["service"].get("replica_policy", {})
        assert policy.keys() <= POLICY
        if policy:
            assert policy["max_replicas"] + policy["num_overprovision"] == pool.replica_count
            assert 1 <= policy["min_replicas"] <= policy["max_replicas"]
            peak = sum(each.peak_per_s for each in service.classes if each.name in pool.classes)
            needed = pool.replica_count - pool.spare_count
            if peak / needed <= pool.rate_per_replica_per_s:
                assert ceil(peak / policy["target_qps_per_replica"] - 1e-9) == needed
        else:
            assert task["service"]["replicas"] == pool.replica_count
        (count,) = task["resources"]["accelerators"].values()
        asked = pool.replica.accelerator_count // task["num_nodes"]
        assert count == whole(asked, service.machine.accelerator)
    for task, run in zip(found[len(pools) :], plan.training, strict=True):
        assert task.keys() <= TASK and task["num_nodes"] == run.machine.node_count
        asked = whole(run.machine.accelerators_per_node, run.machine.accelerator)
        assert list(task["resources"]["accelerators"].values()) == [asked]


def test_the_leased_offer_is_asked_for(examples: dict[str, Plan]) -> None:
    found: set[str] = set()
    for name in ("assistant", "finetune", "moe", "portfolio"):
        halves = examples[name].halves
        prices = {half.machine.price.provider for half in halves if half.machine.price is not None}
        resources = [task["resources"] for task in tasks(examples[name])]
        asked = {each["infra"].partition("/")[0] for each in resources}  # each is somewhere
        assert asked <= prices | {"k8s"}
        found |= asked
    assert found


def leased(plan: Plan, provider: str | None, fabric: str = "infiniband") -> Plan:
    """The first run on machines of a provider, or of the user."""
    run = plan.training[0]
    price = run.machine.price and provider and replace(run.machine.price, provider=provider)
    machine = replace(run.machine, price=price or None, fabric=fabric)
    return replace(plan, training=(replace(run, machine=machine),), serving=())


@pytest.mark.parametrize("provider", [None, "lakeside"])
def test_machines_that_no_cloud_has_are_rented_from_none(
    provider: str | None, examples: dict[str, Plan]
) -> None:
    """Without an `infra` the task of a spec's own machines went to the cheapest cloud."""
    plan = leased(examples["assistant"], provider)
    (task,) = tasks(plan)
    assert task["resources"]["infra"] == "k8s" and "use_spot" not in task["resources"]
    text = render(plan, "skypilot").files[0].text
    assert f"# lost: {provider or 'your own machines'}: " in text and "`k8s/CONTEXT`" in text
    assert "# lost: infiniband: `network_tier: best` where" in text


@pytest.mark.parametrize(
    ("provider", "fabric", "asked"),
    [
        ("nebius", "infiniband", True),
        ("aws", "efa", True),
        ("gcp", "tcpx", True),
        ("lambda", "infiniband", False),
        ("aws", "ethernet", False),
    ],
)
def test_the_fabric_of_a_run_is_asked_for_or_lost(
    provider: str, fabric: str, asked: bool, examples: dict[str, Plan]
) -> None:
    plan = leased(examples["assistant"], provider, fabric)
    (task,) = tasks(plan)
    assert task["resources"].get("network_tier") == ("best" if asked else None)
    lost = f"# lost: {fabric}: " in render(plan, "skypilot").files[0].text
    assert lost == (not asked and fabric != "ethernet")


def test_what_the_cloud_cannot_be_told_is_lost_aloud(examples: dict[str, Plan]) -> None:
    made = {each.path: each.text for each in render(examples["moe"], "skypilot").files}
    machine = examples["moe"].serving[0].machine
    held = f"{machine.base_node_count} of {machine.node_count} nodes"
    assert machine.base_node_count and f"# lost: {held}" in made["moe-serve.sky.yaml"]
    assert "# lost: 2 zones" in made["moe-serve.sky.yaml"]


def test_skypilot_reads_its_tasks(examples: dict[str, Plan]) -> None:
    sky = pytest.importorskip("sky", reason="pip install skypilot==0.14.1")
    for name in ("assistant", "finetune", "moe", "portfolio", "laptop"):
        for config in tasks(examples[name]):
            config.pop("workdir")  # none of its own here
            node_count = config["num_nodes"]  # SkyPilot takes what it reads out of the mapping
            given_values = [(key, "x") for key in config.get("envs", {})]
            task = sky.Task.from_yaml_config(
                config, env_overrides=given_values, secrets_overrides=[("HF_TOKEN", "x")]
            )
            assert task.num_nodes == node_count
