"""The corpus: real text, the same tokens every time, never half of them."""

import json
from pathlib import Path

import pytest

from twofold.core.errors import ValueRefusedError
from twofold.live.training.corpus import (
    END,
    PADDING,
    TOKENIZER_FILES,
    prepare_text,
    prepare_tokenizer,
    source_texts,
)

pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")

VOCABULARY, LIMIT_BYTES = 320, 60_000
TEXTS = source_texts(LIMIT_BYTES)


def test_sources_are_real_sorted_and_end_at_the_limit() -> None:
    assert LIMIT_BYTES - 3 <= sum(len(text.encode()) for text in TEXTS) <= LIMIT_BYTES
    assert "import" in "".join(TEXTS)
    assert source_texts(1000)[0] == TEXTS[0][:1000]  # a smaller limit is a beginning of the larger


def test_the_text_is_written_whole_and_a_changed_one_is_written_again(tmp_path: Path) -> None:
    path = prepare_text(tmp_path, LIMIT_BYTES)
    content, written_ns = path.read_bytes(), path.stat().st_mtime_ns
    assert [json.loads(line)["text"] for line in content.splitlines()] == TEXTS
    assert prepare_text(tmp_path, LIMIT_BYTES) == path and path.stat().st_mtime_ns == written_ns
    path.write_bytes(content[:-100])
    assert prepare_text(tmp_path, LIMIT_BYTES).read_bytes() == content


def test_the_same_recipe_gives_the_same_bytes(tmp_path: Path) -> None:
    one = prepare_tokenizer(tmp_path / "one", VOCABULARY, TEXTS)
    two = prepare_tokenizer(tmp_path / "two", VOCABULARY, TEXTS)
    assert one.name == two.name
    for name in TOKENIZER_FILES:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    assert prepare_tokenizer(tmp_path / "one", VOCABULARY + 1, TEXTS) != one


def test_the_tokens_say_the_text_again(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    folder = prepare_tokenizer(tmp_path, VOCABULARY, TEXTS)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == VOCABULARY
    assert tokenizer.decode(tokenizer.encode(TEXTS[0]).ids) == TEXTS[0]
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    assert (config["eos_token"], config["pad_token"]) == (END, PADDING)


def test_a_whole_tokenizer_is_kept_and_a_changed_or_half_one_is_made_again(tmp_path: Path) -> None:
    first = prepare_tokenizer(tmp_path, VOCABULARY, TEXTS)
    file = first / "tokenizer.json"
    content, written_ns = file.read_bytes(), file.stat().st_mtime_ns
    assert prepare_tokenizer(tmp_path, VOCABULARY, TEXTS) == first
    assert file.stat().st_mtime_ns == written_ns
    file.chmod(0o644)
    file.write_bytes(content[:-100])
    assert prepare_tokenizer(tmp_path, VOCABULARY, TEXTS) == first
    assert file.read_bytes() == content
    first.rename(tmp_path / f".partial-{first.name}")  # as a kill just before the end leaves it
    (tmp_path / f".partial-{first.name}" / file.name).unlink()
    assert (prepare_tokenizer(tmp_path, VOCABULARY, TEXTS) / file.name).read_bytes() == content


def test_a_models_own_tokenizer_is_taken_and_one_larger_than_the_model_refused(tmp_path: Path) -> None:
    own = prepare_tokenizer(tmp_path / "own", VOCABULARY, TEXTS)
    taken = prepare_tokenizer(tmp_path / "taken", VOCABULARY + 60, ["other text"], own)
    assert (taken / "tokenizer.json").read_bytes() == (own / "tokenizer.json").read_bytes()
    with pytest.raises(ValueRefusedError, match="has 320 tokens, the model 300"):
        prepare_tokenizer(tmp_path / "small", 300, ["other text"], own)


@pytest.mark.parametrize("vocabulary_tokens", [0, 257, 2**20 + 1])
def test_vocabularies_that_bytes_do_not_fit_are_refused(tmp_path: Path, vocabulary_tokens: int) -> None:
    with pytest.raises(ValueRefusedError, match=str(vocabulary_tokens)):
        prepare_tokenizer(tmp_path, vocabulary_tokens, TEXTS)
