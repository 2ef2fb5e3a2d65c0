"""Sequential likelihood-ratio tests of "no worse" against "worse by the margin". Constant memory.

A test gathers blocks of outcomes of two arms that ran side by side and keeps the log of a likelihood ratio.
It may be looked at after every block: under "no worse" the ratio ever reaches 1/a with probability at most a
(Ville's inequality; Wald's bound), so a false alarm costs `false_alarm_fraction` however often one looks.
Evidence for "no worse" is kept up to ln(1/miss_fraction) only (Page's CUSUM): a fault that a larger share
brings out later is found as fast as one that was there from the start.
"""

import math
from dataclasses import dataclass, field
from enum import Enum

OVERDISPERSION_BLOCKS = 10.0  # blocks that the belief "outcomes of a block are independent" weighs
BASE_REQUESTS = 100.0  # requests that the pooled failure rate weighs beside a block's own
FAILURE_FRACTION_MIN = 0.001  # a believed baseline rate is not below it: two failures alone are no proof
WRONG_ALARM_FRACTION = 0.75  # of the way to an alarm that a wholly wrong adjustment may lead
JUMP_SPREADS = 3.0  # by which an adjustment moves if it is not chance
HALVINGS = 40  # to find how much evidence the cap leaves
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


@dataclass(slots=True)
class MeanSums:
    """Sums over a block's outcomes of one arm: y, and two covariates. Mutable."""

    count: int = 0
    y_value: float = 0.0
    u_value: float = 0.0
    v_value: float = 0.0
    yy_value: float = 0.0
    uu_value: float = 0.0
    vv_value: float = 0.0
    uv_value: float = 0.0
    uy_value: float = 0.0
    vy_value: float = 0.0

    def add(self, y: float, u: float, v: float) -> None:
        """One outcome; covariates that are not known are zero in both arms."""
        self.count += 1
        self.y_value += y
        self.u_value += u
        self.v_value += v
        self.yy_value += y * y
        self.uu_value += u * u
        self.vv_value += v * v
        self.uv_value += u * v
        self.uy_value += u * y
        self.vy_value += v * y


@dataclass(slots=True)
class Evidence:
    """Sums over blocks: weight w, difference d, adjustment g that d contains, without chance. Mutable.

    Model  d = δ + β g + noise of variance spread / w;  β ~ N(0, doubt_variance), the same in all blocks
    Why    a line that was fitted inside the arms is believed to hold between them only so far: blocks whose
           arms were alike say all, and any number of them that lean on the same adjustment say no more than
           the adjustment is good for. β is integrated out of both hypotheses, so that their ratio stays one.
    """

    weight_value: float = 0.0
    wd_value: float = 0.0
    wg_value: float = 0.0
    wgg_value: float = 0.0
    wgd_value: float = 0.0
    wdd_value: float = 0.0

    def add(self, weight: float, difference: float, adjustment: float) -> None:
        """One block."""
        self.weight_value += weight
        self.wd_value += weight * difference
        self.wg_value += weight * adjustment
        self.wgg_value += weight * adjustment * adjustment
        self.wgd_value += weight * adjustment * difference
        self.wdd_value += weight * difference * difference

    def known(self, spread: float, doubt_variance: float, kept_fraction: float = 1.0) -> tuple[float, float]:
        """What is known of δ with β integrated out, if so much of all is kept: its weight, and w δ."""
        kept = kept_fraction / spread
        lean = kept * self.wg_value / (kept * self.wgg_value + 1.0 / doubt_variance)
        weight = kept * (self.weight_value - lean * self.wg_value)
        return weight, kept * (self.wd_value - lean * self.wgd_value)

    def keep(self, fraction: float) -> None:
        """Forget all but so much."""
        self.weight_value *= fraction
        self.wd_value *= fraction
        self.wg_value *= fraction
        self.wgg_value *= fraction
        self.wgd_value *= fraction
        self.wdd_value *= fraction

    def beyond(self, doubt_variance: float) -> float:
        """Weighted squares of d about the δ and the β that fit best."""
        mean, lean = self.wd_value / self.weight_value, self.wg_value / self.weight_value
        beside = self.wgd_value - lean * self.wd_value
        squares = self.wgg_value - lean * self.wg_value + 1.0 / doubt_variance
        return self.wdd_value - mean * self.wd_value - beside * beside / squares


