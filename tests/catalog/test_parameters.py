"""Counts from the shape meet the published ones, and grow as shapes must."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.catalog.model_config import count_parameters, dense_ffn_layers
from twofold.catalog.types import Model

CATALOG = load_catalog()
DENSE = CATALOG.model("llama-3.1-8b")


@pytest.mark.parametrize(
    ("name", "total", "active", "tolerance"),
    [
        ("llama-3.1-8b", 8.03e9, 8.03e9, 0.001),  # Llama 3 herd of models
        ("llama-3.1-405b", 405.85e9, 405.85e9, 0.001),
        ("gpt3-175b", 174.6e9, 174.6e9, 0.002),  # Brown et al. 2020
        ("mixtral-8x7b", 46.7e9, 12.9e9, 0.003),  # Jiang et al. 2024
        ("deepseek-v3", 671.0e9, 37.6e9, 0.002),  # DeepSeek-V3 report, embeddings and head counted as active
        ("qwen3-235b-a22b", 235.1e9, 22.2e9, 0.002),
        ("nemotron-h-8b", 8.1e9, 8.1e9, 0.002),  # Mamba-2, attention and MLP blocks
        ("jamba-v0.1", 51.6e9, 12.1e9, 0.003),  # Mamba-1 with experts
        ("qwen3-next-80b-a3b", 79.7e9, 3.87e9, 0.002),  # gated delta rule with experts
        ("mamba2-2.7b", 2.70e9, 2.70e9, 0.002),
    ],
)
def test_published_sizes_follow_from_the_shape(
    name: str, total: float, active: float, tolerance: float
) -> None:
    counted = count_parameters(CATALOG.model(name))
    assert counted == pytest.approx((total, active), rel=tolerance)


@pytest.mark.parametrize("model", CATALOG.rows(Model), ids=lambda model: model.name)
def test_what_a_token_uses_is_part_of_the_whole(model: Model) -> None:
    total, active = count_parameters(model)
    assert 0 <= active <= total
    assert (active == total) == (model.experts == 0 or model.experts == model.experts_topk)


@given(st.integers(1, 200), st.sampled_from(["layers", "hidden", "ffn_hidden", "vocab", "kv_heads"]))
def test_a_larger_shape_has_more_parameters(more: int, field: str) -> None:
    larger = replace(DENSE, **{field: getattr(DENSE, field) + more})
    if field == "layers":
        larger = replace(larger, softmax_attention_layers=larger.layers)
    assert count_parameters(larger)[0] > count_parameters(DENSE)[0]


@given(st.integers(2, 64))
def test_each_further_expert_costs_its_matrices_and_its_router_column(experts: int) -> None:
    model = CATALOG.model("mixtral-8x7b")
    fewer, more = (replace(model, experts=count) for count in (experts, experts + 1))
    one = model.layers * (model.ffn_matrices * model.hidden * model.moe_ffn_hidden + model.hidden)
    assert count_parameters(more)[0] - count_parameters(fewer)[0] == one
    assert count_parameters(more)[1] - count_parameters(fewer)[1] == model.layers * model.hidden


def test_blocks_are_told_apart_from_layers() -> None:
    assert dense_ffn_layers(DENSE) == 32
    assert dense_ffn_layers(CATALOG.model("nemotron-h-8b")) == 24
    assert dense_ffn_layers(CATALOG.model("jamba-v0.1")) == 16
    assert dense_ffn_layers(CATALOG.model("mixtral-8x7b")) == 0
    assert dense_ffn_layers(CATALOG.model("deepseek-v3")) == 3
