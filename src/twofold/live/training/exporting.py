"""A trained network as a folder that the library loads: gathered tensor by tensor, in shards of bounded size.

No rank ever holds more of the gathered network than one shard.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.tensor import DTensor
from transformers import GenerationConfig

from twofold.live.training.artefact import flush
from twofold.live.training.corpus import TOKENIZER_FILES
from twofold.live.training.sealing import write_sealed
from twofold.live.training.train_job import LINEAGE

SHARD_BYTES = 1 << 30
WEIGHTS, INDEX = "model", "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"


def write_export(
    network: Any, folder: Path, tokenizer: Path, lineage: Mapping[str, Any], rank: int, key: bytes
) -> None:
    """Write the network to `folder`, which appears finished and sealed; every rank takes part, rank 0 writes.

    Adapters are written alone, as their library reads them.
    """
    unfinished = folder.with_name(f".{folder.name}.partial")
    if rank == 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
    if hasattr(network, "peft_config"):
        _write_adapter(network, unfinished, rank)
    else:
        _write_weights(network, unfinished, rank)
        if rank == 0:
            _write_config(network, unfinished, tokenizer)
    if rank != 0:
        return
    for name in filter(lambda name: (tokenizer / name).exists(), TOKENIZER_FILES):
        shutil.copyfile(tokenizer / name, unfinished / name)
    (unfinished / LINEAGE).write_text(json.dumps(lineage, indent=1, sort_keys=True) + "\n", "utf-8")
    write_sealed(unfinished, folder.name, key)
    for path in unfinished.iterdir():
        flush(path)
    unfinished.rename(folder)
    flush(folder.parent)


def gathered(network: Any) -> Iterator[tuple[str, Any]]:
    """Each tensor of the network whole, one after another, on every rank alike; a tied one once."""
    tied = set(getattr(network, "_tied_weights_keys", None) or ()) if _ties(network) else set()
    for name, tensor in get_model_state_dict(network).items():
        if name not in tied:
            yield name, tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _ties(network: Any) -> bool:
    return bool(getattr(network.config, "tie_word_embeddings", False))


def _write_weights(network: Any, folder: Path, rank: int) -> None:
    shards: list[list[str]] = []
    held: dict[str, Any] = {}
    held_bytes = 0
    for name, tensor in gathered(network):
        size_bytes = tensor.numel() * tensor.element_size()
        if held and held_bytes + size_bytes > SHARD_BYTES:
            _save(held, folder / f"{WEIGHTS}-{len(shards):05d}", rank)
            shards.append(list(held))
            held, held_bytes = {}, 0
        held[name] = tensor if rank == 0 else None
        held_bytes += size_bytes
    _save(held, folder / f"{WEIGHTS}-{len(shards):05d}", rank)
    shards.append(list(held))
    if rank == 0:
        _name_shards(folder, shards)


def _save(tensors: Mapping[str, Any], path: Path, rank: int) -> None:
    if rank == 0:
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(whole, path.with_suffix(".safetensors"), metadata={"format": "pt"})


def _name_shards(folder: Path, shards: list[list[str]]) -> None:
    """The names that the library looks for: one file without an index, or several with one."""
    files = [folder / f"{WEIGHTS}-{at:05d}.safetensors" for at in range(len(shards))]
    if len(files) == 1:
        files[0].rename(folder / f"{WEIGHTS}.safetensors")
        return
    places: dict[str, str] = {}
    size_bytes = 0
    for at, (path, names) in enumerate(zip(files, shards, strict=True), 1):
        size_bytes += path.stat().st_size
        named = path.with_name(f"{WEIGHTS}-{at:05d}-of-{len(files):05d}.partial")
        path.rename(named)
        places |= dict.fromkeys(names, named.with_suffix(".safetensors").name)
    for path in folder.glob("*.partial"):
        path.rename(path.with_suffix(".safetensors"))
    index = {"metadata": {"total_size": size_bytes}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", "utf-8")


def _write_config(network: Any, folder: Path, tokenizer: Path) -> None:
    config = network.config
    config.architectures, config.use_cache = [type(network).__bases__[-1].__name__], True
    generation = GenerationConfig.from_model_config(config)
    for each in (config, generation):
        for name, token in _ends(tokenizer).items():
            setattr(each, name, token)
        each.save_pretrained(folder)


def _ends(tokenizer: Path) -> dict[str, int | None]:
    """Tokens that end, pad and begin a text, by the tokenizer's own files."""
    said = json.loads((tokenizer / "tokenizer_config.json").read_text("utf-8"))
    tokens = json.loads((tokenizer / "tokenizer.json").read_text("utf-8"))["added_tokens"]
    by_text = {each["content"]: each["id"] for each in tokens}

    def token(name: str) -> int | None:
        text = said.get(name)
        return by_text.get(text.get("content") if isinstance(text, dict) else text)

    return {"eos_token_id": token("eos_token"), "pad_token_id": token("pad_token"),
            "bos_token_id": token("bos_token")}  # fmt: skip


def _write_adapter(network: Any, folder: Path, rank: int) -> None:
    found = {
        name.replace(".default", ""): tensor.cpu() for name, tensor in gathered(network) if "lora_" in name
    }
    if rank == 0:
        save_file({name: each.contiguous() for name, each in found.items()}, folder / ADAPTER)
        network.peft_config["default"].save_pretrained(folder)
