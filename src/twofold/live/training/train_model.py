"""The network that a rank trains: any causal model, sharded, as precise and thrifty as the job says.

Precision is that of the products; weights, gradients that are summed, and the optimiser are fp32 always. What
recomputation drops in the forward pass is computed again in the backward pass, with equal results. Compiling
needs a compiler; without one the model runs eagerly, and says so.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# What a layer calls its attention, and what it calls the rest.
PARTS = {
    "selective": ("self_attn", "attn", "attention", "self_attention"),
    "mlp": ("mlp", "feed_forward", "block_sparse_moe"),
}
COMPILERS = ("c++", "g++", "clang++")
ADAPTER_SCALE = 2  # alpha over rank, as most recipes have it

Tell = Callable[..., None]


def build_network(job: Mapping[str, Any], model: Mapping[str, Any], tell: Tell) -> Any:
    """The whole network with fp32 weights: random ones from the seed, or those of a published folder."""
    torch.manual_seed(job["seed"])
    config, how = config_of(model), {"dtype": torch.float32, "trust_remote_code": False}
    if job["weights"]:
        how |= {"use_safetensors": True, "local_files_only": True}  # no pickle, whatever lies beside them
        network = AutoModelForCausalLM.from_pretrained(Path(job["weights"]), config=config, **how)
    else:
        network = AutoModelForCausalLM.from_config(config, **how)
    network.train()
    # Tied weights are one parameter here.
    tell("built", parameter_count=sum(each.numel() for each in network.parameters()))
    return with_adapters(network, job["adapter_rank"]) if job["adapter_rank"] else network


def config_of(model: Mapping[str, Any]) -> Any:
    """The model's configuration as the library reads it. Weights are fp32, whatever it was served in."""
    given = {key: value for key, value in model.items() if key not in ("torch_dtype", "dtype", "model_type")}
    return AutoConfig.for_model(model["model_type"], **{**given, "dtype": "float32", "use_cache": False})


def with_adapters(network: Any, rank: int) -> Any:
    """The network frozen, with an adapter of this rank beside every product of a layer."""
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(
        r=rank, lora_alpha=ADAPTER_SCALE * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return get_peft_model(network, settings)


def layers_of(network: Any) -> Any:
    """The list of the network's layers; raises ValueError for a network that has none."""
    config = network.config
    for module in network.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == config.num_hidden_layers:
            return module
    raise ValueError(f"a model of type {config.model_type} has no list of its layers")


def shard(network: Any, job: Mapping[str, Any], ranks: Any, tell: Tell, adorn: Callable[[Any], None]) -> None:
    """Shard the network over the mesh `ranks`, in place, layer by layer and the rest.

    `adorn` hears of each sharded module.
    """
    layers = layers_of(network)
    compiles = job["compute"] == "compiled" and can_compile(tell)
    for at, layer in enumerate(layers):
        layers[at] = _recomputing(layer, job["recompute"])
        if compiles:
            layers[at].compile()
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[job["precision"]], reduce_dtype=torch.float32)
    for module in (*layers, network):
        fully_shard(module, mesh=ranks, mp_policy=policy, reshard_after_forward=job["zero_stage"] == 3)
        adorn(module)


def _recomputing(layer: Any, recompute: str) -> Any:
    if recompute == "full":
        return checkpoint_wrapper(layer)
    for name in PARTS.get(recompute, ()):
        if hasattr(layer, name):
            setattr(layer, name, checkpoint_wrapper(getattr(layer, name)))
    return layer


def can_compile(tell: Tell) -> bool:
    """Whether this machine has what compiling needs; if not, that is told."""
    wanted = (os.environ.get("CXX") or "", *COMPILERS)
    if torch.cuda.is_available():
        found, needs = find_spec("triton") is not None, "the library triton"
    else:
        found, needs = any(shutil.which(name) for name in wanted if name), "a C++ compiler"
    if not found:
        tell("not-compiled", reason=f"compiling needs {needs}, which is not there: it runs eagerly")
    return found
