"""Configs of every architecture read as our own rows have them; what cannot be read names its field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.catalog.config_fields import ModelConfigError
from twofold.catalog.model_config import read_model_config

CATALOG = load_catalog()
SHAPE = """layers hidden heads kv_heads head_dim ffn_hidden ffn_matrices vocab tied_embeddings attention arch
experts experts_topk expert_groups expert_groups_topk moe_layers moe_ffn_hidden shared_ffn_hidden
sliding_window sliding_layers mla_kv_rank softmax_attention_layers
linear_kind linear_layers linear_heads linear_head_dim linear_state"""
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "auto_map": {"AutoModel": "modeling_evil.Evil"},
}
# The fields of the published files that matter here, by the catalogue's name of the model.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": LLAMA,
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_positions": 1024}
    | {"vocab_size": 50257, "n_inner": None},
    "gpt-neox-20b": {"model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576}
    | {
        "num_attention_heads": 64,
        "num_hidden_layers": 44,
        "vocab_size": 50432,
        "max_position_embeddings": 2048,
    },
    "opt-6.7b": {"model_type": "opt", "hidden_size": 4096, "ffn_dim": 16384, "num_attention_heads": 32}
    | {"num_hidden_layers": 32, "vocab_size": 50272, "max_position_embeddings": 2048},
    "bloom-7b1": {"model_type": "bloom", "n_embed": 4096, "hidden_size": 4096, "n_head": 32, "n_layer": 30}
    | {"vocab_size": 250880},
    "falcon-7b": {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "multi_query": True}
    | {"num_hidden_layers": 32, "vocab_size": 65024},
    "falcon-40b": {"model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8}
    | {"num_hidden_layers": 60, "vocab_size": 65024, "new_decoder_architecture": True},
    "mpt-7b": {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432}
    | {"max_seq_len": 2048, "expansion_ratio": 4, "attn_config": {"attn_type": "multihead_attention"}},
    "phi-2": {"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 32}
    | {"num_hidden_layers": 32, "vocab_size": 51200, "num_key_value_heads": None},
    "mistral-7b-v0.1": {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336}
    | {"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "sliding_window": 4096}
    | {"vocab_size": 32000, "max_position_embeddings": 32768},
    "qwen2.5-7b": {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944}
    | {"num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064}
    | {"max_position_embeddings": 131072, "sliding_window": 131072, "use_sliding_window": False}
    | {"max_window_layers": 28},
    "gemma-2-9b": {"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "head_dim": 256}
    | {"num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8, "vocab_size": 256000}
    | {"sliding_window": 4096, "max_position_embeddings": 8192},
    "gemma-3-12b": {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "hidden_size": 3840, "intermediate_size": 15360}
        | {"num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 8, "head_dim": 256}
        | {"sliding_window": 1024, "vocab_size": 262208, "max_position_embeddings": 131072},
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    },
    "mixtral-8x7b": {"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336}
    | {"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000}
    | {"num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 32768},
    "qwen1.5-moe-a2.7b": {"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632}
    | {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60}
    | {"num_experts_per_tok": 4, "num_attention_heads": 16, "num_hidden_layers": 24, "vocab_size": 151936}
    | {"num_key_value_heads": 16, "decoder_sparse_step": 1, "max_position_embeddings": 8192},
    "deepseek-v3": {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432}
    | {
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "n_group": 8,
        "topk_group": 4,
    }
    | {"first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536}
    | {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_attention_heads": 128}
    | {"num_key_value_heads": 128, "num_hidden_layers": 61, "vocab_size": 129280}
    | {"max_position_embeddings": 163840, "quantization_config": {"quant_method": "fp8"}},
    "gpt-oss-20b": {"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64}
    | {"num_attention_heads": 64, "num_hidden_layers": 24, "num_key_value_heads": 8, "vocab_size": 201088}
    | {"num_local_experts": 32, "experts_per_token": 4, "num_experts_per_tok": 4, "sliding_window": 128}
    | {"layer_types": ["sliding_attention", "full_attention"] * 12, "max_position_embeddings": 131072}
    | {"quantization_config": {"quant_method": "mxfp4"}},
    "llama-4-maverick": {
        "model_type": "llama4",
        "text_config": {"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192}
        | {"intermediate_size_mlp": 16384, "num_attention_heads": 40, "num_key_value_heads": 8}
        | {"num_hidden_layers": 48, "head_dim": 128, "num_local_experts": 128, "num_experts_per_tok": 1}
        | {"interleave_moe_layer_step": 2, "attention_chunk_size": 8192, "vocab_size": 202048}
        | {"max_position_embeddings": 1048576},
    },
    "jamba-v0.1": {"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336}
    | {"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 65536}
    | {"attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1}
    | {"num_experts": 16, "num_experts_per_tok": 2, "mamba_expand": 2, "mamba_d_state": 16},
    "nemotron-h-8b": {"model_type": "nemotron_h", "hidden_size": 4096, "intermediate_size": 21504}
    | {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 52}
    | {"hybrid_override_pattern": "M-" * 24 + "*" * 4, "mamba_num_heads": 128, "mamba_head_dim": 64}
    | {"ssm_state_size": 128, "n_groups": 8, "vocab_size": 131072, "time_step_limit": [0.0, float("inf")]},
    "qwen3-next-80b-a3b": {"model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120}
    | {"num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "num_hidden_layers": 48}
    | {"full_attention_interval": 4, "linear_num_value_heads": 32, "linear_num_key_heads": 16}
    | {"linear_value_head_dim": 128, "linear_key_head_dim": 128, "num_experts": 512, "decoder_sparse_step": 1}
    | {"num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512}
    | {"vocab_size": 151936, "mlp_only_layers": []},
    "mamba2-2.7b": {"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "num_heads": 80}
    | {"head_dim": 64, "state_size": 128, "n_groups": 1, "vocab_size": 50288},
    "bert-base-uncased": {"model_type": "bert", "hidden_size": 768, "intermediate_size": 3072}
    | {
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "vocab_size": 30522,
        "max_position_embeddings": 512,
    },
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    folder = tmp_path_factory.mktemp("my-model")

    def reader(config: Any) -> Any:
        path = folder / "config.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config, indent=1), "utf-8")
        return read_model_config(path)

    return reader


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_reads_as_its_row_in_the_catalogue(name: str, read: Callable[..., Any]) -> None:
    ours, theirs = CATALOG.model(name), read(CONFIGS[name])
    differing = {
        f: (getattr(theirs, f), getattr(ours, f))
        for f in SHAPE.split()
        if getattr(theirs, f) != getattr(ours, f)
    }
    if ours.linear_kind == "mamba2":
        differing.pop("ffn_matrices", None)  # without an MLP, either
    assert differing == {}
    assert theirs.parameters == pytest.approx(ours.parameters, rel=0.02)
    assert theirs.parameters_active == pytest.approx(ours.parameters_active, rel=0.02)


def test_the_model_is_named_after_its_folder_or_what_it_says(read: Callable[..., Any]) -> None:
    assert read(LLAMA).name.startswith("my-model")
    assert read(LLAMA | {"_name_or_path": "meta-llama/Llama-3.1-8B"}).name == "Llama-3.1-8B"


@pytest.mark.parametrize(
    ("quantisation", "dtype", "format_name"),
    [
        (None, "bfloat16", "bf16"),
        (None, "float16", "fp16"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "bfloat16", "fp8"),
        ({"quant_method": "awq", "bits": 4}, "float16", "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "bfloat16", "nvfp4"),
        ({"quant_method": "mxfp4"}, "bfloat16", "mxfp4"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4}}}},
            "",
            "int4",
        ),
        (
            {"format": "float-quantized", "config_groups": {"a": {"weights": {"num_bits": 8}}}},
            "bfloat16",
            "fp8",
        ),
        ({"format": "int-quantized", "config_groups": {"a": {"weights": {"num_bits": 8}}}}, "", "int8"),
    ],
)
def test_the_format_of_the_weights_follows_the_quantisation(
    quantisation: dict[str, Any] | None, dtype: str, format_name: str, read: Callable[..., Any]
) -> None:
    model = read(LLAMA | {"quantization_config": quantisation, "torch_dtype": dtype})
    assert model.native_format == format_name


def test_weights_have_a_scale_a_block_where_one_of_two_tools_says_so(read: Callable[..., Any]) -> None:
    group = {"weights": {"num_bits": 8, "block_structure": [128, 128]}}
    stated = {"format": "float-quantized", "config_groups": {"a": group}}
    assert read(LLAMA | {"quantization_config": stated}).fp8_blocks
    assert read(
        LLAMA | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [1, 1]}}
    ).fp8_blocks
    group["weights"]["block_structure"] = None  # type: ignore[assignment]
    assert not read(LLAMA | {"quantization_config": stated}).fp8_blocks


@pytest.mark.parametrize(
    ("quantisation", "cache"),
    [
        (None, ""),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ""),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None}, ""),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
    ],
)
def test_the_format_of_the_cache_is_told_where_scales_for_it_are_brought(
    quantisation: dict[str, Any] | None, cache: str, read: Callable[..., Any]
) -> None:
    assert read(LLAMA | {"quantization_config": quantisation}).kv_format == cache


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"hidden_size": None}, "hidden_size", "is missing"),
        ({"num_hidden_layers": None}, "num_hidden_layers", "is missing"),
        ({"vocab_size": None}, "vocab_size", "is missing"),
        ({"intermediate_size": None}, "intermediate_size", "is missing"),
        ({"hidden_size": -4096}, "hidden_size", "-4096 is not from 1"),
        ({"hidden_size": 0}, "hidden_size", "0 is not from 1"),
        ({"hidden_size": "4096"}, "hidden_size", "is not a whole number"),
        ({"hidden_size": True}, "hidden_size", "is not a whole number"),
        ({"hidden_size": 4096.5}, "hidden_size", "is not a whole number"),
        ({"hidden_size": float("nan")}, "hidden_size", "NaN is not a whole number"),
        ({"hidden_size": float("inf")}, "hidden_size", "Infinity is not a whole number"),
        ({"vocab_size": 10**30}, "vocab_size", "is not from 1"),
        ({"num_hidden_layers": 10**7}, "num_hidden_layers", "layers are more than"),
        ({"num_attention_heads": 30}, "num_key_value_heads", "30 heads do not divide by 8"),
        ({"num_attention_heads": 24, "head_dim": None}, "num_attention_heads", "does not divide by 24 heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads", "do not divide by 5"),
        ({"num_local_experts": 8}, "num_experts_per_tok", "is missing"),
        (
            {"num_local_experts": 8, "num_experts_per_tok": 9},
            "num_experts_per_tok",
            "9 experts per token of 8",
        ),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim", "is missing"),
        ({"layer_types": ["full_attention"] * 31}, "layer_types", "31 entries for 32 layers"),
        ({"layer_types": ["conv"] * 32}, "layer_types", "`conv` are not read"),
        ({"layer_types": ["mamba"] * 32}, "mamba_d_state", "is missing"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder", "not read"),
        ({"block_configs": [{}]}, "block_configs", "differ one by one"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings", "neither true nor false"),
        ({"model_type": 7}, "model_type", "is not text"),
        ({"first_k_dense_replace": 40, "num_experts": 8}, "first_k_dense_replace", "40 dense layers of 32"),
    ],
)
def test_a_wrong_field_is_named_with_its_place(
    change: dict[str, Any], field: str, said: str, read: Callable[..., Any]
) -> None:
    config = LLAMA | change
    with pytest.raises(ModelConfigError) as error:
        read(config)
    assert f"`{field}`" in error.value.message and said in error.value.message
    place = error.value.place
    assert place is not None and place.file.endswith("config.json")
    if config.get(field) is not None:
        lines = json.dumps(config, indent=1).splitlines()
        assert lines[place.line - 1][place.column - 1 :].startswith(f'"{field}":')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "not readable"),
        ("7", "object"),
    ],
)
def test_what_is_no_config_is_refused(text: str, said: str, read: Callable[..., Any]) -> None:
    with pytest.raises(ModelConfigError) as error:
        read(text)
    assert said in error.value.message


def test_binary_missing_and_endless_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(ModelConfigError, match="cannot read"):
        read_model_config(path)
    path.write_bytes(b"\x80\x81\x00")
    with pytest.raises(ModelConfigError, match="not text"):
        read_model_config(path)
    path.write_bytes(b" " * (5 * 2**20))
    with pytest.raises(ModelConfigError, match="larger"):
        read_model_config(path)
    with pytest.raises(ModelConfigError):
        read_model_config(tmp_path)


JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=3)
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    name=st.sampled_from(sorted(CONFIGS)),
    changes=st.dictionaries(
        st.sampled_from(sorted({key for config in CONFIGS.values() for key in config} - {"text_config"})),
        JUNK,
        max_size=3,
    ),
)
def test_any_change_gives_a_model_or_a_clear_refusal(
    name: str, changes: dict[str, Any], read: Callable[..., Any]
) -> None:
    try:
        model = read(CONFIGS[name] | changes)
    except ModelConfigError as error:
        assert "`" in error.message or error.place
    else:
        assert 0 < model.parameters_active <= model.parameters
        assert 0 <= model.sliding_layers <= model.softmax_attention_layers <= model.layers


@pytest.mark.parametrize(
    ("change", "says", "line"),
    [
        (('"num_local_experts": 8', '"num_local_experts": 0'), "no expert, of which each token visits 2", 3),
        (('"vocab_size"', '"hidden_size": 8, "vocab_size"'), "`hidden_size` stands twice", 2),
    ],
)
def test_a_config_that_contradicts_itself_is_refused_at_its_line(
    tmp_path: Path, change: tuple[str, str], says: str, line: int
) -> None:
    text = (
        json.dumps(CONFIGS["mixtral-8x7b"])
        .replace(', "vocab', ',\n"vocab')
        .replace(', "num_local', ',\n"num_local')
    )
    (tmp_path / "config.json").write_text(text.replace(*change))
    with pytest.raises(ModelConfigError, match=says) as caught:
        read_model_config(tmp_path / "config.json")
    assert caught.value.place and caught.value.place.line == line and caught.value.hint
