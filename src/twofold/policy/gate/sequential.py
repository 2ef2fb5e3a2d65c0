"""Sequential likelihood-ratio tests of "no worse" against "worse by the margin". Constant memory.

A test gathers blocks of outcomes of two arms that ran side by side and keeps the log of a likelihood ratio.
It may be looked at after every block: under "no worse" a ratio ever reaches 1/a with probability about a
(Ville's inequality; Wald's bound), so a false alarm costs `false_alarm_fraction` however often one looks.
Evidence for "no worse" is kept from one stage to the next up to ln(1/miss_fraction) only (Page's CUSUM): a
fault that a larger share brings out is found as fast as one that was there from the start.
"""

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

TOGETHER_BLOCKS = 2.0  # blocks that the belief "outcomes are independent" weighs, where they share batches …
ALONE_BLOCKS = 30.0  # … and where they share nothing
DOUBT_FRACTION = 0.4  # of an adjustment, by which it is believed to be wrong: one standard deviation
SLOPE_RIDGE = 1.0  # added to the sums of squares of the covariates: no slope is read from nothing


class Verdict(Enum):
    OPEN = "open"
    CLEARED = "cleared"  # no worse: the margin is refuted
    WORSE = "worse"


@dataclass(frozen=True, slots=True)
class Errors:
    """How often a test may be wrong.

    Requests needed to tell a failure rate p from p + d, of n canary requests and many more of the baseline:
    n = (z_a sqrt(p(1-p)) + z_m sqrt((p+d)(1-p-d)))² / d²; means of spread s: n = ((z_a + z_m) s / d)², twice
    that when the arms are equal. A base of 0.5 % and one point more, at a = m = 1 %: n = 2,000; a base of
    2 %: n = 5,200; five points of quality of spread 0.4: n = 1,390; +15 % of times of log spread 0.3: 100.
    """

    false_alarm_fraction: float = 0.002  # of one test, over a whole trial
    miss_fraction: float = 0.01

    def __post_init__(self) -> None:
        assert 0 < self.false_alarm_fraction < 1 and 0 < self.miss_fraction < 1, self


PRODUCTS = ((0, 0), (1, 1), (2, 2), (1, 2), (1, 0), (2, 0))  # of y, u and v: yy, uu, vv, uv, uy, vy


@dataclass(slots=True)
class MeanSums:
    """Sums over a block's outcomes of one arm: y, and two covariates u and v. Mutable."""

    count: int = 0
    sum_values: list[float] = field(default_factory=lambda: [0.0] * 3)  # of y, u and v …
    product_values: list[float] = field(default_factory=lambda: [0.0] * 6)  # … and of their PRODUCTS

    def add(self, y: float, u: float, v: float) -> None:
        """One outcome; covariates that are not known are zero in both arms."""
        values = (y, u, v)
        self.count += 1
        for index, value in enumerate(values):
            self.sum_values[index] += value
        for index, (one, other) in enumerate(PRODUCTS):
            self.product_values[index] += values[one] * values[other]

    def add_centred(self, arm: "MeanSums") -> None:
        """Products about another one's own means; they take one degree of freedom."""
        self.count += arm.count - 1
        for index, (one, other) in enumerate(PRODUCTS):
            about_zero = arm.sum_values[one] * arm.sum_values[other] / arm.count
            self.product_values[index] += arm.product_values[index] - about_zero


