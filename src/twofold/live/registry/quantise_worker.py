"""Makes the weights of a model's linear layers 8 bits wide, in a process of its own: a scale for each row.

Reads one JSON request on standard input, writes one JSON answer on standard output. Embeddings, norms and
what predicts the next token stay as they are. What is written is read by engines that know compressed-
tensors, such as transformers: four integers in each word of 32 bits, as its format `pack-quantized` has
them. Weights are read from safetensors alone, file by file, and no code that a model brings is run.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.core.data import from_data

BITS = 8
PER_WORD = 32 // BITS
LIMIT = 2 ** (BITS - 1) - 1  # 127: the same on both sides of zero
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Asked:
    """Which folder, and the new one that is written."""

    model: str
    out: str


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
            made = _packed(module, tensor) if module in linear and name != module else {name: tensor}
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
    config["quantization_config"] = _described(kept)
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


def _packed(module: str, weight: Any) -> dict[str, Any]:
    """A weight as integers, a scale for each of its rows, and the shape that it had.

    Formula  scale = max |w| / 127 over a row;  q = round(w / scale), which is within ±127
    """
    import torch

    wide = weight.float()
    scale = (wide.abs().amax(dim=1, keepdim=True) / LIMIT).to(weight.dtype)
    scale[scale == 0] = 1  # a row of zeros
    whole = (wide / scale.float()).round().clamp(-LIMIT - 1, LIMIT)
    unsigned = (whole + LIMIT + 1).to(torch.uint8)
    unsigned = torch.nn.functional.pad(unsigned, (0, -unsigned.shape[1] % PER_WORD))
    return {
        f"{module}.weight_packed": unsigned.contiguous().view(torch.int32),
        f"{module}.weight_scale": scale,
        f"{module}.weight_shape": torch.tensor(weight.shape, dtype=torch.int64),
    }


def _described(kept: list[str]) -> dict[str, Any]:
    """What an engine has to know, as compressed-tensors writes it."""
    weights = {"num_bits": BITS, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
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
