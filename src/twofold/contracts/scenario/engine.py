"""What a scenario says about the serving engine, where it is set otherwise than the plan assumes."""

from typing import Literal

from pydantic import Field, model_validator

from twofold.contracts.spec import Part, fields, refusal
from twofold.core import ValueRefusedError

CHUNK_TOKENS_MIN = 16  # a block of the cache


class EngineChange(Part):
    """The engine's scheduler and cache. What is not named is as the plan has it."""

    batching: Literal["continuous", "static"] = Field(
        default="continuous", description="sequences come and go step by step, or a batch runs to its end"
    )
    wait_s: fields.Seconds = Field(
        default=1.0, alias="wait", description="static: how long a batch waits to be full"
    )
    max_batch: fields.PositiveCount | None = Field(default=None, description="sequences that run at once")
    chunk_tokens: fields.Tokens | None = Field(
        default=None, alias="chunk", description="tokens that one step may compute"
    )
    prefill: Literal["mixed", "exclusive", "separate"] = Field(
        default="mixed",
        description="prompts beside decoding sequences, alone and first, or on workers of their own, each "
        "with the accelerators of a planned replica: a replica is then one group of such workers",
    )
    prefill_workers: fields.PositiveCount = Field(default=1, description="separate: of one group")
    decode_workers: fields.PositiveCount = Field(default=1, description="separate: of one group")
    prefix_cache: Literal["on", "off"] = Field(
        default="on", description="whether prompts' blocks are kept for the next request that shares them"
    )
    reserve: Literal["prompt", "answer", "context"] = Field(
        default="prompt",
        description="cache that a sequence takes at once: paged by need, its longest answer, or one piece of "
        "the longest context",
    )

    def idle_fields(self) -> dict[str, str]:
        idle = {} if self.batching == "static" else {"wait_s": "belongs to `batching: static`"}
        if self.prefill != "separate":
            idle |= dict.fromkeys(("prefill_workers", "decode_workers"), "belongs to `prefill: separate`")
        return idle

    @property
    def worker_count(self) -> int:
        """Planned replicas that one of the scenario's is made of."""
        return self.prefill_workers + self.decode_workers if self.prefill == "separate" else 1

    @model_validator(mode="after")
    def _agree(self) -> "EngineChange":
        if self.chunk_tokens is not None and self.chunk_tokens < CHUNK_TOKENS_MIN:
            what = f"a step of {self.chunk_tokens:g} tokens computes less than one block of the cache"
            raise refusal(ValueRefusedError, what, f"write `chunk: {CHUNK_TOKENS_MIN} tok` or more")
        if self.batching == "static" and self.prefill == "separate":
            raise refusal(
                ValueRefusedError,
                "a static batch runs to its end where it began: `prefill: separate` contradicts it",
                "write `batching: continuous`, or another `prefill`",
            )
        return self