@dataclass(slots=True)
class Evidence:
    """Sums over blocks: how well a difference of the arms fits them. Mutable.

    Model  d = δ + β g + noise of variance σ² / w;  g the blocks' mean adjustment;  β ~ N(0, DOUBT_FRACTION²)
           σ² ≥ 1, and believed to be 1 as firmly as `belief_count` blocks would say
    Why    a line that was fitted inside the arms is believed to hold between them only so far: any number of
           blocks that lean on an adjustment say no more than it is good for. Requests that share batches are
           slow together, so that a block of fifty may be worth five: σ² is as unknown as δ, and one odd block
           widens it rather than raising an alarm.
    """

    belief_count: float = TOGETHER_BLOCKS
    count: int = 0
    weight_value: float = 0.0
    wd_value: float = 0.0
    wg_value: float = 0.0
    wdd_value: float = 0.0

    def add(self, weight: float, difference: float, adjustment: float) -> None:
        """One block: 1 / variance, if outcomes were independent; what the arms differ by, but for load."""
        self.count += 1
        self.weight_value += weight
        self.wd_value += weight * difference
        self.wg_value += weight * adjustment
        self.wdd_value += weight * difference * difference

    def squares(self) -> float:
        """What the differences leave about their mean, weighed."""
        return max(self.wdd_value - self.wd_value * self.wd_value / self.weight_value, 0.0)

    def spread(self) -> float:
        """σ²: by how much the blocks' differences vary more than outcomes inside them predict."""
        if self.count < 2:
            return 1.0
        return max(1.0, (self.belief_count + self.squares()) / (self.belief_count + self.count - 1))

    def known_weight(self) -> float:
        """Of δ, as if σ² were 1: its mean's own variance, and what is doubted of the adjustment."""
        doubt = DOUBT_FRACTION * self.wg_value / self.weight_value
        return 1.0 / (1.0 / self.weight_value + doubt * doubt / self.spread())

    def log_ratio(self, margin_value: float) -> float:
        """ln of the likelihood of δ ≥ margin over that of δ ≤ 0, each with the δ and the σ² that fit best."""
        middle = self.wd_value / self.weight_value
        weight, left = self.known_weight(), self.squares()
        same = left + weight * max(middle, 0.0) ** 2
        worse = left + weight * max(margin_value - middle, 0.0) ** 2
        return self._log_likelihood(worse) - self._log_likelihood(same)

    def _log_likelihood(self, squares: float) -> float:
        """If so much is left over, at the σ² ≥ 1 that makes it likeliest; but for a constant."""
        count, total = self.belief_count + self.count, self.belief_count + squares
        return -total / 2 if total <= count else -count / 2 * (1.0 + math.log(total / count))


@dataclass(slots=True)
class MeanTest:
    """Is the canary's mean above the baseline's by `margin_value` (log of a ratio, or points)? Mutable.

    Per block  d = (yc - yb) - g;  g = slopes · (covariates c - b);  1/w = s² (1/nc + 1/nb + leverage)
    Ratio      likelihood of δ ≥ margin over that of δ ≤ 0, each with the δ and σ² that fit best, by stages:
               another share is another load, with other noise. What stages before said counts, but not
               below `miss_fraction`: a fault that a larger share brings out is found as fast as any.
    Why        blocks of the same time have the same weather; slopes and s² come from scatter inside arms and
               blocks, pooled.
    """

    margin_value: float
    errors: Errors
    blocks_min_count: int = 3  # of a stage, before it says anything
    scatter: MeanSums = field(default_factory=MeanSums)  # centred in arm and block; `count` is freedom left
    evidence: Evidence = field(default_factory=Evidence)  # of this stage
    earlier_log_ratio_value: float = 0.0  # of the stages before …
    earlier_known_value: float = 0.0  # … and what it would be on average if the canary were worse
    block_count: int = 0  # of all stages
    cleared: bool = False

    def close_block(self, canary: MeanSums, baseline: MeanSums) -> None:
        """Fold one block in; both arms have at least two outcomes."""
        self.scatter.add_centred(canary)
        self.scatter.add_centred(baseline)
        # Least squares of y on both covariates, from centred products.
        yy, uu, vv, uv, uy, vy = self.scatter.product_values
        ridged_uu, ridged_vv = uu + SLOPE_RIDGE, vv + SLOPE_RIDGE
        determinant = ridged_uu * ridged_vv - uv**2
        slope_u = (uy * ridged_vv - vy * uv) / determinant
        slope_v = (vy * ridged_uu - uy * uv) / determinant
        left = yy - slope_u * uy - slope_v * vy
        variance = max(left, 1e-12) / max(self.scatter.count, 1)
        nc, nb = canary.count, baseline.count
        dy, du, dv = (c / nc - b / nb for c, b in zip(canary.sum_values, baseline.sum_values, strict=True))
        adjustment = slope_u * du + slope_v * dv
        # What the doubt about the slopes adds, over s², when the arms' covariates differ.
        leverage = (du * du * ridged_vv - 2 * du * dv * uv + dv * dv * ridged_uu) / determinant
        weight = 1.0 / (variance * (1.0 / nc + 1.0 / nb + leverage))
        self.evidence.add(weight, dy - adjustment, adjustment)
        self.block_count += 1
        log_ratio = self.log_ratio()
        if log_ratio <= cleared_at(self.errors):
            self.cleared = True
        elif log_ratio > 0:
            self.cleared = False

    def next_stage(self) -> None:
        """The share grows: blocks from now on are of another load."""
        self.earlier_log_ratio_value, self.earlier_known_value = self.log_ratio(), self.expected_log_ratio()
        self.evidence = Evidence(self.evidence.belief_count)

    def log_ratio(self) -> float:
        """ln of the odds that "worse by the margin" has gained over "no worse"."""
        stage = 0.0
        if self.evidence.count >= self.blocks_min_count:
            stage = self.evidence.log_ratio(self.margin_value)
        return max(self.earlier_log_ratio_value + stage, cleared_at(self.errors))

    def expected_log_ratio(self) -> float:
        """What `log_ratio` is on average if the canary is worse by the margin: what is known at all."""
        if self.evidence.count < self.blocks_min_count:
            return self.earlier_known_value
        known = self.evidence.known_weight() / self.evidence.spread()
        return self.earlier_known_value + self.margin_value**2 / 2 * known

    def verdict(self) -> Verdict:
        """What is known by now."""
        if self.log_ratio() >= alarm_at(self.errors):
            return Verdict.WORSE
        return Verdict.CLEARED if self.cleared else Verdict.OPEN


