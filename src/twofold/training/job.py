"""What is trained, and its shape as numbers that broadcast: one job, or one per candidate."""

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twofold.catalog.types import Model
from twofold.core.errors import InputError
from twofold.perf.formats import peak_format
from twofold.perf.shape import ModelShape
from twofold.perf.software import DEFAULT_FRAMEWORK
from twofold.perf.types import Device, Floats

Kind = Literal["pretrain", "finetune", "lora"]
Precision = Literal["bf16", "fp16", "fp32", "fp8", "fp4", "int8"]
Dimension = float | NDArray[np.float64]
"""A count or a size of the model; an array holds one per candidate."""

BYTES_BY_PRECISION = {"fp32": 4.0}
MASTER_BYTES = {"fp32": 0.0}  # fp32 weights are their own master copy
MOMENT_BYTES = {"adam": 8.0, "sgd": 4.0}


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One training run: the model, its batch and what is updated. `framework` is what drives it."""

    model: Model
    kind: Kind
    sequence_tokens: int
    global_batch_sequences: int
    precision: Precision = "bf16"
    framework: str = DEFAULT_FRAMEWORK
    framework_version: str | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    lora_rank: int = 0
    optimizer_place: Literal["device", "host"] = "device"

    def __post_init__(self) -> None:
        if self.sequence_tokens < 1 or self.global_batch_sequences < 1:
            raise InputError("a training batch needs at least one sequence of at least one token")
        if (self.kind == "lora") != (self.lora_rank > 0):
            raise InputError(
                "a LoRA run needs a rank, and only a LoRA run has one", hint="write 'lora_rank: 16'"
            )

    @property
    def workload(self) -> "Workload":
        """The job as numbers."""
        shape = ModelShape.of(self.model)
        numbers = {f.name: getattr(shape, f.name) for f in fields(shape)}
        return Workload(
            **numbers | {"dense_ffn_layers": float(dense_ffn_layers(self.model))},
            sequence_tokens=self.sequence_tokens,
            batch_sequences=self.global_batch_sequences,
            lora_rank=self.lora_rank,
            weight_bytes=BYTES_BY_PRECISION.get(self.precision, 2.0),
            input_bytes=1.0 if self.precision in ("fp8", "fp4") else 2.0,
            optimizer_bytes=MASTER_BYTES.get(self.precision, 4.0) + MOMENT_BYTES[self.optimizer],
            optimizer_on_host=float(self.optimizer_place == "host"),
        )

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimiser step consumes."""
        return self.sequence_tokens * self.global_batch_sequences


