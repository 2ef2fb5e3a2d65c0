"""Words of a question: models, batches, layouts and lists, each read once into what the models take."""

import re

from twofold.answer.context import token_model
from twofold.catalog.catalog import Catalog
from twofold.catalog.model_config import model_called
from twofold.catalog.types import Model
from twofold.contracts.spec.training_run import near_batch
from twofold.core import errors
from twofold.core.errors import UnknownNameError, ValueRefusedError
from twofold.core.quantity import Dimension, parse_quantity

# Sizes of a layout as people write them -> as layouts name them.
SIZES = {name: name for name in ("tp", "cp", "ep", "pp", "vpp", "dp")}
SIZES |= {"mb": "micro_batch", "micro_batch": "micro_batch", "sp": "sequence_parallel"}
REPLICAS_MAX = 4096
LARGEST = 1e15  # of tokens, sequences, requests/s and bytes of one question


def model_in(text: str, catalog: Catalog) -> Model:
    """A catalogue name, or a path to a Hugging Face config.json (or the folder that holds it)."""
    return token_model(model_called(text, catalog)[0])


def sequences_in(text: str, sequence_tokens: int) -> int:
    """Sequences per step from `512 seq`, or from tokens that divide by the sequence."""
    if sequence_tokens < 1:
        raise ValueRefusedError("a sequence needs at least one token", hint="write for example `8192 tok`")
    try:
        sequences = parse_quantity(text, Dimension.SEQUENCES, "seq")
    except errors.QuantityError as error:
        try:
            sequences = parse_quantity(text, Dimension.TOKENS) / sequence_tokens
        except errors.QuantityError:
            raise error from None
    not_more_than(LARGEST / sequence_tokens, sequences, text)
    if sequences < 1 or sequences != int(sequences):
        near = near_batch(sequences)
        what = f"a batch of `{text}` is no whole number of sequences of {sequence_tokens:,} tokens"
        raise errors.BatchError(what, hint=f"write `{near} seq`, which is {near * sequence_tokens:,} tokens")
    return int(sequences)


def not_more_than(most: float, value: float, text: str) -> float:
    """The value, where a model can count so far."""
    if value > most:
        raise ValueRefusedError(f"`{text}` is more than any machine takes", hint=f"write {most:.0e} or less")
    return value


def pairs_in(text: str) -> list[tuple[str, str]]:
    """`link=0.5,nic=2` as pairs."""
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    pairs = [(name.strip(), value.strip()) for name, _, value in parts]
    if not all(name and value for name, value in pairs):
        raise ValueRefusedError(f"`{text}` is not a list of name=value", hint="write for example `tp=8,pp=4`")
    return pairs


def sizes_in(text: str) -> dict[str, int]:
    """`tp=8,pp=4,mb=1` by the fields of a layout."""
    sizes = {}
    for name, value in pairs_in(text):
        if name.lower() not in SIZES:
            raise UnknownNameError(f"`{name}` is no size of a layout", hint="sizes: " + ", ".join(SIZES))
        if not re.fullmatch(r"\d{1,6}", value):
            raise ValueRefusedError(f"`{name}={value}` is not a whole number", hint=f"write `{name}=8`")
        sizes[SIZES[name.lower()]] = int(value)
    return sizes


def counts_in(text: str) -> tuple[int, ...]:
    """`1..16` as 1, 2, 4, 8, 16; `1,3,5` as it stands; nothing from nothing."""
    if not text.strip():
        return ()
    span = re.fullmatch(r"\s*(\d{1,6})\s*\.\.\s*(\d{1,6})\s*", text)
    parts = [part.strip() for part in text.split(",")]
    if span:
        first, last = int(span[1]), int(span[2])
        doubled = [first * 2**power for power in range(20) if 0 < first * 2**power < last]
        found = (*doubled, last) if 0 < first <= last else ()
    else:
        found = tuple(int(part) for part in parts if re.fullmatch(r"\d{1,6}", part))
        found = found if len(found) == len(parts) else ()
    if not found or min(found) < 1 or max(found) > REPLICAS_MAX:
        raise ValueRefusedError(f"`{text}` is no list of counts", hint="write `1..16` or `1,2,4`")
    return found
