"""The corpus: real text, the same tokens every time, never half of them."""

import json
from pathlib import Path

import pytest

from twofold.core.errors import ValueRefusedError
from twofold.live.training.corpus import END, PADDING, TOKENIZER_FILES, TOKENS, prepare_corpus, source_texts

pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")

VOCABULARY, LIMIT_BYTES = 320, 60_000


def test_sources_are_real_sorted_and_end_at_the_limit() -> None:
    texts = source_texts(LIMIT_BYTES)
    assert LIMIT_BYTES - 3 <= sum(len(text.encode()) for text in texts) <= LIMIT_BYTES
    assert "import" in "".join(texts)
    assert source_texts(1000)[0] == texts[0][:1000]  # a smaller limit is a beginning of the larger


def test_the_same_recipe_gives_the_same_bytes(tmp_path: Path) -> None:
    one = prepare_corpus(tmp_path / "one", VOCABULARY, LIMIT_BYTES)
    two = prepare_corpus(tmp_path / "two", VOCABULARY, LIMIT_BYTES)
    assert one.name == two.name
    for name in (*TOKENIZER_FILES, TOKENS):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    other = prepare_corpus(tmp_path / "one", VOCABULARY + 1, LIMIT_BYTES)
    assert other != one


def test_the_tokens_say_the_text_again(tmp_path: Path) -> None:
    import numpy as np
    from tokenizers import Tokenizer

    corpus = prepare_corpus(tmp_path, VOCABULARY, LIMIT_BYTES)
    tokens = np.load(corpus / TOKENS)
    made = json.loads((corpus / "corpus.json").read_text("utf-8"))
    assert tokens.dtype == np.uint16 and len(tokens) == made["token_count"]
    assert tokens.max() < VOCABULARY
    tokenizer = Tokenizer.from_file(str(corpus / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == VOCABULARY
    said = tokenizer.decode(tokens.tolist(), skip_special_tokens=False)
    assert said == "".join(text + END for text in source_texts(LIMIT_BYTES))
    config = json.loads((corpus / "tokenizer_config.json").read_text("utf-8"))
    assert (config["eos_token"], config["pad_token"]) == (END, PADDING)


def test_a_whole_corpus_is_kept_and_a_changed_or_half_one_is_made_again(tmp_path: Path) -> None:
    first = prepare_corpus(tmp_path, VOCABULARY, LIMIT_BYTES)
    tokens = first / TOKENS
    content, written_ns = tokens.read_bytes(), tokens.stat().st_mtime_ns
    assert prepare_corpus(tmp_path, VOCABULARY, LIMIT_BYTES) == first
    assert tokens.stat().st_mtime_ns == written_ns
    tokens.chmod(0o644)
    tokens.write_bytes(content[:-100])
    assert prepare_corpus(tmp_path, VOCABULARY, LIMIT_BYTES) == first
    assert tokens.read_bytes() == content
    first.rename(tmp_path / f".partial-{first.name}")  # as a kill just before the end leaves it
    (tmp_path / f".partial-{first.name}" / TOKENS).unlink()
    assert (prepare_corpus(tmp_path, VOCABULARY, LIMIT_BYTES) / TOKENS).read_bytes() == content


@pytest.mark.parametrize("vocabulary_tokens", [0, 257, 2**16 + 1, 128_256])
def test_vocabularies_that_bytes_or_tokens_do_not_fit_are_refused(
    tmp_path: Path, vocabulary_tokens: int
) -> None:
    with pytest.raises(ValueRefusedError, match=str(vocabulary_tokens)):
        prepare_corpus(tmp_path, vocabulary_tokens, LIMIT_BYTES)
