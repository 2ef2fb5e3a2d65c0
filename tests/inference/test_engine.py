import pytest

from twofold.inference import default_activation_format, engine, engine_era


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
    assert engine_era(name, version) == era


def test_an_unknown_engine_takes_the_constants_of_all(constants):
    unknown = engine(constants, "some-engine", "3.1")
    assert unknown.host_step_s == constants.get("serving_host_step_s")


def test_old_eager_software_costs_more_host_time_than_new(constants):
    old, new = (engine(constants, "vllm", version) for version in ("0.2", "0.15.1"))
    assert old.host_factor > 3 * new.host_factor
    assert old.eager_fraction > new.eager_fraction


def test_formats_of_activations_follow_the_device(cluster_of):
    hopper, blackwell = cluster_of("H100-SXM").device, cluster_of("B200").device
    assert default_activation_format(hopper, "mxfp4") == "bf16"
    assert default_activation_format(blackwell, "mxfp4") == "mxfp8"
    assert default_activation_format(hopper, "int4") == "bf16"
    assert default_activation_format(hopper, "fp8") == "fp8"
