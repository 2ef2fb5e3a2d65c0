"""Makes the weights of a model's linear layers 8 or 4 bits wide, in a process of its own.

Reads one JSON request on standard input, writes one JSON answer on standard output. Of 8 bits each row has a
scale, of 4 bits each 32 weights of a row. Embeddings, norms and what predicts the next token stay as they
are. What is written is read by engines that know compressed-tensors, such as transformers: integers in words
of 32 bits, as its format `pack-quantized` has them. Weights are read from safetensors alone, file by file,
and no code that a model brings is run.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.core.data import from_data

GROUP_WEIGHTS = {8: 0, 4: 32}  # by bits: weights of a row that share a scale; 0: all
WORD_BITS = 32
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Asked:
    """Which folder, the new one that is written, and how wide its weights are."""

    model: str
    out: str
    bits: int = 8


def quantise(asked: Asked) -> dict[str, Any]:
    """Write the smaller model; how many weights became smaller, and the bytes of all before and after.

    Raises ValueError for a model that is quantised already, or that has no linear layers of its own.
    """
    from safetensors.torch import load_file, save_file

    source, out = Path(asked.model), Path(asked.out)
    config = json.loads((source / "config.json").read_text("utf-8"))
    if "quantization_config" in config:
        raise ValueError("it is quantised already")
    linear, kept = _linear(source)
    shutil.copytree(source, out, ignore=shutil.ignore_patterns("*.safetensors", INDEX))
    count, before, after = 0, 0, 0
    places: dict[str, str] = {}
    for path in sorted(source.glob("*.safetensors")):
        tensors = load_file(path)
        written: dict[str, Any] = {}
        for name, tensor in tensors.items():
            module = name.removesuffix(".weight")
            made = (
                _packed(module, tensor, asked.bits) if module in linear and name != module else {name: tensor}
            )
            count += len(made) > 1
            written |= made
        save_file(written, out / path.name, metadata={"format": "pt"})
        before, after = before + _bytes(tensors), after + _bytes(written)
        places |= dict.fromkeys(written, path.name)
    if not count:
        raise ValueError("it has no linear layers whose weights are its own")
    if len(set(places.values())) > 1:
        index = {"metadata": {"total_size": after}, "weight_map": dict(sorted(places.items()))}
        (out / INDEX).write_text(json.dumps(index, indent=1), "utf-8")
    config["quantization_config"] = _described(kept, asked.bits)
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
    return {"weights_count": count, "before_bytes": before, "after_bytes": after}


def _linear(source: Path) -> tuple[set[str], list[str]]:
    """The linear layers that become smaller, and those that do not: read off the architecture alone."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(source, trust_remote_code=False, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    head = model.get_output_embeddings()
    named = {name: module for name, module in model.named_modules() if type(module) is torch.nn.Linear}
    return {name for name, module in named.items() if module is not head}, [
        name for name, module in named.items() if module is head
    ]


def _packed(module: str, weight: Any, bits: int) -> dict[str, Any]:
    """A weight as integers, a scale for each group of a row, and the shape that it had.

    Formula  scale = max |w| / (2^(bits-1) - 1) over a group;  q = round(w / scale), the same on both sides
    Raises ValueError for rows that are not whole groups.
    """
    import torch

    limit, columns = 2 ** (bits - 1) - 1, weight.shape[1]
    group = GROUP_WEIGHTS[bits] or columns
    if columns % group:
        raise ValueError(f"`{module}` has rows of {columns} weights, which are no whole groups of {group}")
    wide = weight.float().reshape(len(weight), -1, group)
    scale = (wide.abs().amax(dim=2) / limit).to(weight.dtype)
    scale[scale == 0] = 1  # a group of zeros
    whole = (wide / scale.float()[:, :, None]).round().clamp(-limit - 1, limit).reshape(weight.shape)
    unsigned = (whole + limit + 1).to(torch.int64)
    per_word = WORD_BITS // bits
    unsigned = torch.nn.functional.pad(unsigned, (0, -columns % per_word)).reshape(len(weight), -1, per_word)
    words = (unsigned << (torch.arange(per_word) * bits)).sum(dim=2)
    words = torch.where(words >= 1 << 31, words - (1 << 32), words)  # as a signed word has the same bits
    return {
        f"{module}.weight_packed": words.to(torch.int32).contiguous(),
        f"{module}.weight_scale": scale.contiguous(),
        f"{module}.weight_shape": torch.tensor(weight.shape, dtype=torch.int64),
    }


def _described(kept: list[str], bits: int) -> dict[str, Any]:
    """What an engine has to know, as compressed-tensors writes it."""
    weights: dict[str, Any] = {"num_bits": bits, "type": "int", "symmetric": True, "dynamic": False}
    group_weights = GROUP_WEIGHTS[bits]
    weights |= (
        {"strategy": "group", "group_size": group_weights} if group_weights else {"strategy": "channel"}
    )
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "ignore": kept,
        "config_groups": {"group_0": group},
    }


def _bytes(tensors: Mapping[str, Any]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors.values())


def main() -> None:
    """Answer the one request; what is wrong with it goes out as `error`."""
    try:
        answer = quantise(from_data(Asked, json.loads(sys.stdin.read())))
    except (ValueError, OSError, KeyError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
