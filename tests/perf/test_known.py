"""What the fits have seen, and what is left when something is hidden."""

from twofold.perf import load_known
from twofold.perf.known import Seen, known_of

ROWS = (
    Seen("training", "llama", "H100", "megatron", ("a", "b"), ("0", "1")),
    Seen("training", "mpt", "H100", "fsdp", ("b",), ("1",)),
    Seen("training", "mpt", "A100", "fsdp", ("c",), ("0",)),
)


def test_seen_together_is_near_and_seen_apart_is_parts() -> None:
    known = known_of(ROWS)
    assert known.of("training", "llama", "H100", "megatron") == "near"
    assert known.of("training", "llama", "A100", "megatron") == "parts"
    assert known.of("training", "llama", "B200", "megatron") == "new"
    assert known.of("training", "llama", "H100", "jax") == "new"
    assert known.of("inference", "llama", "H100", "megatron") == "new"


def test_a_hidden_source_takes_along_what_it_alone_had_seen() -> None:
    without = known_of(ROWS).without("source=b")
    assert without.of("training", "llama", "H100", "megatron") == "near"
    assert without.of("training", "mpt", "H100", "fsdp") == "parts"
    assert known_of(ROWS).without("source=c").of("training", "mpt", "A100", "fsdp") == "new"


def test_a_hidden_fold_takes_along_what_lies_in_it_alone() -> None:
    without = known_of(ROWS).without("fold=0")
    assert without.of("training", "llama", "H100", "megatron") == "near"
    assert without.of("training", "mpt", "A100", "fsdp") == "new"


def test_hiding_everything_leaves_nothing_known() -> None:
    assert known_of(ROWS).without("everything") == known_of(())


def test_the_shipped_table_knows_both_halves() -> None:
    assert {row.half for row in load_known().seen} == {"training", "inference"}
