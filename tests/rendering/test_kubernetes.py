"""Manifests say what the plan says, in fields that the kinds have, whatever the plan."""

import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from math import ceil, exp
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.object_fields import FIELDS, SOURCES, complaints, documents
from tests.random_plans import plans
from twofold.app.rendering import render
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Accelerator
from twofold.contracts.results.plan import Plan
from twofold.core.errors import ValueRefusedError
from twofold.core.estimate import Estimate
from twofold.perf.formats import bytes_per_weight
from twofold.rendering.burn_rates import BURNS, WINDOWS, budget_fraction, within
from twofold.rendering.devices import plugin_name
from twofold.rendering.kubernetes_pods import container_word
from twofold.rendering.starting import HUB_BYTES_PER_S

BASES = ("assistant", "finetune")
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
WINDOW = re.compile(r"rate(\w+)\{")
some_plans = settings(max_examples=6)


class Rendered:
    """The objects of a folder."""

    def __init__(self, plan: Plan, target: Any = "kubernetes") -> None:
        self.plan = plan
        self.files = {each.path: each.text for each in render(plan, target).files}
        texts = [text for path, text in self.files.items() if path.endswith(".yaml")]
        whole = [each for text in texts for each in documents(text)]
        self.objects = [each for each in whole if each.get("kind") not in (None, "Kustomization")]

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [each for each in self.objects if each["kind"] in kinds]

    def pairs(self, *kinds: str) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
        """Each pool with its service and its object of a kind."""
        found = {each["metadata"]["name"]: each["spec"] for each in self.of(*kinds)}
        for service in self.plan.serving:
            for pool in service.pools:
                parts = [service.name] if len(service.pools) == 1 else [service.name, pool.name]
                name = "-".join(dict.fromkeys([self.plan.name, *parts]))
                if name in found:
                    yield service, pool, found[name]


def template(spec: dict[str, Any]) -> dict[str, Any]:
    """The pod that answers."""
    own = spec.get("template") or spec["leaderWorkerTemplate"]["leaderTemplate"]
    found: dict[str, Any] = own["spec"]
    return found


@pytest.fixture(scope="session", params=BASES)
def base(request: pytest.FixtureRequest, examples: dict[str, Plan]) -> Plan:
    return examples[request.param]


@some_plans
@given(data=st.data())
def test_every_object_has_the_fields_of_its_kind(base: Plan, data: st.DataObject) -> None:
    objects = Rendered(data.draw(plans(base))).objects
    assert not [wrong for each in objects for wrong in complaints(each)]


@some_plans
@given(data=st.data())
def test_names_are_labels_and_no_two_objects_are_one(base: Plan, data: st.DataObject) -> None:
    objects = Rendered(data.draw(plans(base))).objects
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    values = [name for _, name in names]
    values += [value for each in objects for value in each["metadata"]["labels"].values()]
    assert all(LABEL.fullmatch(value) for value in values)


@some_plans
@given(data=st.data())
def test_replicas_nodes_and_quotas_add_up_to_the_plan(base: Plan, data: st.DataObject) -> None:
    found = Rendered(data.draw(plans(base)))
    plan = found.plan
    pools = [(service, pool) for service in plan.serving for pool in service.pools]
    replicas = found.of("Deployment", "LeaderWorkerSet")
    assert sum(each["spec"]["replicas"] for each in replicas) == sum(pool.replica_count for _, pool in pools)
    jobs = [each["spec"]["replicatedJobs"][0]["template"]["spec"] for each in found.of("JobSet")]
    assert [job["parallelism"] for job in jobs] == [run.machine.node_count for run in plan.training]
    devices = devices_of(plan)
    wanted: Counter[str] = Counter()
    for service, pool in pools:
        name = plugin_name(service.machine.accelerator, devices)
        wanted[name] += (pool.replica_count + 1) * pool.replica.accelerator_count  # and a canary
    for run in plan.training:
        wanted[plugin_name(run.machine.accelerator, devices)] += run.machine.accelerator_count
    del wanted[""]
    hard = [each["spec"]["hard"] for each in found.of("ResourceQuota")]
    assert (hard[0] if hard else {}) == {f"requests.{name}": count for name, count in wanted.items()}


def amount(count: int | str) -> int:
    return int(str(count).removesuffix("Gi"))


