"""What a run without data of its own trains on, and the tokenizer of one whose model brings none.

The text is real and on every machine with Python: the standard library's sources, by name up to a limit in
bytes, as one file of JSON lines. The tokenizer is a byte-level BPE of the model's vocabulary, trained on the
first part of a run's text. The same interpreter gives the same of both. Each is named by the digest of what
it is made of, appears whole or not at all, and is checked before each use.
"""

import hashlib
import json
import os
import shutil
import sysconfig
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from twofold.core.errors import TwofoldError, ValueRefusedError
from twofold.live.training.artefact import check_files, seal, write_manifest, write_whole

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
END, PADDING = "<|end|>", "<|pad|>"
RECIPE = 2  # raised when the same text would become other tokens
TOKENIZER_SHARE = 4  # the tokenizer learns from the first quarter: its merges hardly change after that
SMALLEST_VOCABULARY = 256 + 2  # every byte, the end and the padding
LARGEST_VOCABULARY = 2**20
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


def held_out_texts(beyond_bytes: int, piece_count: int, piece_bytes: int) -> list[tuple[str, str]]:
    """Pieces of sources that a run on the first `beyond_bytes` never saw, each with its kind: `package` or
    `module`. They are spread over what is left, kind by kind, and begin where a file does.

    Raises ValueRefusedError where nothing is left.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    left, seen_bytes = list[Path](), 0
    for path in _sources(root):
        if seen_bytes >= beyond_bytes:
            left.append(path)
        seen_bytes += path.stat().st_size
    kinds = {
        "package": [path for path in left if path.parent != root],
        "module": [path for path in left if path.parent == root],
    }
    if not all(kinds.values()):
        what = f"the standard library holds no text beyond the first {beyond_bytes:,} bytes"
        raise ValueRefusedError(
            what, hint="train on less of it: what a model is judged by it must not have seen"
        )
    pieces = []
    for number in range(piece_count):
        for kind, paths in kinds.items():
            path = paths[number * len(paths) // piece_count]
            text = path.read_bytes()[:piece_bytes].decode("utf-8", "ignore")
            pieces.append((kind, text))
    return pieces


def prepare_text(corpora: Path, limit_bytes: int) -> Path:
    """The standard library's sources as a file of JSON lines below `corpora`, written unless it is there."""
    lines = "".join(json.dumps({"text": text}) + "\n" for text in source_texts(limit_bytes))
    path = corpora / f"text-{hashlib.sha256(lines.encode()).hexdigest()[:16]}.jsonl"
    try:
        if path.read_text("utf-8") == lines:
            return path
    except (OSError, ValueError):  # absent, or broken: written now
        pass
    write_whole(path, lines)
    return path


def prepare_tokenizer(
    corpora: Path, vocabulary_tokens: int, texts: Sequence[str], model_folder: Path | None = None
) -> Path:
    """The folder of a tokenizer: the model's own where `model_folder` has one, else trained on `texts`.

    Raises ValueRefusedError for a vocabulary that bytes do not fit in, or that the model's own exceeds.
    """
    if not SMALLEST_VOCABULARY <= vocabulary_tokens <= LARGEST_VOCABULARY:
        raise ValueRefusedError(
            f"a vocabulary of {vocabulary_tokens} tokens cannot be trained on text here",
            hint=f"`vocab_size` from {SMALLEST_VOCABULARY} to {LARGEST_VOCABULARY} works",
        )
    own = model_folder if model_folder and (model_folder / TOKENIZER_FILES[0]).is_file() else None
    told = (
        [(own / name).read_text("utf-8") for name in TOKENIZER_FILES if (own / name).is_file()]
        if own
        else texts
    )
    folder = corpora / tokenizer_name(told, vocabulary_tokens)
    if folder.exists():
        try:
            check_files(folder)
            return folder
        except TwofoldError:  # someone changed it: make it again
            shutil.rmtree(folder)
    partial = corpora / f".partial-{folder.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if own:
        _copy(own, partial, vocabulary_tokens)
    else:
        _build(partial, texts, vocabulary_tokens)
    write_manifest(partial)
    seal(partial, folder)
    return folder


def _copy(own: Path, folder: Path, vocabulary_tokens: int) -> None:
    from tokenizers import Tokenizer

    for name in TOKENIZER_FILES:
        if (own / name).is_file():
            shutil.copyfile(own / name, folder / name)
    count = Tokenizer.from_file(str(folder / TOKENIZER_FILES[0])).get_vocab_size()
    if count > vocabulary_tokens:
        what = f"the tokenizer in `{own}` has {count} tokens, the model {vocabulary_tokens}"
        raise ValueRefusedError(what, hint="give the model its own tokenizer")


def _sources(root: Path) -> list[Path]:
    """Every source below `root` by name; folders that are left out are not walked, they can be huge."""
    found = []
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in NOT_TEXT_TO_LEARN]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def tokenizer_name(texts: Sequence[str], vocabulary_tokens: int) -> str:
    """What a tokenizer is called by what it was made of: texts, or the files of a model's own."""
    from tokenizers import __version__ as tokenizers_version

    digest = hashlib.sha256(f"{RECIPE} {vocabulary_tokens} {tokenizers_version}\0".encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()[:16]


def _build(folder: Path, texts: Sequence[str], vocabulary_tokens: int) -> None:
    tokenizer = _train_tokenizer(texts, vocabulary_tokens)
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"eos_token": END, "pad_token": PADDING}
    reader = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    config = {**named, **reader, "chat_template": CHAT_TEMPLATE}
    _write_json(folder / "tokenizer_config.json", config)
    _write_json(folder / "special_tokens_map.json", named)


def _train_tokenizer(texts: Sequence[str], vocabulary_tokens: int) -> Any:
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
