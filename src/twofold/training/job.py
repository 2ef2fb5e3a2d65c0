"""What is trained, and its shape as numbers that broadcast: one job, or one per candidate."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twofold.catalog import Model
from twofold.core import InputError
from twofold.perf import DEFAULT_FRAMEWORK

Kind = Literal["pretrain", "finetune", "lora"]
Precision = Literal["bf16", "fp16", "fp32", "fp8", "fp4", "int8"]
Dimension = float | NDArray[np.float64]
"""A count or a size of the model; an array holds one per candidate."""


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
    def tokens_per_step(self) -> int:
        """Tokens that one optimiser step consumes."""
        return self.sequence_tokens * self.global_batch_sequences


@dataclass(frozen=True, slots=True)
class Workload:
    """The job as numbers. Every dimension is one number or an array over candidates; absent parts are 0."""

    layers: Dimension
    hidden: Dimension
    heads: Dimension
    kv_heads: Dimension
    head_dim: Dimension  # of queries and keys
    v_head_dim: Dimension
    softmax_layers: Dimension
    sliding_layers: Dimension
    sliding_window: Dimension
    linear_layers: Dimension  # linear-attention and state-space mixers
    linear_width: Dimension  # channels of one of them
    moe_layers: Dimension
    dense_ffn_layers: Dimension
    ffn_hidden: Dimension
    ffn_matrices: Dimension
    experts: Dimension
    experts_topk: Dimension
    moe_ffn_hidden: Dimension
    expert_input: Dimension  # what routed experts read and write: the hidden size, or a narrower latent
    shared_ffn_hidden: Dimension
    mla_kv_rank: Dimension
    mla_q_rank: Dimension
    mla_rope_dim: Dimension
    vocab: Dimension
    embedding_copies: Dimension  # 1 when input and output tables are tied
    parameters: Dimension
    sequence_tokens: Dimension
    batch_sequences: Dimension
    lora_rank: Dimension
    weight_bytes: Dimension  # of one parameter while it computes
    optimizer_bytes: Dimension  # of one trained parameter: master copy and moments
    optimizer_on_host: Dimension  # 1 when its states live in host memory


BYTES_BY_PRECISION = {"fp32": 4.0}
MASTER_BYTES = {"fp32": 0.0}  # fp32 weights are their own master copy
MOMENT_BYTES = {"adam": 8.0, "sgd": 4.0}


def workload(job: TrainingJob) -> Workload:
    """The numbers of one job."""
    model = job.model
    latent = model.mla_kv_rank > 0
    return Workload(
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.heads if latent else model.kv_heads,
        head_dim=model.mla_qk_nope + model.mla_qk_rope if latent else model.head_dim,
        v_head_dim=model.mla_v_head_dim if latent else model.head_dim,
        softmax_layers=model.softmax_attention_layers,
        sliding_layers=model.sliding_layers,
        sliding_window=model.sliding_window,
        linear_layers=model.linear_layers,
        linear_width=model.linear_heads * model.linear_head_dim,
        moe_layers=model.moe_layers,
        dense_ffn_layers=dense_ffn_layers(model),
        ffn_hidden=model.ffn_hidden,
        ffn_matrices=model.ffn_matrices,
        experts=model.experts,
        experts_topk=model.experts_topk,
        moe_ffn_hidden=model.moe_ffn_hidden,
        expert_input=model.moe_latent or model.hidden,
        shared_ffn_hidden=model.shared_ffn_hidden,
        mla_kv_rank=model.mla_kv_rank,
        mla_q_rank=model.mla_q_rank,
        mla_rope_dim=model.mla_qk_rope,
        vocab=model.vocab,
        embedding_copies=1 if model.tied_embeddings else 2,
        parameters=model.parameters,
        sequence_tokens=job.sequence_tokens,
        batch_sequences=job.global_batch_sequences,
        lora_rank=job.lora_rank,
        weight_bytes=BYTES_BY_PRECISION.get(job.precision, 2.0),
        optimizer_bytes=MASTER_BYTES.get(job.precision, 4.0) + MOMENT_BYTES[job.optimizer],
        optimizer_on_host=float(job.optimizer_place == "host"),
    )


def dense_ffn_layers(model: Model) -> int:
    """Layers that hold a dense FFN: those without experts; in some hybrids a block is a mixer or an FFN."""
    mixers = model.softmax_attention_layers + model.linear_layers
    if model.linear_layers and mixers + model.moe_layers < model.layers:
        return model.layers - mixers - model.moe_layers
    return model.layers - model.moe_layers if model.ffn_hidden else 0


def stack_workloads(workloads: Sequence[Workload]) -> Workload:
    """One workload whose fields are arrays over `workloads`, so that rows of different jobs are one call."""
    return Workload(
        **{f.name: np.array([getattr(work, f.name) for work in workloads], float) for f in fields(Workload)}
    )