def devices_of(plan: Plan) -> dict[str, Accelerator]:
    known, names = load_catalog().named(Accelerator), {each.machine.accelerator for each in plan.halves}
    return {name: known[name.partition(":")[0]] for name in names}


@some_plans
@given(data=st.data())
def test_the_queue_holds_what_its_jobs_ask_for(base: Plan, data: st.DataObject) -> None:
    found = Rendered(data.draw(plans(base)))
    asked: Counter[str] = Counter()
    for each in found.of("JobSet"):
        job = each["spec"]["replicatedJobs"][0]["template"]["spec"]
        resources = job["template"]["spec"]["containers"][0].get("resources", {})
        parts = resources.get("limits", {"pods": 1}) | resources.get("requests", {})
        asked.update({name: amount(count) * job["parallelism"] for name, count in parts.items()})
    groups = [group for each in found.of("ClusterQueue") for group in each["spec"]["resourceGroups"]]
    covered = [resource for group in groups for resource in group["coveredResources"]]
    assert len(set(covered)) == len(covered)  # the interface refuses one in two groups
    for group in groups:
        for flavor in group["flavors"]:  # and a flavor without one of its group
            assert [part["name"] for part in flavor["resources"]] == group["coveredResources"]
    quotas = [part for group in groups for flavor in group["flavors"] for part in flavor["resources"]]
    held: Counter[str] = Counter()
    for part in quotas:
        held[part["name"]] += amount(part["nominalQuota"])
    assert set(held) == set(asked)  # what a pod asks for and no queue covers is never admitted
    assert all(held[name] == asked[name] for name in asked if name != "pods")
    assert held["pods"] >= asked["pods"]
    flavors = {flavor["name"] for group in groups for flavor in group["flavors"]}
    assert flavors == {each["metadata"]["name"] for each in found.of("ResourceFlavor")}


