import pytest

from twofold.training import software_family


@pytest.mark.parametrize(
    ("framework", "precision", "family"),
    [
        ("Megatron-Core 0.13+", "bf16", "megatron"),
        ("NeMo 25", "fp8", "megatron"),
        ("NeMo (recipe v25.02.02)", "fp8", "megatron"),
        ("Megatron-Bridge 26", "fp4", "megatron"),
        ("Megatron-LM", "fp16", "megatron-legacy"),
        ("Megatron-LM", "bf16", "megatron"),
        ("Megatron-DeepSpeed", "bf16", "megatron-legacy"),
        ("DeepSpeed ZeRO-3", "fp16", "deepspeed"),
        ("llm-foundry/Composer FSDP", "bf16", "fsdp"),
        ("fms-fsdp", "bf16", "fsdp"),
        ("torchtitan", "fp8", "fsdp"),
        ("nanotron", "bf16", "nanotron"),
        ("MaxText", "bf16", "jax"),
        ("InternEvo 0", "bf16", "internevo"),
        ("something else", "bf16", "other"),
        ("", "bf16", "other"),
    ],
)
def test_a_name_tells_the_family(framework: str, precision: str, family: str) -> None:
    assert software_family(framework, precision) == family
