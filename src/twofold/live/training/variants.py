"""Other releases of a model: the same answers from a slower build, the same weights in fewer bits.

Both are what a release pipeline is tried with: a canary is to find the first by its speed and to let the
second pass.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twofold.core.errors import FileError
from twofold.live.training.artefact import MANIFEST

LAYER = "model.layers."
INTO_RESIDUAL = ("self_attn.o_proj.weight", "mlp.down_proj.weight")  # what a layer adds goes through these
WEIGHTS, CONFIG = "model.safetensors", "config.json"

Tensors = dict[str, Any]
Change = Callable[[Tensors, dict[str, Any]], Tensors]


def slower_build(model: Path, folder: Path) -> None:
    """Write the model with twice the layers, the second half of which adds nothing: each token takes longer.

    Raises FileError for a model that is not of one file of such layers.
    """

    def twice(tensors: Tensors, config: dict[str, Any]) -> Tensors:
        count = int(config["num_hidden_layers"])
        config["num_hidden_layers"] = 2 * count
        if "layer_types" in config:
            config["layer_types"] *= 2
        more = {
            _again(name, count): tensor.clone() * (0.0 if name.endswith(INTO_RESIDUAL) else 1.0)
            for name, tensor in tensors.items()
            if name.startswith(LAYER)
        }
        return {**tensors, **more}

    write_variant(model, folder, twice)


def in_bf16(model: Path, folder: Path) -> None:
    """Write the model with weights of 16 bits: nearly the same numbers in fewer bytes. Raises FileError."""

    def rounded(tensors: Tensors, _: dict[str, Any]) -> Tensors:
        import torch

        return {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}

    write_variant(model, folder, rounded)


def write_variant(model: Path, folder: Path, change: Change) -> None:
    """Write the model to the new `folder` with tensors and config as `change` makes them."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    try:
        config = json.loads((model / CONFIG).read_text("utf-8"))
        with safe_open(model / WEIGHTS, "pt") as held:
            tensors, about = {name: held.get_tensor(name) for name in held.keys()}, held.metadata()  # noqa: SIM118
        changed: Mapping[str, Any] = change(tensors, config)
    except (OSError, ValueError, KeyError) as error:
        what = f"no other release can be made of `{model}`: {error}"
        raise FileError(what, hint="it takes a model of one safetensors file, as a run exports it") from error
    folder.mkdir(parents=True)
    for path in model.iterdir():
        if path.is_file() and path.name not in (MANIFEST, WEIGHTS, CONFIG):
            shutil.copyfile(path, folder / path.name)
    save_file({name: tensor.contiguous() for name, tensor in changed.items()}, folder / WEIGHTS, about)
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", "utf-8")


def _again(name: str, count: int) -> str:
    number, _, rest = name.removeprefix(LAYER).partition(".")
    return f"{LAYER}{int(number) + count}.{rest}"
