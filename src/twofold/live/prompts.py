"""Prompts for a load: pieces of real text, each of exactly as many tokens as was asked for."""

from pathlib import Path

import numpy as np

from twofold.core import FileError
from twofold.live.corpus import source_texts
from twofold.live.loader import Prompt

PROMPT_COUNT = 64
TEXT_BYTES = 1_000_000


def prompts_of(artefact: Path, input_tokens: int, seed: int, count: int = PROMPT_COUNT) -> tuple[Prompt, ...]:
    """`count` different prompts of about `input_tokens` by the artefact's own tokenizer.

    Slices of the standard library's sources from random places, so that no two share a prefix. Raises
    FileError when the artefact has no tokenizer.
    """
    from tokenizers import Tokenizer

    path = artefact / "tokenizer.json"
    if not path.is_file():
        raise FileError(f"`{artefact}` has no tokenizer.json", hint="train it again")
    tokenizer = Tokenizer.from_file(str(path))
    tokens = tokenizer.encode("\n".join(source_texts(TEXT_BYTES))).ids
    starts = np.random.default_rng(seed).integers(0, len(tokens) - input_tokens, count)
    texts = [tokenizer.decode(tokens[start : start + input_tokens]) for start in map(int, starts)]
    return tuple(Prompt(text, len(tokenizer.encode(text).ids)) for text in texts)
