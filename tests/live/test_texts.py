"""Prompts of any length, by a tokenizer or by characters."""

from pathlib import Path

import pytest

from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.loads.loader import Prompt
from twofold.live.loads.texts import Texts, texts_of


def test_prompts_are_as_long_as_asked_differ_and_come_again_from_the_same_seed() -> None:
    first, again, other = texts_of(1), texts_of(1), texts_of(2)
    prompts = [first.prompt(100) for _ in range(5)]
    assert all(len(prompt.text) == 400 and prompt.input_tokens == 100 for prompt in prompts)
    assert len({prompt.text[:40] for prompt in prompts}) == 5  # no shared beginnings
    assert [again.prompt(100) for _ in range(5)] == prompts != [other.prompt(100) for _ in range(5)]
    assert first.prompt(10, 7).output_tokens == 7


def test_lengths_follow_what_a_server_counts_unless_that_cannot_be() -> None:
    texts = texts_of(1)
    assert texts.counted(Prompt("x" * 300, 75), 100)
    assert len(texts.prompt(50).text) == 150
    for impossible in (0, 1, 100_000):
        assert not texts.counted(Prompt("x" * 300, 75), impossible)
    assert len(texts.prompt(50).text) == 150


def test_a_tokenizer_cuts_prompts_to_the_token(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")
    words = {"[UNK]": 0, "def": 1, "return": 2, "import": 3, "self": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    texts = texts_of(1, tmp_path)
    prompt = texts.prompt(30)
    assert prompt.input_tokens == 30 and len(texts.tokens) > 1000
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(FileError, match="no tokenizer"):
        texts_of(1, tmp_path)


def test_what_is_too_long_or_not_there_is_refused(tmp_path: Path) -> None:
    short: Texts = texts_of(1)
    with pytest.raises(ValueRefusedError, match="longer than the text"):
        short.prompt(10_000_000)
    with pytest.raises(FileError, match="does not exist"):
        texts_of(1, tmp_path)
