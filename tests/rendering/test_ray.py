"""Ray's files hold the plan's engine arguments and counts, in fields that Ray has."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.object_fields import complaints, documents
from tests.random_plans import plans
from twofold.app.rendering import render
from twofold.contracts.results.plan import Plan
from twofold.core.errors import ValueRefusedError


def files(plan: Plan) -> dict[str, str]:
    return {each.path: each.text for each in render(plan, "ray").files}


def applications(plan: Plan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = documents(files(plan)["serve.yaml"])[0]["applications"]
    return found


def test_engine_arguments_are_those_of_the_plan(examples: dict[str, Plan]) -> None:
    plan = examples["assistant"]
    for pool, application in zip(plan.serving[0].pools, applications(plan), strict=True):
        (config,) = application["args"]["llm_configs"]
        told = config["engine_kwargs"]
        assert told["max_num_seqs"] == pool.replica.max_batch
        assert told["max_num_batched_tokens"] == pool.replica.chunk_tokens
        assert told.get("tensor_parallel_size", 1) == pool.replica.tp
        assert told["quantization"] == pool.replica.weights_format
        assert isinstance(told["enable_prefix_caching"], bool)
        assert not {"host", "port", "served_model_name"} & told.keys()
        assert config["model_loading_config"]["model_id"] == pool.model
        scaled = config["deployment_config"]["autoscaling_config"]
        assert scaled["min_replicas"] <= scaled["max_replicas"] == pool.replica_count
        assert 1 <= scaled["target_ongoing_requests"] <= config["deployment_config"]["max_ongoing_requests"]


@settings(max_examples=6)
@given(data=st.data())
def test_every_object_has_the_fields_of_its_kind(examples: dict[str, Plan], data: st.DataObject) -> None:
    plan = data.draw(plans(examples["finetune"]))
    made = files(plan)
    objects = [each for path in made if path.endswith(".yaml") for each in documents(made[path])]
    kinds = [each for each in objects if each.get("kind") in ("RayService", "RayJob")]
    assert not [wrong for each in kinds for wrong in complaints(each)]
    jobs = [each["spec"]["rayClusterSpec"] for each in kinds if each["kind"] == "RayJob"]
    nodes = [each["workerGroupSpecs"][0]["replicas"] for each in jobs]
    assert nodes == [run.machine.node_count for run in plan.training]


def test_kuberay_is_told_the_same_as_serve(examples: dict[str, Plan]) -> None:
    made = files(examples["assistant"])
    (service,) = documents(made["rayservice.yaml"])
    assert documents(service["spec"]["serveConfigV2"]) == documents(made["serve.yaml"])


def test_pools_of_another_engine_are_lost_aloud(examples: dict[str, Plan]) -> None:
    plan = examples["moe"]
    assert plan.serving[0].pools[0].replica.engine == "sglang"
    made = files(plan)
    assert "serve.yaml" not in made
    assert "# lost: moe-serve: Ray Serve's application for LLMs runs vLLM" in made["kustomization.yaml"]
    with pytest.raises(ValueRefusedError, match="other engines"):
        files(Plan(**{name: getattr(plan, name) for name in plan.__slots__} | {"training": ()}))


def test_what_starts_a_run_is_python(examples: dict[str, Plan]) -> None:
    compile(files(examples["finetune"])["on_nodes.py"], "on_nodes.py", "exec")


def test_ray_reads_its_serve_config(examples: dict[str, Plan]) -> None:
    schema = pytest.importorskip("ray.serve.schema", reason="pip install 'ray[serve]'")
    for name in ("assistant", "finetune", "portfolio"):
        config = documents(files(examples[name])["serve.yaml"])[0]
        read = schema.ServeDeploySchema.model_validate(config)
        assert [each.name for each in read.applications] == [each["name"] for each in config["applications"]]