@dataclass(frozen=True, slots=True)
class Workload(ModelShape):
    """The job as numbers: the model's, and those of its batch. An array holds one per candidate."""

    sequence_tokens: Dimension
    batch_sequences: Dimension
    lora_rank: Dimension
    weight_bytes: Dimension  # of one parameter while it computes
    input_bytes: Dimension  # of one value of a product's input, as backward keeps it
    optimizer_bytes: Dimension  # of one trained parameter: master copy and moments
    optimizer_on_host: Dimension  # 1 when its states live in host memory

    @property
    def dense_parameters(self) -> Dimension:
        """Weights of the average layer that every tensor-parallel group holds whole: attention, dense FFN,
        shared experts, router, and whatever else the published total holds (linear mixers, biases, norms)."""
        return self.described_dense_parameters + self.other_parameters

    @property
    def described_dense_parameters(self) -> Dimension:
        """As `dense_parameters`, without what the shape does not explain."""
        moe_share = self.moe_layers / self.layers
        dense = self.dense_ffn_layers / self.layers * self.ffn_matrices * self.hidden * self.ffn_hidden
        shared = moe_share * self.hidden * (self.ffn_matrices * self.shared_ffn_hidden + self.experts)
        return self.softmax_layers / self.layers * self.layer_attention_weights + dense + shared

    @property
    def expert_parameters(self) -> Dimension:
        """Weights of the average layer's routed experts, all of them."""
        return self.moe_layers / self.layers * self.layer_expert_weights

    @property
    def other_parameters(self) -> Dimension:
        """Weights per layer that the shape does not describe: the published total less the described."""
        described = self.layers * (self.described_dense_parameters + self.expert_parameters)
        rest = (self.parameters_count - described - self.embedding_weights) / self.layers
        return np.maximum(rest, 0.0)

    @property
    def lora_parameters(self) -> Dimension:
        """Adapter weights of the average layer: rank × (inputs + outputs) of attention and FFN matrices.

        Source   Hu et al. 2021. Experts are left without adapters.
        """
        hidden, heads = self.hidden, self.heads
        kv_width = self.full_kv_heads * (self.qk_head_dim + self.v_head_dim)
        attention = 4 * hidden + 2 * heads * self.qk_head_dim + kv_width
        return self.lora_rank * (attention + self.ffn_matrices * (hidden + self.ffn_hidden))

    @property
    def trained_parameters(self) -> Dimension:
        """Parameters that have a gradient: all, or the adapters alone."""
        everything = self.layers * (self.dense_parameters + self.expert_parameters)
        everything = everything + self.embedding_weights
        return np.where(np.asarray(self.lora_rank) > 0, self.layers * self.lora_parameters, everything)

    def least_step_s(self, device: Device, precision: str, accelerators: Floats) -> Floats:
        """Seconds that no step stays below: the model's own FLOPs over the whole peak of all accelerators.

        Narrow formats count at their own peak, though not every product runs in them.
        """
        flops = self.model_flops_per_token * self.sequence_tokens * self.batch_sequences
        peaks = device.peak_flops_per_s
        own = peaks.get(peak_format(precision))
        return flops / (accelerators * (max(peaks.values()) if own is None else own))

    @property
    def model_flops_per_token(self) -> Dimension:
        """FLOPs that one token needs forward and backward, recomputation not counted.

        Formula  6 × (active matrix weights) + 3 × attention; causal: on average half of the sequence is seen
        Why      Two FLOPs per weight forward, twice that backward; a table lookup costs none, the head does.
                 Weights frozen beside adapters need no gradient of their own: 4 instead of 6.
        Units    FLOP per token.
        Source   Narayanan et al. 2021, section 5.1, with causal attention.
        """
        active = self.dense_parameters + self.expert_parameters * self.expert_share
        matrices = self.layers * active + self.vocab * self.hidden
        per_weight = np.where(np.asarray(self.lora_rank) > 0, 4, 6)
        return per_weight * matrices + 3 * self.softmax_layers * self.attention_flops_per_token

    @property
    def attention_flops_per_token(self) -> Dimension:
        """Forward FLOPs of one softmax layer's scores and values for one token, windows counted."""
        seen = self.sequence_tokens / 2
        slid = np.minimum(self.sliding_window, seen)
        share = self.sliding_layers / np.maximum(self.softmax_layers, 1)
        return 2 * self.heads * (self.qk_head_dim + self.v_head_dim) * (seen * (1 - share) + slid * share)

    @property
    def expert_share(self) -> Dimension:
        """Share of the routed experts that one token passes."""
        return self.experts_topk / np.maximum(self.experts, 1)

    @property
    def checkpoint_bytes(self) -> float:
        """Bytes of one checkpoint: trained weights as they compute, master copy, moments.

        14 B each in mixed precision with Adam, 12 B in 32 bits, where the weights are their own master copy.
        """
        return float(np.max(self.trained_parameters * (self.weight_bytes + self.optimizer_bytes)))


def dense_ffn_layers(model: Model) -> int:
    """Layers that hold a dense FFN: those without experts; in some hybrids a block is a mixer or an FFN."""
    mixers = model.softmax_attention_layers + model.linear_layers
    if model.linear_layers and mixers + model.moe_layers < model.layers:
        return model.layers - mixers - model.moe_layers
    return model.layers - model.moe_layers if model.ffn_hidden else 0
