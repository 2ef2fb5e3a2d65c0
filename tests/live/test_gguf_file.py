"""A checkpoint as a GGUF file: read back by the format's description, tensor by tensor."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.core.errors import FileError
from twofold.live.control import gguf_file
from twofold.live.control.gguf_file import FILE, gguf_of

CONFIG = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "vocab_size": 6,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "eos_token_id": 4,
}
TOKENIZER = {
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
    "added_tokens": [{"id": 4, "content": "<end>", "special": True}],
}
SHAPES = {
    "model.embed_tokens.weight": (6, 8),
    "model.norm.weight": (8,),
    "model.layers.0.input_layernorm.weight": (8,),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.self_attn.k_proj.weight": (4, 8),
    "model.layers.0.mlp.down_proj.weight": (8, 12),
}


def checkpoint(folder: Path, dtype: str = "BF16", **config: Any) -> tuple[Path, dict[str, Any]]:
    """A folder with a checkpoint, and its weights as numbers that both widths hold exactly."""
    folder.mkdir(parents=True)
    draw, head, data, values = np.random.default_rng(5), dict[str, Any](), b"", dict[str, Any]()
    for name, shape in {**SHAPES, "lm_head.weight": (6, 8)}.items():
        exact = draw.integers(-64, 64, shape).astype(np.float32) / 8.0
        stored = (exact.view(np.uint32) >> 16).astype("<u2") if dtype == "BF16" else exact
        bits = stored.tobytes()
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(bits)]}
        data, values[name] = data + bits, exact
    text = json.dumps({"__metadata__": {}, **head}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    return folder, values


class Reader:
    """What is in a GGUF file."""

    def __init__(self, path: Path) -> None:
        self.data, self.at = path.read_bytes(), 0
        magic, version, tensors, facts = self.take("<4sIQQ")
        assert (magic, version) == (b"GGUF", 3)
        self.facts = {self.text(): self.value(*self.take("<I")) for _ in range(facts)}
        table = [self.tensor() for _ in range(tensors)]
        start = -(-self.at // 32) * 32
        self.tensors = {name: self.values(shape, kind, start + at) for name, shape, kind, at in table}
        assert all(at % 32 == 0 for *_, at in table) and len(self.data) % 32 == 0

    def take(self, form: str) -> Any:
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def text(self) -> str:
        [size] = self.take("<Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.take("<IQ")
            return [self.value(inner) for _ in range(count)]
        return self.take({4: "<I", 5: "<i", 6: "<f", 7: "<?"}[kind])[0]

    def tensor(self) -> Any:
        name, [count] = self.text(), self.take("<I")
        shape = self.take(f"<{count}Q")[::-1]
        return (name, shape, *self.take("<IQ"))

    def values(self, shape: tuple[int, ...], kind: int, at: int) -> Any:
        count = int(np.prod(shape))
        found = np.frombuffer(self.data, {0: "<f4", 30: "<u2"}[kind], count, at)
        return (found if kind == 0 else (found.astype("<u4") << 16).view("<f4")).reshape(shape), kind


@pytest.mark.parametrize(("dtype", "kind", "file_type"), [("F32", 0, 0), ("BF16", 30, 32)])
def test_a_checkpoint_is_read_back_from_the_file(
    dtype: str, kind: int, file_type: int, tmp_path: Path
) -> None:
    folder, values = checkpoint(tmp_path / "sha256-1", dtype)
    made = gguf_of(folder, tmp_path / "gguf" / folder.name)
    (made / FILE).write_bytes(b"other")
    assert gguf_of(folder, made) == made, "and what somebody made of it is replaced"
    assert sorted(path.name for path in made.iterdir()) == ["manifest.json", FILE, "tokenizer.json"]
    found = Reader(made / FILE)
    assert found.facts["general.architecture"] == "llama" and found.facts["general.file_type"] == file_type
    assert found.facts["llama.attention.head_count_kv"] == 1 and found.facts["llama.rope.freq_base"] == 5000.0
    assert found.facts["tokenizer.ggml.tokens"] == ["a", "b", "ab", "[unused 3]", "<end>", "[unused 5]"]
    assert found.facts["tokenizer.ggml.token_type"] == [1, 1, 1, 3, 3, 3]
    assert found.facts["tokenizer.ggml.merges"] == ["a b"] and found.facts["tokenizer.ggml.eos_token_id"] == 4
    assert "output.weight" not in found.tensors, "it is the embedding"
    assert found.facts["tokenizer.chat_template"] == "{{ messages }}"
    for ours, theirs in [
        ("token_embd", "model.embed_tokens"),
        ("blk.0.ffn_down", "model.layers.0.mlp.down_proj"),
    ]:
        stored, was = found.tensors[f"{ours}.weight"]
        assert was == kind and np.array_equal(stored, values[f"{theirs}.weight"])
    stored, was = found.tensors["blk.0.attn_norm.weight"]
    assert was == 0 and np.array_equal(stored, values["model.layers.0.input_layernorm.weight"])


def test_rows_that_are_rotated_together_become_neighbours(tmp_path: Path) -> None:
    folder, values = checkpoint(tmp_path / "m", "F32", tie_word_embeddings=False)
    found = Reader(gguf_of(folder, tmp_path / "g") / FILE)
    query, _ = found.tensors["blk.0.attn_q.weight"]
    assert np.array_equal(query, values["model.layers.0.self_attn.q_proj.weight"][[0, 2, 1, 3, 4, 6, 5, 7]])
    key, _ = found.tensors["blk.0.attn_k.weight"]
    assert np.array_equal(key, values["model.layers.0.self_attn.k_proj.weight"][[0, 2, 1, 3]])
    assert np.array_equal(found.tensors["output.weight"][0], values["lm_head.weight"])


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "qwen3"}, "of type `qwen3`"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1.0}}, "positions are scaled"),
        ({"vocab_size": None}, "cannot be converted"),
    ],
)
def test_another_shape_is_refused_and_leaves_nothing(config: Any, says: str, tmp_path: Path) -> None:
    folder, _ = checkpoint(tmp_path / "m", **config)
    with pytest.raises(FileError, match=says) as caught:
        gguf_of(folder, tmp_path / "g")
    assert "own converter" in caught.value.hint and not (tmp_path / "g").exists()


def test_a_tensor_that_no_llama_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = checkpoint(tmp_path / "m")
    monkeypatch.setattr(gguf_file, "PER_LAYER", {})
    with pytest.raises(FileError, match="a Llama has no"):
        gguf_of(folder, tmp_path / "g")