@some_plans
@given(data=st.data())
def test_pods_start_drain_and_stay_as_the_plan_says(base: Plan, data: st.DataObject) -> None:
    found = Rendered(data.draw(plans(base)))
    budgets = {id(pool): spec for _, pool, spec in found.pairs("PodDisruptionBudget")}
    for service, pool, spec in found.pairs("Deployment", "LeaderWorkerSet"):
        pod = template(spec)
        probe = pod["containers"][0]["startupProbe"]
        cold_s = service.cold_start_s.high if service.cold_start_s else 0.0
        model = load_catalog().model(pool.model)
        download_s = model.parameters * bytes_per_weight(model.native_format) / HUB_BYTES_PER_S
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 3 * cold_s + download_s
        answers = [each.percentiles["e2e_p99"].value for each in service.classes if each.name in pool.classes]
        assert pod["terminationGracePeriodSeconds"] >= max(answers)
        assert budgets[id(pool)]["minAvailable"] == pool.replica_count - pool.spare_count
        spread = pod.get("topologySpreadConstraints", [{"minDomains": 1}])
        assert spread[0]["minDomains"] == service.zones
        size = spec.get("leaderWorkerTemplate", {}).get("size", 1)
        limits = pod["containers"][0].get("resources", {}).get("limits", {})
        assert all(count * size == pool.replica.accelerator_count for count in limits.values())
    for run, each in zip(found.plan.training, found.of("JobSet"), strict=True):
        pod = each["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] >= run.run.checkpoints.write_s


@pytest.mark.parametrize("count", [0.01, 0.4, 2.0, 6.3, 150.0])
def test_a_run_survives_more_failures_than_one_in_a_thousand_has(
    count: float, examples: dict[str, Plan]
) -> None:
    run = examples["assistant"].training[0]
    often = replace(run.run, interruptions=Estimate(count, count, count, "1"))
    plan = replace(examples["assistant"], training=(replace(run, run=often),))
    for target, kind, at in (
        ("kubernetes", "JobSet", ("failurePolicy", "maxRestarts")),
        ("ray", "RayJob", ("backoffLimit",)),
    ):
        (job,) = Rendered(plan, target).of(kind)
        allowed: Any = job["spec"]
        for key in at:
            allowed = allowed[key]
        # Terms of a Poisson count, added up: no formula of the renderer's.
        terms = [exp(-count)]
        for number in range(1, allowed + 1):
            terms.append(terms[-1] * count / number)
        assert 1.0 - sum(terms) <= 1.1e-3
        assert 1.0 - sum(terms[:-4]) > 1e-6 or allowed <= 4  # and not without end


@some_plans
@given(data=st.data())
def test_at_its_peak_a_pool_is_scaled_to_what_is_planned(base: Plan, data: st.DataObject) -> None:
    found = Rendered(data.draw(plans(base)))
    for service, pool, spec in found.pairs("ScaledObject"):
        least, most = spec["minReplicaCount"], spec["maxReplicaCount"]
        assert pool.spare_count < least <= most == pool.replica_count or least == most
        asked = spec["triggers"][0]["metadata"]
        threshold, spares = float(asked["threshold"]), float(asked["query"].rpartition("+")[2])
        assert 0.0 < threshold <= pool.rate_per_replica_per_s * 1.001
        peak = sum(each.peak_per_s for each in service.classes if each.name in pool.classes)
        if peak / (pool.replica_count - pool.spare_count) <= pool.rate_per_replica_per_s:
            assert ceil((peak + spares) / threshold - 1e-9) == most
            quiet = min(each.rate_per_s for each in service.classes if each.name in pool.classes)
            assert least <= ceil(quiet / threshold) + pool.spare_count + len(pool.classes)
        assert service.machine.held_fraction < 1.0


@some_plans
@given(data=st.data())
def test_all_traffic_is_on_the_stable_release(base: Plan, data: st.DataObject) -> None:
    found = Rendered(data.draw(plans(base)))
    pools = {each["metadata"]["name"]: each["spec"]["selector"] for each in found.of("InferencePool")}
    for service, pool, spec in found.pairs("HTTPRoute"):
        stable, canary = spec["rules"][0]["backendRefs"]
        assert (stable["weight"], canary["weight"]) == (100, 0)
        chosen = [pools[each["name"]]["matchLabels"]["release"] for each in (stable, canary)]
        assert chosen == ["stable", "canary"]
        asked = {match["headers"][0]["value"] for match in spec["rules"][0].get("matches", [])}
        several = sum(len(each.pools) for each in found.plan.serving) > 1
        assert asked == ({f"{service.name}.{name}" for name in pool.classes} if several else set())


@some_plans
@given(data=st.data())
def test_the_same_plan_gives_the_same_bytes(base: Plan, data: st.DataObject) -> None:
    plan = data.draw(plans(base))
    assert render(plan, "kubernetes").files == render(plan, "kubernetes").files


@given(st.floats(1e-4, 5e3), st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9, unique=True).map(sorted))
def test_shares_of_buckets_are_those_of_an_even_spread(limit_s: float, buckets_s: list[float]) -> None:
    parts = within(limit_s, tuple(buckets_s))
    edges = [0.0, *buckets_s]
    if limit_s > buckets_s[-1]:
        assert parts == ((float("inf"), 1.0),)
    else:  # requests as many in each bucket, evenly within
        above = next(index for index, edge in enumerate(edges) if edge >= limit_s)
        exact = above - 1 + (limit_s - edges[above - 1]) / (edges[above] - edges[above - 1])
        assert sum(weight * edges.index(edge) for edge, weight in parts) == pytest.approx(exact, abs=1e-5)


def test_alarms_call_for_shares_that_are_possible_and_recorded(base: Plan) -> None:
    for each in Rendered(base).of("PrometheusRule"):
        rules = each["spec"]["groups"][0]["rules"]
        recorded = {rule["record"].rpartition("rate")[2] for rule in rules if "record" in rule}
        alarms = [rule for rule in rules if "alert" in rule]
        assert alarms and recorded == set(WINDOWS)
        for rule in alarms:
            assert set(WINDOW.findall(rule["expr"])) <= recorded
            limits = {float(part) for part in re.findall(r"> ([\d.]+)", rule["expr"])}
            assert len(limits) == 1 and 0.0 < limits.pop() < 1.0
            burns = {f"{burn * budget_fraction(rule['labels']['goal']):.6g}" for *_, burn, _ in BURNS}
            assert rule["expr"].rpartition("> ")[2] in burns


def test_a_slice_is_asked_for_by_its_profile(examples: dict[str, Plan]) -> None:
    plan = examples["finetune"]
    service = plan.serving[0]
    sliced = replace(service.machine, accelerator="H100-SXM5-80GB:3g.40gb")
    found = Rendered(replace(plan, serving=(replace(service, machine=sliced),)))
    limits = template(found.of("Deployment")[0]["spec"])["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/mig-3g.40gb": 1}


