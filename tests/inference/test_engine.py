from dataclasses import fields

import pytest

from twofold.inference import Engine, engine
from twofold.perf import engine_software, load_constants


@pytest.mark.parametrize(
    ("name", "version", "era"),
    [
        ("vllm", "0.6.x (autumn 2024)", "0.4+"),
        ("vllm", "2024, unstated", "2024"),
        ("vllm", "0.11.x", "0.4+"),
        ("vllm", "0.18.0", "0.12+"),
        ("vllm", "0.2-0.3 era, modified", "0.3-"),
        ("trtllm", "0.9.0", "0.9-"),
        ("trtllm", "1.0.0rc3", "0.10+"),
        ("trtllm", "1.2.0rc6.post3", "1.1+"),
        ("sglang", "0.5.9", "0.5+"),
        ("trtllm", "gpt-oss-dev", "1.1+"),
        ("triton", "2.0", ""),
        ("vllm", "", "0.12+"),
    ],
)
def test_a_version_belongs_to_an_era_and_an_unreadable_one_to_the_newest(name, version, era):
    assert engine_software(name).era_of(version) == era


def test_an_unknown_engine_takes_the_constants_of_all(constants):
    unknown = engine(constants, "some-engine", "3.1")
    assert unknown.host_step_s == constants.get("serving_host_step_s")


def test_old_eager_software_costs_more_host_time_than_new(constants):
    old, new = (engine(constants, "vllm", version) for version in ("0.2", "0.15.1"))
    assert old.host_factor > 3 * new.host_factor
    assert old.eager_fraction > new.eager_fraction


def test_formats_of_activations_follow_the_device(cluster_of):
    hopper, blackwell = cluster_of("H100-SXM").device, cluster_of("B200").device
    assert hopper.default_activation_format("mxfp4") == "bf16"
    assert blackwell.default_activation_format("mxfp4") == "mxfp8"
    assert hopper.default_activation_format("int4") == "bf16"
    assert hopper.default_activation_format("fp8") == "fp8"


@pytest.fixture(scope="module")
def vllm() -> Engine:
    return engine(load_constants(), "vllm", "0.15.0", family="hopper")


def changed(old: Engine, new: Engine) -> set[str]:
    return {f.name for f in fields(Engine) if getattr(old, f.name) != getattr(new, f.name)}


def test_no_factor_changes_nothing(vllm: Engine) -> None:
    assert vllm.scaled({"compute": 2.0}) == vllm


def test_a_faster_host_shortens_the_engines_own_times_alone(vllm: Engine) -> None:
    faster = vllm.scaled({"host": 2.0})
    assert faster.host_step_s == vllm.host_step_s / 2
    assert all(name.endswith("_s") for name in changed(vllm, faster))


def test_a_faster_prefill_leaves_decoding_alone(vllm: Engine) -> None:
    faster = vllm.scaled({"prefill": 1.1})
    assert faster.prefill_factor == pytest.approx(vllm.prefill_factor / 1.1)
    assert changed(vllm, faster) == {"prefill_factor", "prefill_layer_s"}


def test_faster_communication_is_that_alone(vllm: Engine) -> None:
    assert changed(vllm, vllm.scaled({"communication": 2.0})) == {"communication_factor"}