@dataclass(slots=True)
class MeanTest:
    """Is the canary's mean above the baseline's by `margin_value` (log of a ratio, or points)? Mutable.

    Per block  d = (yc - yb) - g;  g = slopes · (covariates c - b);  1/w = s² (1/nc + 1/nb + leverage)
    Ratio      ln = margin · (S - margin/2 · W), with W and S = W δ of all blocks from `Evidence.known`
    Why        blocks of the same time have the same weather; slopes and s² come from scatter inside arms and
               blocks, pooled; `spread` is how much more the d differ than s² says (requests that share a
               batch are slow together), held at 1 or more by OVERDISPERSION_BLOCKS.
    Doubt      in the adjustment: a variance, in units of its square. If it is wholly wrong (d = -g), the
               ratio comes to exp(1 / (2 variance)) at most, which is set to WRONG_ALARM_FRACTION of the way
               to an alarm: extrapolation alone raises none, and noise has the rest.
    """

    margin_value: float
    errors: Errors
    blocks_min_count: int = 3
    scatter: MeanSums = field(default_factory=MeanSums)  # centred in arm and block; `count` is freedom left
    block_count: int = 0
    evidence: Evidence = field(default_factory=Evidence)  # what the cap has left
    everything: Evidence = field(default_factory=Evidence)
    steady_value: float = 0.0  # mean adjustment …
    steady_count: int = 0  # … of so many blocks, since it last jumped
    cleared: bool = False

    def close_block(self, canary: MeanSums, baseline: MeanSums) -> None:
        """Fold one block in; both arms have at least two outcomes."""
        for arm in (canary, baseline):
            _add_centred(self.scatter, arm)
        slope_u, slope_v = self._slopes()
        scatter = self.scatter
        left = scatter.yy_value - slope_u * scatter.uy_value - slope_v * scatter.vy_value
        variance = max(left, 1e-12) / max(scatter.count, 1)
        nc, nb = canary.count, baseline.count
        du = canary.u_value / nc - baseline.u_value / nb
        dv = canary.v_value / nc - baseline.v_value / nb
        adjustment = slope_u * du + slope_v * dv
        difference = canary.y_value / nc - baseline.y_value / nb - adjustment
        weight = 1.0 / (variance * (1.0 / nc + 1.0 / nb + self._leverage(du, dv)))
        self.block_count += 1
        chance = (scatter.yy_value - left) / max(scatter.count, 1) * (1.0 / nc + 1.0 / nb)
        steady = self._steady(adjustment, math.sqrt(max(chance, 0.0)))
        self.everything.add(weight, difference, steady)
        beyond = difference - self.margin_value / 2
        if beyond > 0.0:  # one slow batch is one event, however many requests shared it
            share = alarm_at(self.errors) / self.blocks_min_count
            weight = min(weight, share * self.spread() / (self.margin_value * beyond))
        self.evidence.add(weight, difference, steady)
        self._cap()

    def _steady(self, adjustment: float, spread: float) -> float:
        """The adjustment without chance: its mean since it last jumped.

        Who came to which arm by chance is adjusted rightly, and would seem to prove the rest right as well.
        """
        if abs(adjustment - self.steady_value) > JUMP_SPREADS * spread:
            self.steady_count, self.steady_value = 0, 0.0
        self.steady_count += 1
        self.steady_value += (adjustment - self.steady_value) / self.steady_count
        return self.steady_value

    def log_ratio(self) -> float:
        """ln of the odds that "worse by the margin" has gained over "no worse"."""
        return self._log_ratio_of(1.0, self.spread())

    def expected_log_ratio(self) -> float:
        """What `log_ratio` is on average if the canary is worse by the margin: what is known at all."""
        weight, _ = self.evidence.known(self.spread(), self._doubt_variance())
        return self.margin_value**2 / 2 * weight

    def spread(self) -> float:
        """Variance of the blocks' differences over what outcomes inside them predict, at least 1."""
        if self.block_count < 2:
            return 1.0
        beyond = self.everything.beyond(self._doubt_variance())
        return max(1.0, (OVERDISPERSION_BLOCKS + beyond) / (OVERDISPERSION_BLOCKS + self.block_count - 1))

    def verdict(self) -> Verdict:
        """What is known by now."""
        if self.block_count >= self.blocks_min_count and self.log_ratio() >= alarm_at(self.errors):
            return Verdict.WORSE
        return Verdict.CLEARED if self.cleared else Verdict.OPEN

    def _cap(self) -> None:
        spread, floor = self.spread(), cleared_at(self.errors)
        log_ratio = self._log_ratio_of(1.0, spread)
        if log_ratio <= floor:
            self.cleared = self.block_count >= self.blocks_min_count
            low, high = 0.0, 1.0  # the ratio of nothing is 0
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                if self._log_ratio_of(middle, spread) > floor:
                    low = middle
                else:
                    high = middle
            self.evidence.keep(high)
        elif log_ratio > 0:
            self.cleared = False

    def _log_ratio_of(self, kept_fraction: float, spread: float) -> float:
        weight, weighted = self.evidence.known(spread, self._doubt_variance(), kept_fraction)
        return self.margin_value * (weighted - self.margin_value / 2 * weight)

    def _doubt_variance(self) -> float:
        return 0.5 / (WRONG_ALARM_FRACTION * alarm_at(self.errors))

    def _slopes(self) -> tuple[float, float]:
        """Least squares of y on both covariates, from centred sums."""
        s = self.scatter
        uu, vv = s.uu_value + SLOPE_RIDGE, s.vv_value + SLOPE_RIDGE
        determinant = uu * vv - s.uv_value**2
        return (
            (s.uy_value * vv - s.vy_value * s.uv_value) / determinant,
            (s.vy_value * uu - s.uy_value * s.uv_value) / determinant,
        )

    def _leverage(self, du: float, dv: float) -> float:
        """What the doubt about the slopes adds, over s², when the arms' covariates differ."""
        s = self.scatter
        uu, vv = s.uu_value + SLOPE_RIDGE, s.vv_value + SLOPE_RIDGE
        determinant = uu * vv - s.uv_value**2
        return (du * du * vv - 2 * du * dv * s.uv_value + dv * dv * uu) / determinant


