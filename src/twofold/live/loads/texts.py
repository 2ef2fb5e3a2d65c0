"""Prompts of any length, no two from one place: slices of the standard library's sources.

Lengths go by a tokenizer where there is one, else by the characters per token that the server counted; what
its answers say of their own prompts is believed more than either.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from twofold.core.errors import FileError, MissingExtraError, ValueRefusedError
from twofold.live.loads.loader import Prompt
from twofold.live.training.corpus import source_texts

TEXT_BYTES = 4_000_000
PIECE = 4096  # characters, or tokens, that stay together where a text is parted in halves
USUAL_CHARACTERS = 4.0  # per token, where nobody counts
LEAST_CHARACTERS, MOST_CHARACTERS = 0.5, 20.0  # per token: what counts otherwise counts something else


@dataclass(slots=True)
class Texts:
    """Draws prompts. Mutable: each draw goes on in the stream of chance."""

    text: str
    chance: np.random.Generator
    characters_per_token: float = USUAL_CHARACTERS
    tokenizer: Any = None
    tokens: tuple[int, ...] = ()

    def prompt(self, input_tokens: int, output_tokens: int | None = None) -> Prompt:
        """One prompt of about so many tokens."""
        if self.tokenizer is not None:
            start = self._start(len(self.tokens), input_tokens)
            text = self.tokenizer.decode(list(self.tokens[start : start + input_tokens]))
            return Prompt(text, input_tokens, output_tokens)
        length = max(1, round(input_tokens * self.characters_per_token))
        start = self._start(len(self.text), length)
        return Prompt(self.text[start : start + length], input_tokens, output_tokens)

    def endless(self, input_tokens: int) -> Iterator[Prompt]:
        """Prompts of one length, for as long as somebody asks."""
        while True:
            yield self.prompt(input_tokens)

    def counted(self, prompt: Prompt, prompt_tokens: int) -> bool:
        """Take the length of prompts from a server's count of one; false where that cannot be."""
        ratio = len(prompt.text) / prompt_tokens if prompt_tokens else 0.0
        if not LEAST_CHARACTERS <= ratio <= MOST_CHARACTERS:
            return False
        self.characters_per_token = ratio
        return True

    def _start(self, available: int, wanted: int) -> int:
        if wanted > available:
            what = f"a prompt of {wanted:,} is longer than the text that prompts are made of, {available:,}"
            raise ValueRefusedError(what, hint="ask for shorter prompts")
        return int(self.chance.integers(0, available - wanted + 1))


def texts_of(seed: int, tokenizer: Path | None = None) -> Texts:
    """Prompts by the tokenizer of a folder or file, or by characters. Raises FileError, MissingExtraError."""
    text = "\n".join(source_texts(TEXT_BYTES))
    chance = np.random.default_rng(seed)
    if tokenizer is None:
        return Texts(text, chance)
    path = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    if not path.is_file():
        raise FileError(f"`{path}` does not exist", hint="name the folder of a model, or leave it out")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        hint = "pip install 'twofold[train]', or leave `--tokenizer` out"
        raise MissingExtraError("`tokenizers` is not installed", hint=hint) from error
    try:
        read = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises its base class
        raise FileError(f"`{path}` is no tokenizer: {str(error)[:120]}") from error
    return Texts(text, chance, tokenizer=read, tokens=tuple(read.encode(text).ids))


def halves(texts: Texts, seed: int) -> tuple[Texts, Texts]:
    """Two that draw from different halves of the text, parted by chance in pieces: what one half is measured
    with, the other has never seen."""
    chance = np.random.default_rng(seed)
    text_of, tokens_of = _parted(len(texts.text), chance), _parted(len(texts.tokens), chance)

    def half(number: int) -> Texts:
        text = "".join(texts.text[piece] for piece in text_of[number])
        tokens = tuple(token for piece in tokens_of[number] for token in texts.tokens[piece])
        return replace(texts, text=text, tokens=tokens, chance=np.random.default_rng((seed, number)))

    return half(0), half(1)


def _parted(length: int, chance: np.random.Generator) -> tuple[list[slice], list[slice]]:
    pieces = [slice(at, at + PIECE) for at in range(0, length, PIECE)]
    order = [pieces[int(each)] for each in chance.permutation(len(pieces))]
    return order[: len(order) // 2], order[len(order) // 2 :]
