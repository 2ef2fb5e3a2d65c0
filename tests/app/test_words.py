"""Words of a question: what each means, and that nothing else is taken."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.app.words import counts_in, model_in, pairs_in, sequences_in, sizes_in
from twofold.catalog.catalog import load_catalog
from twofold.core.errors import BatchError, InputError

CONFIG = Path(__file__).parents[2] / "examples" / "laptop" / "config.json"


def test_a_batch_is_sequences_or_tokens_that_divide() -> None:
    assert sequences_in("512 seq", 8192) == 512
    assert sequences_in("4194304 tok", 8192) == 512
    with pytest.raises(BatchError) as refused:
        sequences_in("4 Mtok", 8192)
    assert "480 seq" in refused.value.hint


@given(count=st.integers(1, 10**6), length=st.integers(1, 10**6))
def test_tokens_of_whole_sequences_mean_those_sequences(count: int, length: int) -> None:
    assert sequences_in(f"{count * length} tok", length) == count


@pytest.mark.parametrize("text", ["512", "0 seq", "1.5 seq", "-3 seq", "512 GB", "", "nan seq"])
def test_other_batches_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        sequences_in(text, 8192)


def test_sizes_of_a_layout_go_by_the_names_people_write() -> None:
    assert sizes_in("tp=8, PP=4,mb=1") == {"tp": 8, "pp": 4, "micro_batch": 1}
    assert sizes_in("") == {}
    assert pairs_in("retries=5 %,validation=2 %") == [("retries", "5 %"), ("validation", "2 %")]


@pytest.mark.parametrize("text", ["tp", "tp=", "=8", "tp=8;pp=4", "tp=x", "tp=-1", "tp=1.5", "width=3"])
def test_other_layouts_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        sizes_in(text)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("1..16", (1, 2, 4, 8, 16)),
        ("1..10", (1, 2, 4, 8, 10)),
        ("3..3", (3,)),
        ("1,2,5", (1, 2, 5)),
        ("", ()),
    ],
)
def test_counts_are_a_span_by_doubling_or_a_list(text: str, counts: tuple[int, ...]) -> None:
    assert counts_in(text) == counts


@pytest.mark.parametrize("text", ["0..4", "4..2", "1,,2", "x", "-1", "1..99999"])
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        counts_in(text)


def test_a_model_is_a_name_a_config_or_the_folder_of_one() -> None:
    catalog = load_catalog()
    assert model_in("llama-3.1-70b", catalog).layers == 80
    assert model_in(str(CONFIG), catalog) == model_in(str(CONFIG.parent), catalog)
    with pytest.raises(InputError):
        model_in("./nowhere/config.json", catalog)


def test_a_model_without_tokens_is_refused() -> None:
    with pytest.raises(InputError):
        model_in("sdxl-unet", load_catalog())
