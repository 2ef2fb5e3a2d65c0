"""Whether a prompt and its answer fit the model's context and a replica's cache, before anything is sent.

An engine that is given more than its cache holds may die of it. Texts have at most a token per byte, so that
most requests fit at a glance; the others are counted with the model's own tokenizer, where one is given.
"""

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twofold.live.gateway.engine_fields import CHAT
from twofold.live.gateway.openai_requests import GenerationRequest, Problem

PLAIN = {"role", "content", "name"}  # of a message that is nothing but its text
TEMPLATE_TOKENS = 8  # that a chat's template sets around each message, and around all of them


@dataclass(frozen=True, slots=True)
class PromptBounds:
    """The most tokens of prompt and answer together, and what counts them. 0: nobody said."""

    context_tokens: int  # of the model
    cache_tokens: int  # of a replica's KV cache
    tokenizer: Any = None  # of the library `tokenizers`

    async def fitted(self, request: GenerationRequest) -> GenerationRequest | Problem:
        """The request, its answer no longer than there is room for where it stated no length; or why not."""
        limit = min((each for each in (self.context_tokens, self.cache_tokens) if each), default=0)
        most = _most_tokens(request)
        if not limit or most + request.answer_limit_tokens <= limit:
            return request
        tokens, texts = most, _texts_of(request)
        if texts is not None:
            tokens = await self._counted(texts, request)
        room = limit - tokens
        if room >= request.answer_limit_tokens:
            return request
        if room > 0 and not request.states_limit:
            return request.shortened(room)
        whose = "the model's context" if limit == self.context_tokens else "a replica's cache"
        about = "about " if request.path == CHAT or self.tokenizer is None else ""
        asked = f"{about}{tokens} tokens of prompt and {request.answer_limit_tokens} of answer"
        return Problem(400, f"{asked} exceed {whose} of {limit} tokens", code="context_length_exceeded")

    async def _counted(self, texts: list[str], request: GenerationRequest) -> int:
        if self.tokenizer is None:
            return request.input_tokens
        # Outside of the loop: a large prompt takes a while, and the library lets go of the interpreter.
        encode = self.tokenizer.encode_batch
        encoded = await asyncio.get_running_loop().run_in_executor(None, encode, texts)
        around = TEMPLATE_TOKENS * (len(texts) + 1) if request.path == CHAT else 0
        return sum(len(each.ids) for each in encoded) + around


def read_bounds(context_tokens: int, cache_tokens: int, tokenizer_file: str) -> PromptBounds:
    """Bounds with the tokenizer of a file; without the file or the library, prompts are guessed by length."""
    bounds = PromptBounds(context_tokens, cache_tokens)
    if not tokenizer_file or not Path(tokenizer_file).is_file():
        return bounds
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return bounds
    return replace(bounds, tokenizer=Tokenizer.from_file(tokenizer_file))


def _most_tokens(request: GenerationRequest) -> int:
    """More tokens than the longest prompt of a request can have, tools and calls counted."""
    if request.path != CHAT:
        return _most_of(request.fields["prompt"])
    told = _told(request)
    text = json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(text) + TEMPLATE_TOKENS * (len(told) + 1)


def _most_of(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt.encode("utf-8", "surrogatepass")) + TEMPLATE_TOKENS
    if all(type(each) is int for each in prompt):
        return len(prompt)
    return max(_most_of(each) for each in prompt)


def _texts_of(request: GenerationRequest) -> list[str] | None:
    """What the tokenizer is to count; None where a prompt is token ids or several."""
    prompt = request.fields.get("prompt")
    if request.path != CHAT:
        return [_sound(prompt)] if isinstance(prompt, str) else None
    return [_sound(_text_of(each)) for each in _told(request)]


def _told(request: GenerationRequest) -> list[Any]:
    """All that a chat's template puts before the model."""
    return [*request.fields["messages"], *(request.fields.get("tools") or ())]


def _text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) and message.keys() <= PLAIN else json.dumps(message)


def _sound(text: str) -> str:
    """Without halves of letters, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()
