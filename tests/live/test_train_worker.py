"""What a rank does that a whole run shows only by chance."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")


def test_a_checkpoint_that_was_exported_before_the_workers_died_is_left_as_it_is(tmp_path: Path) -> None:
    from twofold.live.training.train_worker import Order, export

    whole = tmp_path / "hf" / "model.safetensors"
    whole.parent.mkdir()
    whole.write_text("weights")
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    model, corpus = dict.fromkeys(sizes, 1), tmp_path / "corpus"
    order = Order(
        tmp_path, {"steps": 1}, model, corpus, 1, rank=0, local_rank=0, rank_count=2, launch=1, attempt=1
    )
    export(order, torch.nn.Linear(2, 2), {})
    assert [path.name for path in tmp_path.rglob("*")] == ["hf", "model.safetensors"]
    assert whole.read_text() == "weights"
