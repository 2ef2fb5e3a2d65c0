"""Measured rows: a server and training software of the user's own, started with what the plan says."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import AS_ASKED, ROOT
from tests.object_fields import complaints, compose_complaints, documents
from tests.rendered import Files, texts
from tests.rendering.test_variables import test_a_script_gets_as_far_as_its_program as gets_to_its_program
from twofold.app.rendering import render
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import read_spec
from twofold.core.errors import EmptyError
from twofold.perf.constants import Constants
from twofold.planner import build


@pytest.fixture(scope="module")
def plan(catalog: Catalog, constants: Constants) -> Plan:
    spec = read_spec(ROOT / "examples" / "recommender" / "twofold.yaml")
    return build.build_plan(spec, catalog, constants, spec_digest="0", options=AS_ASKED).plan


def started(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = folder / "script.sh"
    path.write_text(script, "utf-8")
    told = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(
        ["bash", str(path), "more words"], env=told, capture_output=True, text=True, check=False
    )


def test_a_server_is_told_its_port_and_its_largest_batch(plan: Plan, tmp_path: Path) -> None:
    script = texts(plan, "shell")["ads-rank.sh"]
    done = started(script, tmp_path, SERVER='echo "$PORT $MAX_BATCH $1"')
    assert done.stdout == f"8000 {plan.serving[0].replica.max_batch} more words\n"


def test_training_software_that_should_write_while_it_trains_is_told_so(plan: Plan) -> None:
    run = plan.training[0]
    saved = replace(run.run.checkpoints, pause_s=1.0, write_s=60.0)
    behind = replace(plan, training=(replace(run, run=replace(run.run, checkpoints=saved)),))
    lost = "lost: checkpoints while it trains: your command has to, else it stops"
    assert [lost in texts(each, "shell")["ads-ranker.sh"] for each in (plan, behind)] == [False, True]


def test_training_software_is_told_its_machines_steps_and_batch(plan: Plan, tmp_path: Path) -> None:
    script, run = texts(plan, "shell")["ads-ranker.sh"], plan.training[0]
    said = "$NODE_COUNT $ACCELERATORS_PER_NODE $GLOBAL_BATCH_SAMPLES $STEPS $CHECKPOINT_EVERY_STEPS"
    done = started(script, tmp_path, TRAINER=f'echo "{said}"')
    nodes, per_node, batch, steps, saved = map(int, done.stdout.split())
    assert (nodes, per_node) == (run.machine.node_count, run.machine.accelerators_per_node)
    assert (batch, steps) == (run.batch_samples, run.run.steps)
    assert run.samples is not None and steps * batch >= run.samples
    assert saved == min(steps, round(run.run.checkpoints.interval_s.value / run.step_s.value))


@pytest.mark.parametrize(("path", "name"), [("ads-rank.sh", "SERVER"), ("ads-ranker.sh", "TRAINER")])
def test_without_its_command_a_script_asks_for_it(path: str, name: str, plan: Plan, tmp_path: Path) -> None:
    done = started(texts(plan, "shell")[path], tmp_path)
    assert done.returncode != 0
    assert f"{name}: set it to the command of your" in done.stderr


@pytest.mark.parametrize("target", ["kubernetes", "ray", "skypilot"])
def test_a_cluster_asks_for_all_that_its_scripts_need(target: str, plan: Plan, tmp_path: Path) -> None:
    gets_to_its_program("ads", target, {"ads": plan}, tmp_path)


def objects(files: Files) -> list[Any]:
    manifests = [text for path, text in files.items() if path.endswith(".yaml") and "kustomiz" not in path]
    return [each for text in manifests for each in documents(text)]


def test_every_object_has_the_fields_of_its_kind(plan: Plan) -> None:
    found = objects(texts(plan, "kubernetes"))
    assert [each for item in found for each in complaints(item)] == []
    (file,) = [documents(text)[0] for text in texts(plan, "compose").values()]
    assert compose_complaints(file) == []
    assert file["services"]["ads-rank-1"]["image"].startswith("${IMAGE_RANK:?set it to the image")


def test_the_route_leads_to_the_pods_of_the_image_that_is_asked_for(plan: Plan) -> None:
    files = texts(plan, "kubernetes")
    by_kind = {(each["kind"], each["metadata"]["name"]): each for each in objects(files)}
    deployment = by_kind["Deployment", "ads-rank"]["spec"]
    route = by_kind["HTTPRoute", "ads-rank"]["spec"]["rules"][0]["backendRefs"]
    assert [(each["name"], each["weight"]) for each in route] == [("ads-rank", 100), ("ads-rank-canary", 0)]
    service = by_kind["Service", route[0]["name"]]["spec"]
    assert service["selector"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert service["ports"][0]["port"] == route[0]["port"]
    (container,) = deployment["template"]["spec"]["containers"]
    told = {each["name"]: each["value"] for each in container["env"]}
    assert told["PORT"] == str(container["ports"][0]["containerPort"])
    assert "command" not in container  # the image's own
    (images,) = documents(files["kustomization.yaml"])
    assert {"name": container["image"]} in images["images"]
    assert f"for `{container['image']}`, a `newName`" in files["kustomization.yaml"]
    assert deployment["replicas"] == plan.serving[0].replica_count


def test_a_server_that_follows_the_load_is_scaled_by_its_rate(plan: Plan) -> None:
    service = plan.serving[0]
    machine = replace(service.machine, held_fraction=0.5)
    files = texts(replace(plan, serving=(replace(service, machine=machine),)), "skypilot")
    policy = documents(files["ads-rank.sky.yaml"])[0]["service"]["replica_policy"]
    peak = sum(each.peak_per_s for each in service.classes)
    assert policy["max_replicas"] == service.replica_count - service.spare_count
    assert policy["target_qps_per_replica"] * policy["max_replicas"] >= peak


def test_a_plan_of_nothing_is_refused(plan: Plan) -> None:
    with pytest.raises(EmptyError, match="nothing that starts"):
        render(replace(plan, training=(), serving=()))


def test_replicas_of_slurm_are_told_ports_of_their_own(plan: Plan, tmp_path: Path) -> None:
    files = texts(plan, "slurm")
    (tmp_path / "srun").write_text('#!/bin/bash\nexec bash "${@: -1}"\n', "utf-8")
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "ads-rank.sh").write_text(files["ads-rank.sh"], "utf-8")
    told = {"FILES": str(tmp_path), "SERVER": "echo $PORT", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    for task in ("0", "2"):
        environment = told | {"SLURM_ARRAY_TASK_ID": task}
        line = ["bash", "-c", files["ads-rank.sbatch"]]
        done = subprocess.run(line, env=environment, check=True, capture_output=True, text=True)
        assert done.stdout.strip() == f"800{task}"
