"""What is taken out of text before it is kept: by its form, so a name, or a secret like any word, stays.

Each find becomes a word in angle brackets. Patterns err on the side of taking too much: an order number of
seven digits goes as a telephone number does.
"""

import re
from typing import Any

DIGITS = "0123456789"
WORDS = ("pass", "pwd", "api", "secret", "token")  # what such a one is set to is a secret
SET = (":", "=", "is")  # what stands between such a word and the secret
# What a text must hold for a form to be looked for, one of these in small letters or so many digits: most
# hold nothing of it. Each start of each form reads a bounded part of the text, or what it then takes: no
# text makes them slow.
FORMS: tuple[tuple[str, int | tuple[str, ...], str], ...] = (
    ("secret", ("-----begin ",), r"-----BEGIN [A-Z ]{1,40}-----.*?(?:-----END [A-Z ]{1,40}-----|\Z)"),
    ("secret", ("bearer",), r"\b(?i:bearer)[ \t]{1,3}[^\s,;\"']{8,}"),
    (
        "secret",
        WORDS,
        r"(?<![\w-])(?i:[\w-]{0,40}?(?:password|passwd|passphrase|pwd|api[_-]?key|secret|token)(?:[_-]\w{1,20})?)"
        r"[\"']?[ \t]{0,3}(?:[:=]|is\b)[ \t]{0,3}[\"']?[^\s,;\"']{4,}",
    ),
    ("secret", ("://",), r"(?<=://)[^\s/@:]{0,64}:[^\s/@]{1,128}(?=@)"),  # of an address
    ("email", ("@",), r"[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"),
    (
        "secret",
        ("sk-", "sk_", "pk-", "pk_", "ghp", "gho", "xox", "akia"),
        r"\b(?:sk|pk|ghp|gho|xox[abp])[-_][A-Za-z0-9_-]{12,}|\bAKIA[A-Z0-9]{12,}",
    ),
    ("address", 4, r"\b\d{1,3}(?:\.\d{1,3}){3}\b"),
    ("address", (":",), r"\b(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}\b"),
    ("number", 2, r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b"),  # an IBAN
    ("number", 7, r"(?<![\w.])\+?\d(?:[ ().\-/]{0,2}\d){6,}+"),
)
TAKEN = tuple((name, hints, re.compile(form, re.S)) for name, hints, form in FORMS)
LONG_LEAST = 32
# A secret, if it mixes letters and digits.
LONG = re.compile(rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{LONG_LEAST},}}={{0,2}}")


def redacted(text: str) -> str:
    """The text without what looks like an address, a number of somebody, or a secret.

    >>> redacted("write to ann@example.org or call +49 30 1234567, pin 1234")
    'write to <email> or call <number>, pin 1234'
    """
    small = text.lower()
    # `\d` knows the digits of other scripts too, which are not counted: any number of them may be there
    digits = sum(map(text.count, DIGITS)) if text.isascii() else len(text)
    for name, hints, form in TAKEN:
        if digits >= hints if isinstance(hints, int) else _holds(small, hints):
            text = form.sub(f"<{name}>", text)
    if not digits or max(map(len, small.split()), default=0) < LONG_LEAST:
        return text  # nothing long, or nothing that mixes
    return LONG.sub(lambda found: "<secret>" if _mixes(found[0]) else found[0], text)


def _holds(small: str, hints: tuple[str, ...]) -> bool:
    """Whether one of the hints is there, and for words that name a secret also what sets it."""
    if not any(hint in small for hint in hints):
        return False
    return hints is not WORDS or any(each in small for each in SET)


def _mixes(word: str) -> bool:
    return any(each.isdigit() for each in word) and any(each.isalpha() for each in word)


def redacted_all(value: Any) -> Any:
    """The same of every text in plain data; keys stay."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {key: redacted_all(each) for key, each in value.items()}
    return [redacted_all(each) for each in value] if isinstance(value, list) else value
