"""A release that is worse on purpose: the weights of an artefact with every layer twice, so that each of its
tokens takes longer. It answers as any other does; what a canary is to find is its speed."""

import json
import shutil
from pathlib import Path

from twofold.core.errors import FileError
from twofold.live.training.artefact import MANIFEST, publish

LAYER = "model.layers."
WEIGHTS, CONFIG = "model.safetensors", "config.json"


def worse_release(artefact: Path, artefacts: Path) -> Path:
    """Publish it beside the others; the same artefact gives the same release. Raises FileError where the
    artefact is not of one file of such layers."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    try:
        config = json.loads((artefact / CONFIG).read_text("utf-8"))
        count = int(config["num_hidden_layers"])
        with safe_open(artefact / WEIGHTS, "pt") as held:
            weights, about = {name: held.get_tensor(name) for name in held.keys()}, held.metadata()  # noqa: SIM118
    except (OSError, ValueError, KeyError) as error:
        what = f"no worse release can be made of `{artefact}`: {error}"
        raise FileError(what, hint="train it again with `twofold up`") from error
    twice = {
        _again(name, count): weight.clone() for name, weight in weights.items() if name.startswith(LAYER)
    }
    partial = artefacts / f".worse-{artefact.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for path in artefact.iterdir():
            if path.is_file() and path.name not in (MANIFEST, WEIGHTS, CONFIG):
                shutil.copyfile(path, partial / path.name)
        save_file({**weights, **twice}, partial / WEIGHTS, about)
        config["num_hidden_layers"] = 2 * count
        if "layer_types" in config:
            config["layer_types"] *= 2
        (partial / CONFIG).write_text(json.dumps(config, indent=1) + "\n", "utf-8")
        return publish(partial, artefacts)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _again(name: str, count: int) -> str:
    number, _, rest = name.removeprefix(LAYER).partition(".")
    return f"{LAYER}{int(number) + count}.{rest}"