def test_what_no_cluster_runs_is_refused(examples: dict[str, Plan]) -> None:
    plan = examples["finetune"]
    service = plan.serving[0]
    for changed, words in (
        (replace(service.machine, accelerator="Groq-LPU-v1"), "no device plugin"),
        (replace(service.machine, accelerator="of my own"), "no device plugin"),
    ):
        with pytest.raises(ValueRefusedError, match=words):
            render(replace(plan, serving=(replace(service, machine=changed),)), "kubernetes")
    wide = replace(service.pools[0].replica, accelerator_count=2, engine="trtllm")
    pool = replace(service.pools[0], replica=wide)
    with pytest.raises(ValueRefusedError, match="over 2 servers"):
        render(replace(plan, serving=(replace(service, pools=(pool,)),)), "kubernetes")
    with pytest.raises(ValueRefusedError, match="too long for a group"):
        run = replace(plan.training[0], name="a" * 46)
        render(replace(plan, name="a" * 46, training=(run,)), "kubernetes")


def test_words_that_a_cluster_would_fill_in_are_escaped() -> None:
    assert container_word("a$(HOME)b") == "a$$(HOME)b"
    assert container_word('"$WEIGHTS_X"') == "$(WEIGHTS_X)"
    assert container_word("$(LWS_WORKER_INDEX)") == "$(LWS_WORKER_INDEX)"


def test_the_table_of_fields_refuses_what_is_none(examples: dict[str, Plan]) -> None:
    deployment = Rendered(examples["finetune"]).of("Deployment")[0]
    assert not complaints(deployment)
    for change, words in (
        (lambda o: o["spec"].update(replica=1), "Deployment.spec.* is no field"),
        (lambda o: o["spec"].update(replicas="1"), "Deployment.spec.replicas is `1`"),
        (lambda o: o["spec"].pop("selector"), "Deployment.spec lacks selector"),
        (lambda o: o["spec"]["template"]["spec"].pop("containers"), "lacks containers"),
        (lambda o: o.update(apiVersion="apps/v2"), "Deployment: apps/v2"),
    ):
        other = deepcopy(deployment)
        change(other)
        assert any(words in each for each in complaints(other)), words


def test_every_kind_of_the_table_names_its_source() -> None:
    assert {kind for kind, _ in FIELDS} == set(SOURCES)
    for row in SOURCES.values():
        assert re.fullmatch(r"[0-9a-f]{64}", row["sha256"]) and row["project"] and row["version"]


@pytest.mark.parametrize("name", ["assistant", "moe", "finetune", "portfolio", "laptop"])
def test_a_packaged_schema_of_kubernetes_takes_the_objects(name: str, examples: dict[str, Plan]) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate==1.37.0")
    core = ("Deployment", "PodDisruptionBudget", "NetworkPolicy", "ResourceQuota", "PriorityClass")
    for each in Rendered(examples[name]).of(*core):
        validate.validate(each, "1.37", strict=True)


@pytest.mark.parametrize(
    ("accelerator", "label"),
    [("H100-SXM5-80GB", "NVIDIA-H100-80GB-HBM3"), ("L40S", "NVIDIA-L40S"), ("H800-SXM5-80GB", "")],
)
def test_nodes_of_the_user_are_chosen_by_their_devices(
    accelerator: str, label: str, examples: dict[str, Plan]
) -> None:
    """Pods of a plan for H100 stood on any node with a GPU, as nobody rents an instance by its name."""
    plan: Any = examples["assistant"]
    run, service = plan.training[0], plan.serving[0]
    machine = replace(run.machine, accelerator=accelerator, price=None)
    own = replace(service, machine=replace(service.machine, accelerator=accelerator, price=None))
    found = Rendered(replace(plan, training=(replace(run, machine=machine),), serving=(own,)))
    pods = [template(each["spec"]) for each in found.of("Deployment")]
    pods += [template(each["spec"]["replicatedJobs"][0]["template"]["spec"]) for each in found.of("JobSet")]
    chosen = {"nvidia.com/gpu.product": label} if label else None
    assert pods and all(pod.get("nodeSelector") == chosen for pod in pods)
    assert [each["spec"].get("nodeLabels") for each in found.of("ResourceFlavor")] == [chosen]
    text = "".join(found.files.values())
    assert (f"lost: which nodes: no label is known of those with {accelerator}" in text) == (not label)
