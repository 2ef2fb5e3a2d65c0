"""What an answer is worth: how far it goes along with the one that was wanted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.release.test_rules import NEW, SERVING
from twofold.policy.release.quality import Wanted, agreement_fraction, mean_score, wanted_of


@given(st.text(max_size=30), st.text(max_size=30))
def test_it_is_a_fraction_and_one_just_for_an_answer_that_holds_the_wanted_one(
    answer: str, wanted: str
) -> None:
    score = agreement_fraction(answer, wanted)
    assert 0.0 <= score <= 1.0
    assert (score == 1.0) == (answer.startswith(wanted) if wanted else not answer)


@given(st.text(min_size=1, max_size=20), st.text(max_size=20), st.integers(0, 20))
def test_what_comes_after_the_first_difference_counts_for_nothing(one: str, rest: str, at: int) -> None:
    kept = one[: min(at, len(one) - 1)]
    other = chr(ord(one[len(kept)]) ^ 1)
    assert agreement_fraction(kept + other + rest, one) == len(kept) / len(one)


@pytest.mark.parametrize(
    ("new", "wanted"),
    [
        (replace(NEW, parent=SERVING.digest), Wanted.SERVING),
        (replace(NEW, quantised_from=SERVING.digest), Wanted.SERVING),
        (replace(NEW, run="sha256:r"), Wanted.TEXT),
        (NEW, Wanted.TEXT),
    ],
)
def test_a_copy_is_held_against_what_serves_and_what_is_new_against_the_text(new, wanted) -> None:
    assert wanted_of(new, replace(SERVING, run="sha256:s")) is wanted
    assert wanted_of(new, None) is Wanted.TEXT


def test_a_copy_of_one_run_is_one_by_its_run_too() -> None:
    assert wanted_of(replace(NEW, run="sha256:r"), replace(SERVING, run="sha256:r")) is Wanted.SERVING
    assert mean_score([1.0, 0.5]) == 0.75
