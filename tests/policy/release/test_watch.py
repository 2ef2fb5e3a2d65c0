"""The watch after a release: a drop is told in the next window, and what did not get worse is left alone."""

import math
import random

import pytest

from twofold.policy.gate.sequential import MeanSums
from twofold.policy.release.watch import DriftWatch, Scored, WatchSettings, WindowEnded, merged

SETTINGS = WatchSettings()
PER_WINDOW = SETTINGS.block_count * SETTINGS.window_blocks_count
REFERENCE = SETTINGS.block_count * SETTINGS.reference_blocks_count


def scored(chance: random.Random, more_nats: float = 0.0, longer: float = 1.0) -> Scored:
    """An answer of about 1.5 nats per token; short ones scatter more, and score higher."""
    output_tokens = max(2, round(longer * math.exp(chance.gauss(3.0, 0.6))))
    score = 1.5 + 2.0 / output_tokens + chance.gauss(0.0, 0.5) + more_nats
    return Scored(score, max(1, round(math.exp(chance.gauss(4.0, 0.5)))), output_tokens)


def windows(
    seed: int, count: int, drop_nats: float = 0.0, at: int = 0, longer: float = 1.0
) -> list[WindowEnded]:
    """What is told of so many windows, from window `at` on with worse or longer answers."""
    chance, watch, told = random.Random(seed), DriftWatch(), []
    for number in range(REFERENCE + count * PER_WINDOW):
        late = number >= REFERENCE + at * PER_WINDOW
        event = scored(chance, drop_nats if late else 0.0, longer if late else 1.0)
        told += watch.handle(event, float(number))
    return told


def test_an_injected_drop_is_told_in_the_next_window() -> None:
    """Half a nat per token, from any window on: of 100 watches at least 90 tell it in that very window."""
    found = 0
    for seed in range(100):
        at = seed % 7
        told = windows(seed, at + 1, drop_nats=0.5, at=at)
        assert len(told) == at + 1
        found += told[-1].alert and not any(each.alert for each in told[:-1])
    assert found >= 90, found


def test_a_small_drop_is_told_in_time_and_less_than_the_margin_is_no_matter() -> None:
    late = sum(any(each.alert for each in windows(seed, 12, drop_nats=0.25)) for seed in range(40))
    assert late >= 34, late
    slight = sum(any(each.alert for each in windows(seed, 12, drop_nats=0.02)) for seed in range(40))
    assert slight <= 3, slight


def test_what_did_not_get_worse_raises_no_alarm_for_a_year_of_windows() -> None:
    """Ville's bound is per trial; here 200 watches of 50 windows each may be wrong in one of twenty."""
    wrong = sum(any(each.alert for each in windows(seed, 50)) for seed in range(200))
    assert wrong <= 10, wrong


def test_other_lengths_of_answers_are_not_taken_for_a_drop() -> None:
    wrong = sum(any(each.alert for each in windows(seed, 10, at=2, longer=0.6)) for seed in range(60))
    assert wrong <= 4, wrong


def test_nothing_is_said_before_the_reference_and_a_window_are_whole() -> None:
    chance, watch = random.Random(0), DriftWatch()
    for _ in range(REFERENCE + PER_WINDOW - 1):
        assert watch.handle(scored(chance), 0.0) == [] and watch.wake_at_s() is None
    [told] = watch.handle(scored(chance), 0.0)
    assert told.number == 1 and told.reference_nats == pytest.approx(1.6, abs=0.15)


def test_merged_blocks_are_the_block_of_all() -> None:
    chance = random.Random(1)
    values = [tuple(chance.random() for _ in range(3)) for _ in range(12)]
    parts = [MeanSums() for _ in range(3)]
    whole = MeanSums()
    for index, each in enumerate(values):
        parts[index % 3].add(*each)
        whole.add(*each)
    joined = merged(parts)
    assert joined.count == whole.count
    assert joined.sum_values == pytest.approx(whole.sum_values)
    assert joined.product_values == pytest.approx(whole.product_values)
