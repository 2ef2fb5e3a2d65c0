import numpy as np
import pytest

from twofold.catalog.catalog import load_catalog
from twofold.perf.shape import ModelShape, model_kind


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "deepseek-r1", "gpt-oss-120b", "gemma-3-12b"]
)
def test_the_parts_explain_nearly_all_parameters_of_a_model(name):
    model = load_catalog().model(name)
    shape = ModelShape.of(model)
    assert shape.total_weights == pytest.approx(model.parameters, rel=1e-9)
    assert shape.other_weights < 0.005 * model.parameters


@pytest.mark.parametrize(
    "name",
    [
        "nemotron-nano-9b-v2",
        "nemotron-nano-12b-v2",
        "qwen3-next-80b-a3b",
        "nemotron-3-super-120b-a12b",  # experts in a latent of a quarter of the hidden size
        "kimi-k3",
        "llama-3.3-nemotron-super-49b",  # pruned: not every layer has its attention and its whole FFN
    ],
)
def test_a_model_keeps_its_parameter_count_though_not_all_of_it_is_described(name):
    model = load_catalog().model(name)
    assert ModelShape.of(model).total_weights == pytest.approx(model.parameters, rel=0.01)


def test_stacked_shapes_give_what_each_shape_gives_alone():
    shapes = [
        ModelShape.of(load_catalog().model(name)) for name in ("llama-3.1-8b", "deepseek-r1", "gpt-oss-120b")
    ]
    stacked = ModelShape.stacked(shapes)
    for part in ("attention_weights", "expert_weights", "ffn_weights", "total_weights"):
        assert np.allclose(getattr(stacked, part), [getattr(shape, part) for shape in shapes])


def test_the_kind_of_a_model_follows_its_cache_and_experts():
    kinds = [
        model_kind(load_catalog().model(name)) for name in ("llama-3.1-8b", "mixtral-8x7b", "deepseek-r1")
    ]
    assert kinds == ["dense", "moe", "mla"]
