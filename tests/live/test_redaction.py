"""What is taken out of text before it is kept: what looks like somebody's, in time that the text bounds."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.live.gateway.redaction import LONG, _mixes, redacted, redacted_all
from twofold.live.gateway.redaction import TAKEN as FORMS

TAKEN = {
    "write to ann.b+c@mail.example.org today": "write to <email> today",
    "call +49 (30) 123-45 67 or 555-0199": "call <number> or <number>",
    "card 4111 1111 1111 1111.": "card <number>.",
    "to DE89 3704 0044 0532 0130 00 please": "to <number> please",
    "from 192.168.17.4 and 2001:db8:0:0:1:0:0:1": "from <address> and <address>",
    "authorization: Bearer abc.def-ghi": "authorization: <secret>",
    "password: hunter2, then": "<secret>, then",
    "export DB_PASSWORD=hunter2 OPENAI_API_KEY=abcdef": "export <secret> <secret>",
    'client_secret="of-ours", access_token: abcd, "pwd": "of-the-db"': '<secret>", <secret>, "<secret>"',
    "SECRET_KEY_BASE = 0a1b2c": "<secret>",
    "postgres://joe:pw@db/x and redis://:pw@cache": "postgres://<secret>@db/x and redis://<secret>@cache",
    "use sk-proj-abcdefghijkl1 now": "use <secret> now",
    "key 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b here": "key <secret> here",
    "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----.": "<secret>.",
}
STAYS = (
    "in 1999 we sold 250,000 of 12.5 inches",
    "the secret garden has a token gate",
    "the tokenizer is fast, tokens: 12 of them, see https://example.org:8080/a",
    "def sort_by_the_number_of_all_their_neighbours(items): return sorted(items)",
    "version 3.11.4 of 26 November",
)


@pytest.mark.parametrize(("text", "kept"), TAKEN.items())
def test_what_looks_like_somebodys_is_taken_out(text: str, kept: str) -> None:
    assert redacted(text) == kept
    assert redacted(kept) == kept  # twice is once


@given(st.lists(st.sampled_from([*TAKEN, *STAYS, "7", "12.", "٣٤", "AB12", "-", " ", "a" * 20]), max_size=8))
def test_what_is_not_looked_for_is_not_there(pieces: list[str]) -> None:
    """Most forms are passed over by a quick look: it changes nothing."""
    text = looked = "".join(pieces)
    for name, _, form in FORMS:
        looked = form.sub(f"<{name}>", looked)
    assert redacted(text) == LONG.sub(lambda each: "<secret>" if _mixes(each[0]) else each[0], looked)


@pytest.mark.parametrize("text", STAYS)
def test_ordinary_text_stays(text: str) -> None:
    assert redacted(text) == text


def test_every_text_of_plain_data_is_read() -> None:
    said = {"messages": [{"role": "user", "content": "I am a@b.org"}], "n": 1}
    assert redacted_all(said) == {"messages": [{"role": "user", "content": "I am <email>"}], "n": 1}


@pytest.mark.parametrize(
    "piece",
    [
        "a-",
        "1 ",
        "x",
        "1.",
        "token ",
        "token:" + " ",
        "a@",
        "-----BEGIN A",
        "A:",
        "DE89 ",
        "bearer ",
        "a_token",
        "_",
        "://a:",
    ],
)
def test_no_text_makes_it_slow(piece: str) -> None:
    """A client must not be able to hold the gateway up: processor time in proportion to the text."""
    took_s = []
    for size in (1 << 14, 1 << 17):
        text = (piece * (size // len(piece) + 1))[:size]
        began_s = time.process_time()
        redacted(text)
        took_s.append(time.process_time() - began_s)
    assert took_s[1] < max(0.25, 32 * took_s[0]), took_s
