"""A sequential test of failures: does one arm fail more often than the other by a margin? Constant memory."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from twofold.policy.gate.sequential import Errors, Verdict, alarm_at, cleared_at

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
        self._remember(ordinary_fraction * base_count, ordinary_fraction * base_failed_count)
        if self.log_ratio_value <= floor:
            self.cleared = True
        elif self.log_ratio_value > 0:
            self.cleared = False

    def _remember(self, count: float, failed_count: float) -> None:
        self.base_count += count
        self.base_failed_count += failed_count
        if self.base_count > BASE_COUNT_MAX:
            self.base_failed_count *= BASE_COUNT_MAX / self.base_count
            self.base_count = BASE_COUNT_MAX

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
