"""What a scenario says about the serving engine, where it is set otherwise than the plan assumes."""

from typing import Literal

from pydantic import Field

from twofold.contracts import fields
from twofold.contracts.fields import Part


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
    prefill: Literal["mixed", "exclusive"] = Field(
        default="mixed", description="prompts beside decoding sequences, or alone and first"
    )
    prefix_cache: Literal["on", "off"] = Field(
        default="on", description="whether prompts' blocks are kept for the next request that shares them"
    )
    reserve: Literal["prompt", "answer", "context"] = Field(
        default="prompt",
        description="cache that a sequence takes at once: paged by need, its longest answer, or one piece of "
        "the longest context",
    )

    def idle_fields(self) -> dict[str, str]:
        return {} if self.batching == "static" else {"wait_s": "belongs to `batching: static`"}