@dataclass(slots=True)
class FailureTest:
    """Does the canary fail more often by `margin_fraction`? Bernoulli likelihoods, block by block. Mutable.

    The baseline's rate is the pooled one, shrunk towards the block's own: a fault that strikes both arms at
    once raises both, and says nothing about the release.
    """

    margin_fraction: float
    errors: Errors
    base_count: int = 0
    base_failed_count: int = 0
    log_ratio_value: float = 0.0
    expected_value: float = 0.0
    cleared: bool = False

    def close_block(
        self, canary_count: int, canary_failed_count: int, base_count: int, base_failed_count: int
    ) -> None:
        """Fold one block's counts of outcomes, and of the failures among them, in."""
        self.base_count += base_count
        self.base_failed_count += base_failed_count
        pooled = (self.base_failed_count + 0.5) / (self.base_count + 1.0)
        rate = (BASE_REQUESTS * pooled + base_failed_count) / (BASE_REQUESTS + base_count)
        rate = min(max(rate, FAILURE_FRACTION_MIN), 1.0 - self.margin_fraction - 1e-6)
        worse = rate + self.margin_fraction
        failed_step, served_step = math.log(worse / rate), math.log((1 - worse) / (1 - rate))
        step = canary_failed_count * failed_step + (canary_count - canary_failed_count) * served_step
        self.expected_value += canary_count * (worse * failed_step + (1 - worse) * served_step)
        floor = cleared_at(self.errors)
        self.log_ratio_value = max(self.log_ratio_value + step, floor)
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
        if self.log_ratio_value >= alarm_at(self.errors):
            return Verdict.WORSE
        return Verdict.CLEARED if self.cleared else Verdict.OPEN


def alarm_at(errors: Errors) -> float:
    """The log ratio from which "worse" is believed."""
    return -math.log(errors.false_alarm_fraction)


def cleared_at(errors: Errors) -> float:
    """The log ratio, negative, from which "no worse" is believed, and below which no evidence is kept."""
    return math.log(errors.miss_fraction)


def _add_centred(scatter: MeanSums, arm: MeanSums) -> None:
    """Sums of squares about the arm's own means; they take one degree of freedom."""
    n = arm.count
    scatter.count += n - 1
    scatter.yy_value += arm.yy_value - arm.y_value * arm.y_value / n
    scatter.uu_value += arm.uu_value - arm.u_value * arm.u_value / n
    scatter.vv_value += arm.vv_value - arm.v_value * arm.v_value / n
    scatter.uv_value += arm.uv_value - arm.u_value * arm.v_value / n
    scatter.uy_value += arm.uy_value - arm.u_value * arm.y_value / n
    scatter.vy_value += arm.vy_value - arm.v_value * arm.y_value / n