def alarm_at(errors: Errors) -> float:
    """The log ratio from which "worse" is believed."""
    return -math.log(errors.false_alarm_fraction)


def cleared_at(errors: Errors) -> float:
    """The log ratio, negative, from which "no worse" is believed, and below which no evidence is kept."""
    return math.log(errors.miss_fraction)


RATE_MIN = 0.001  # a believed rate of the baseline is not below it: two failures alone are no proof
STRUCK_FRACTION = 0.02  # believed part of blocks that a fault strikes, whatever their rate was before
BASE_COUNT_MAX = 20_000.0  # requests of the baseline that are remembered: rates drift
GROSS_FRACTION = 0.3  # by which a broken release fails more often …
BROKEN_FRACTION = 0.1  # … and the believed part of worse releases that are broken


class Belief(NamedTuple):
    """A Gamma distribution of a failure rate: as if so many of so many requests had failed."""

    failed_count: float
    asked_count: float

    def after(self, failed_count: float, count: float) -> "Belief":
        """With so many more seen; its mean is RATE_MIN at least."""
        failed = self.failed_count + failed_count
        return Belief(failed, min(self.asked_count + count, failed / RATE_MIN))

    def log_chance(self, failed_count: int, count: int) -> float:
        """ln of the chance that so many of so many fail, without what no belief changes (n^k / k!).

        Formula  ∫ Gamma(r; a, b) rᵏ e⁻ⁿʳ dr = Γ(a+k)/Γ(a) · bᵃ / (b+n)ᵃ⁺ᵏ
        Limits   failures are Poisson: where rates are high, scatter is believed wider than it is.
        """
        a, b = self
        gammas = math.lgamma(a + failed_count) - math.lgamma(a)
        return gammas + a * math.log(b) - (a + failed_count) * math.log(b + count)

    def log_chance_raised(self, failed_count: int, count: int, added_fraction: float) -> float:
        """The same if the rate is higher by so much.

        Formula  ∫ Gamma(r; a, b) (r+d)ᵏ e⁻ⁿ⁽ʳ⁺ᵈ⁾ dr = e⁻ⁿᵈ Σ_j C(k,j) dᵏ⁻ʲ ∫ Gamma(r; a, b) rʲ e⁻ⁿʳ dr
        """
        added_log = math.log(added_fraction)
        parts = [
            math.log(math.comb(failed_count, j)) + (failed_count - j) * added_log + self.log_chance(j, count)
            for j in range(failed_count + 1)
        ]
        return log_sum(parts) - count * added_fraction


