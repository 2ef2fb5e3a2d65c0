"""Watches the answers of a released model: are they worse by now than they were right after the release?

Sampled answers come with a score, here the nats per token by which the released weights are surprised at
them: what serves other weights, or worse arithmetic, writes what its release would not have written. The
first ones are the reference; each window after them is a stage of the sequential test that canaries have, so
that evidence for "no worse" is kept up to a bound: a drop after a good year is found as fast as on day one.
"""

import math
from dataclasses import dataclass, field

from twofold.policy.gate.sequential import ALONE_BLOCKS, Errors, Evidence, MeanSums, MeanTest, Verdict
from twofold.policy.machine import record


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """What is watched for, and how often that may be wrong."""

    margin_nats: float = 0.2  # per token, by which answers are worse; less is no alert
    block_count: int = 10  # answers whose mean is one observation
    window_blocks_count: int = 6  # of one window …
    reference_blocks_count: int = 24  # … and of the reference
    errors: Errors = field(default_factory=Errors)

    def __post_init__(self) -> None:
        assert self.block_count >= 2 and self.window_blocks_count >= 3, self
        assert self.reference_blocks_count >= self.window_blocks_count, self


@record
class Scored:
    """An answer was scored; how long it and its prompt were explains a part of its score."""

    score_nats: float
    input_tokens: int
    output_tokens: int


@record
class WindowEnded:
    """What a window of answers came to; the alert is the last one's."""

    number: int  # from 1, after the reference
    from_s: float  # of the first of its answers …
    until_s: float  # … to the last
    mean_nats: float
    reference_nats: float
    log_odds_value: float  # ln of the odds of "worse by the margin" over "no worse"
    alert: bool


@dataclass(slots=True)
class DriftWatch:
    """The machine. Mutable: the reference, the block that fills, and the test."""

    settings: WatchSettings = field(default_factory=WatchSettings)
    window_number_count: int = 0
    _reference: list[MeanSums] = field(default_factory=list)  # a block each
    _window: list[MeanSums] = field(default_factory=list)
    _block: MeanSums = field(default_factory=MeanSums)
    _since_s: float = 0.0  # when the first answer of the window came
    _test: MeanTest | None = None

    def handle(self, event: Scored, now_s: float) -> list[WindowEnded]:
        """Fold an answer in; at the end of a window, what it came to."""
        if not self._block.count and not self._window:
            self._since_s = now_s
        lengths = math.log1p(event.output_tokens), math.log1p(event.input_tokens)
        self._block.add(event.score_nats, *lengths)
        if self._block.count < self.settings.block_count:
            return []
        block, self._block = self._block, MeanSums()
        if len(self._reference) < self.settings.reference_blocks_count:
            self._reference.append(block)
            return []
        self._window.append(block)
        if len(self._window) < self.settings.window_blocks_count:
            return []
        window, self._window = self._window, []
        return [self._ended(window, now_s)]

    def wake_at_s(self) -> float | None:
        """Nothing is waited for."""
        return None

    def _ended(self, window: list[MeanSums], now_s: float) -> WindowEnded:
        test = self._test
        if test is None:
            test = self._test = MeanTest(
                self.settings.margin_nats, self.settings.errors, evidence=Evidence(ALONE_BLOCKS)
            )
        else:
            test.next_stage()
        for index, block in enumerate(window):
            test.close_block(block, merged(self._reference[index :: len(window)]))
        self.window_number_count += 1
        is_worse = test.verdict() is Verdict.WORSE
        ended = WindowEnded(
            self.window_number_count,
            self._since_s,
            now_s,
            mean_of(window),
            mean_of(self._reference),
            test.log_ratio(),
            is_worse,
        )
        if is_worse:  # said once; the next window is judged anew
            self._test = None
        return ended


def merged(blocks: list[MeanSums]) -> MeanSums:
    """Blocks as one: sums add up. Each block of a window has a part of the reference for its own."""
    whole = MeanSums()
    for block in blocks:
        whole.count += block.count
        for index, value in enumerate(block.sum_values):
            whole.sum_values[index] += value
        for index, value in enumerate(block.product_values):
            whole.product_values[index] += value
    return whole


def mean_of(blocks: list[MeanSums]) -> float:
    """The mean score of several blocks."""
    return sum(block.sum_values[0] for block in blocks) / sum(block.count for block in blocks)
