"""What the loop trains on: real text that every machine with Python has, its own standard library.

The sources are taken in the order of their names up to a limit in bytes, a byte-level BPE tokenizer of the
model's vocabulary is trained on their first part, and all of them become one array of tokens. The same
interpreter gives the same corpus. It is kept in a folder named by the digest of the text and the recipe;
the folder appears whole or not at all and is checked before each use.
"""

import hashlib
import json
import os
import shutil
import sysconfig
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path
from typing import Any

from twofold.core.errors import TwofoldError, ValueRefusedError
from twofold.live.training.artefact import check_files, seal, write_manifest

TOKENS = "tokens.npy"  # one array of uint16, for `numpy.load(mmap_mode="r")`
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
END, PADDING = "<|end|>", "<|pad|>"
RECIPE = 1  # raised when the same text would become other tokens
TOKENIZER_SHARE = 4  # the tokenizer learns from the first quarter: its merges hardly change after that
SMALLEST_VOCABULARY = 256 + 2  # every byte, the end and the padding
LARGEST_VOCABULARY = 2**16  # tokens are kept in two bytes
# Other people's packages; tests that quote broken text; tables of characters and of help topics.
NOT_TEXT_TO_LEARN = {"site-packages", "dist-packages", "test", "tests", "encodings", "pydoc_data"}
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def source_texts(limit_bytes: int) -> list[str]:
    """The standard library's sources, sorted by name, until `limit_bytes` of UTF-8 are reached."""
    texts, taken_bytes = [], 0
    for path in _sources(Path(sysconfig.get_paths()["stdlib"])):
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):  # a few sources are in other encodings on purpose
            continue
        text = text.encode()[: limit_bytes - taken_bytes].decode("utf-8", "ignore")
        taken_bytes += len(text.encode())
        texts.append(text)
        if taken_bytes >= limit_bytes - 3:  # a character that did not fit may be missing
            break
    return texts


def prepare_corpus(corpora: Path, vocabulary_tokens: int, limit_bytes: int) -> Path:
    """The folder of the corpus for a vocabulary, built below `corpora` unless it is there and whole.

    Raises ValueRefusedError for a vocabulary that bytes do not fit in or that two bytes do not count.
    """
    if not SMALLEST_VOCABULARY <= vocabulary_tokens <= LARGEST_VOCABULARY:
        raise ValueRefusedError(
            f"a vocabulary of {vocabulary_tokens} tokens cannot be trained on text here",
            hint=f"`vocab_size` from {SMALLEST_VOCABULARY} to {LARGEST_VOCABULARY} works",
        )
    texts = source_texts(limit_bytes)
    folder = corpora / _digest(texts, vocabulary_tokens)[:16]
    if folder.exists():
        try:
            check_files(folder)
            return folder
        except TwofoldError:  # someone changed it: make it again
            shutil.rmtree(folder)
    partial = corpora / f".partial-{folder.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _build(partial, texts, vocabulary_tokens)
    write_manifest(partial)
    seal(partial, folder)
    return folder


def _sources(root: Path) -> list[Path]:
    """Every source below `root` by name; folders that are left out are not walked, they can be huge."""
    found = []
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in NOT_TEXT_TO_LEARN]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def _digest(texts: list[str], vocabulary_tokens: int) -> str:
    from tokenizers import __version__ as tokenizers_version

    digest = hashlib.sha256(f"{RECIPE} {vocabulary_tokens} {tokenizers_version}\0".encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()


def _build(folder: Path, texts: list[str], vocabulary_tokens: int) -> None:
    import numpy as np

    tokenizer = _train_tokenizer(texts, vocabulary_tokens)
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"eos_token": END, "pad_token": PADDING}
    reader = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    config = {**named, **reader, "chat_template": CHAT_TEMPLATE}
    _write_json(folder / "tokenizer_config.json", config)
    _write_json(folder / "special_tokens_map.json", named)
    end = tokenizer.token_to_id(END)
    parts = [[*encoding.ids, end] for encoding in tokenizer.encode_batch_fast(texts)]
    tokens = np.fromiter((token for part in parts for token in part), dtype=np.uint16)
    np.save(folder / TOKENS, tokens)
    text_bytes = sum(len(text.encode()) for text in texts)
    _write_json(folder / "corpus.json", {"token_count": len(tokens), "text_bytes": text_bytes})


def _train_tokenizer(texts: list[str], vocabulary_tokens: int) -> Any:
    """A byte-level BPE tokenizer, so that no text is unknown to it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_tokens,
        special_tokens=[END, PADDING],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Every fourth file of the whole order would be another choice; the first quarter is as good and simpler.
    ends = list(accumulate(map(len, texts)))
    count = 1 + bisect_left(ends, sum(map(len, texts)) // TOKENIZER_SHARE)
    tokenizer.train_from_iterator(texts[:count], trainer)
    return tokenizer


def _write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