ANYTHING = Belief(0.5, 1.0)


@dataclass(slots=True)
class FailureTest:
    """Does the canary fail more often by `margin_fraction`? Mutable.

    Per block  ratio = ∫ π(r) P(kb; nb r) P(kc; nc (r + margin)) dr / ∫ π(r) P(kb; nb r) P(kc; nc r) dr
    Belief     π of the baseline's rate r in this block: from all blocks before, but for STRUCK_FRACTION of
               blocks ANYTHING: a fault that strikes both arms at once raises both, and says nothing about
               the release.
    Why        where a rate that is guessed from a few failures is taken for known, the ratio of an equal
               release grows by the guess alone.
    Memory     a block counts for the next beliefs as far as it was an ordinary one.
    Broken     a release that fails always is found by a ratio of its own, with GROSS_FRACTION for the margin:
               while the baseline is hardly known, one point more explains its failures hardly better.
    """

    margin_fraction: float
    errors: Errors
    base_count: float = 0.0
    base_failed_count: float = 0.0
    log_ratio_value: float = 0.0
    broken_log_ratio_value: float = 0.0
    expected_value: float = 0.0
    cleared: bool = False

    def close_block(
        self, canary_count: int, canary_failed_count: int, base_count: int, base_failed_count: int
    ) -> None:
        """Fold one block's counts of outcomes, and of the failures among them, in."""
        before = ANYTHING.after(self.base_failed_count, self.base_count)
        beliefs = ((before, 1.0 - STRUCK_FRACTION), (ANYTHING, STRUCK_FRACTION))
        shares = [math.log(part) + each.log_chance(base_failed_count, base_count) for each, part in beliefs]
        seen = [each.after(base_failed_count, base_count) for each, _ in beliefs]
        pairs = list(zip(shares, seen, strict=True))
        same = log_sum([share + each.log_chance(canary_failed_count, canary_count) for share, each in pairs])

        def step(added_fraction: float) -> float:
            raised = [
                share + each.log_chance_raised(canary_failed_count, canary_count, added_fraction)
                for share, each in pairs
            ]
            return log_sum(raised) - same

        floor = cleared_at(self.errors)
        self.log_ratio_value = max(self.log_ratio_value + step(self.margin_fraction), floor)
        self.broken_log_ratio_value = max(self.broken_log_ratio_value + step(GROSS_FRACTION), floor)
        ordinary_fraction = math.exp(shares[0] - log_sum(shares))
        rate = seen[0].failed_count / seen[0].asked_count
        margin = self.margin_fraction  # a request that fails as often as is feared brings on average:
        self.expected_value += canary_count * ((rate + margin) * math.log1p(margin / rate) - margin)
        self.base_count += ordinary_fraction * base_count
        self.base_failed_count += ordinary_fraction * base_failed_count
        if self.base_count > BASE_COUNT_MAX:
            self.base_failed_count *= BASE_COUNT_MAX / self.base_count
            self.base_count = BASE_COUNT_MAX
        if self.log_ratio_value <= floor:
            self.cleared = True
        elif self.log_ratio_value > 0:
            self.cleared = False

    def log_ratio(self) -> float:
        """ln of the odds that "worse by the margin" has gained over "no worse"."""
        return self.log_ratio_value

    def expected_log_ratio(self) -> float:
        """What `log_ratio` gains on average if the canary is worse by the margin: what is known at all."""
        return self.expected_value

    def verdict(self) -> Verdict:
        """What is known by now."""
        kinds = (
            (math.log1p(-BROKEN_FRACTION), self.log_ratio_value),
            (math.log(BROKEN_FRACTION), self.broken_log_ratio_value),
        )
        if log_sum([belief + ratio for belief, ratio in kinds]) >= alarm_at(self.errors):
            return Verdict.WORSE
        return Verdict.CLEARED if self.cleared else Verdict.OPEN


def log_sum(logs: list[float]) -> float:
    """ln of the sum of exp(logs)."""
    top = max(logs)
    return top + math.log(sum(math.exp(each - top) for each in logs))
