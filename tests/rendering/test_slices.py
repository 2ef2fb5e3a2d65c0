"""Slices of a device in every target's words: asked for by name, or said to be lost."""

from dataclasses import replace

import pytest

from tests.rendered import Files, texts
from twofold.contracts.results.plan import Plan

MIG, VGPU, MODE = "H100-SXM5-80GB:1g.10gb", "L40S:L40S-12C", "MI300X:CPX"
TARGETS = ("shell", "compose", "slurm", "kubernetes", "ray", "skypilot", "triton")


def sliced(plan: Plan, accelerator: str, per_node: int = 7) -> Plan:
    """The plan's service with one replica of two on each slice, and no run."""
    service = plan.serving[0]
    machine = replace(
        service.machine, accelerator=accelerator, accelerators_per_node=per_node, base_price=None
    )
    replica = replace(service.pools[0].replica, accelerator_count=1, tp=1, engine="vllm 0.11.0")
    pools = (replace(service.pools[0], replica=replica, replica_count=8, spare_count=1),)
    return replace(plan, serving=(replace(service, machine=machine, pools=pools),), training=())


def files(plan: Plan, target: str, accelerator: str) -> Files:
    return texts(sliced(plan, accelerator), target)


@pytest.fixture
def plan(examples: dict[str, Plan]) -> Plan:
    return examples["finetune"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("accelerator", "made"),
    [(MIG, "nvidia-smi mig -cgi 1g.10gb"), (VGPU, "type L40S-12C"), (MODE, "--compute-partition CPX")],
)
def test_every_target_says_what_has_to_be_there_before(
    target: str, accelerator: str, made: str, plan: Plan
) -> None:
    found = files(plan, target, accelerator).values()
    assert any(line.startswith("# lost:") and made in line for text in found for line in text.splitlines())


def test_whole_devices_lose_nothing_to_slices(plan: Plan) -> None:
    for target in TARGETS:
        found = "".join(files(plan, target, "H100-SXM5-80GB").values())
        assert "slice" not in found and "mig" not in found


def test_slurm_asks_for_slices_by_their_type(plan: Plan) -> None:
    asked = {name: "".join(files(plan, "slurm", name).values()) for name in (MIG, VGPU)}
    assert "#SBATCH --gres=gpu:1g.10gb:1 " in asked[MIG] and "--gpus-per-node" not in asked[MIG]
    assert "#SBATCH --gpus-per-node=1 " in asked[VGPU] and "--gres" not in asked[VGPU]


def test_replicas_of_compose_have_a_slice_each(plan: Plan) -> None:
    two = sliced(plan, MIG, per_node=8)  # more than are on one device
    (text,) = texts(two, "compose").values()
    ids = [line.split('"')[1] for line in text.splitlines() if '"0:' in line or '"1:' in line]
    assert ids == [*(f"0:{number}" for number in range(7)), "1:0"]


def test_kubernetes_counts_slices_by_their_own_name(plan: Plan) -> None:
    text = "".join(files(plan, "kubernetes", MIG).values())
    assert "nvidia.com/mig-1g.10gb: 1 " in text
    assert "requests.nvidia.com/mig-1g.10gb: 9 " in text  # eight replicas and a canary
    assert "nvidia.com/gpu: " not in text
    virtual = "".join(files(plan, "kubernetes", VGPU).values())
    assert 'nvidia.com/vgpu.present: "true"' in virtual and "nvidia.com/gpu: 1 " in virtual


def test_ray_is_told_to_count_slices(plan: Plan) -> None:
    text = files(plan, "ray", MIG)["rayservice.yaml"]
    assert 'num-gpus: "7"' in text and "accelerator_type" not in text
    assert "num-gpus" not in files(plan, "ray", VGPU)["rayservice.yaml"].replace('num-gpus: "0"', "")


def test_skypilot_rents_the_whole_device_and_says_so(plan: Plan) -> None:
    found = files(plan, "skypilot", MIG)
    text = next(text for path, text in found.items() if path.endswith(".sky.yaml"))
    assert "H100: 1 " in text and "lost: slices: SkyPilot rents whole devices" in text
