"""Figures of a load: quantiles with their ranges, and the knee among several rates. Pure."""

from collections.abc import Sequence

import numpy as np

from twofold.contracts.results import served

MISSED_FRACTION = 0.05  # at each end of a range of 90 %
QUANTILES = (0.5, 0.95, 0.99)
GROWTH_LOADS = 3  # through which a line is drawn, at least
LOST_MOST_FRACTION = 0.01  # of requests refused or failed, where a rate still holds
SLOWED_MOST_RATIO = 2.0  # of p95 to that of the lowest rate, where no limit is told
LATE_FRACTION = 0.1  # of that p95, from which the loader's own lag may be what broke
KEPT_LEAST_FRACTION = 0.9  # of the offered rate that must be finished


def latency_of(values_s: Sequence[float]) -> served.Latency | None:
    """Mean and quantiles of measured latencies; None of none."""
    if not values_s:
        return None
    ordered = sorted(values_s)
    middles = np.quantile(ordered, QUANTILES)
    p50, p95, p99 = (
        ranged(ordered, share, float(value)) for share, value in zip(QUANTILES, middles, strict=True)
    )
    return served.Latency(float(np.mean(ordered)), p50, p95, p99)


def ranged(ordered: Sequence[float], share: float, value: float) -> served.Ranged:
    """The quantile `value` of ascending values with its range of 90 %, by order statistics.

    Why      of n independent values, so many as Binomial(n, share) lie below the true quantile: the range
             runs between the two values by whose ranks 5 % of that are left out at each end. No shape of
             the distribution is assumed.
    Limits   requests that queue together are not independent: the true range is wider under load. An end is
             None where even the outermost value leaves out less: of p99, above with fewer than 299.
    """
    low, high = ranks(len(ordered), share)
    return served.Ranged(
        value,
        None if low is None else min(float(ordered[low - 1]), value),
        None if high is None else max(float(ordered[high - 1]), value),
    )


def ranks(count: int, share: float) -> tuple[int | None, int | None]:
    """The ranks, from 1, of the values between which the quantile of `share` lies with 90 %.

    >>> ranks(100, 0.5), ranks(298, 0.99)[1], ranks(299, 0.99)[1]
    ((42, 59), None, 299)
    """
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, count + 1)))))
    below = np.arange(count + 1)
    chances = np.exp(
        logs[count] - logs - logs[::-1] + below * np.log(share) + (count - below) * np.log1p(-share)
    )
    at_most = np.cumsum(chances)
    # Too high a low end: as many or fewer lie below the quantile as before that rank.
    low = int(np.searchsorted(at_most, MISSED_FRACTION, side="right"))
    high = int(np.searchsorted(at_most, 1.0 - MISSED_FRACTION, side="left")) + 1
    return (low if low >= 1 else None), (high if high <= count else None)


def growth_of(loads: Sequence[served.ServedLoad]) -> served.Growth | None:
    """How memory grows with the tokens in flight, by least squares.

    Limits   what a process once took it rarely gives back, so begin with the lightest load; an engine that
             takes its cache at the start does not grow. None with fewer than three loads, or where the most
             tokens are not twice the fewest: a line through them says nothing.
    """
    pairs = [
        (load.peak_held_tokens, float(load.memory_peak_bytes))
        for load in loads
        if load.peak_held_tokens and load.memory_peak_bytes
    ]
    if len(pairs) < GROWTH_LOADS or max(pairs)[0] < 2 * min(pairs)[0]:
        return None
    tokens, held = np.array(pairs).T
    slope, base = (float(each) for each in np.polyfit(tokens, held, 1))
    off = float(np.abs(held - base - slope * tokens).max())
    span = abs(slope) * float(np.ptp(tokens))
    return served.Growth(slope, base, len(pairs), off / span if span else 0.0)


def knee_of(loads: Sequence[served.ServedLoad], limit_s: float | None, whose: str) -> served.Knee | None:
    """The largest rate of open loads up to which all rates held; None without an open load.

    A rate holds if at most 1 % of its requests were refused or failed, if it finished 90 % of what was
    offered, and if p95 of the latency `whose` (ttft, e2e) keeps its limit, or without one stays within
    twice that of the lowest rate. Of what was offered, what is under way at the load's end cannot have
    been finished: as much as in the lowest rate's time of a whole answer.
    """
    rising = sorted(
        (load for load in loads if load.kind in ("open", "bursts") and load.rate_per_s),
        key=lambda load: load.rate_per_s or 0.0,
    )
    if not rising:
        return None
    first_s = _p95_s(rising[0], whose)
    most_s = limit_s if limit_s is not None else first_s and SLOWED_MOST_RATIO * first_s
    said = f"{limit_s * 1e3:g} ms" if limit_s is not None else f"twice that at {rising[0].rate_per_s:g}/s"
    method = (
        f"the largest offered rate up to which at most {100 * LOST_MOST_FRACTION:.0f} % were refused or"
        " failed,"
        f" {100 * KEPT_LEAST_FRACTION:.0f} % of the rate was finished, and p95 of {whose.upper()} kept {said}"
    )
    held: float | None = None
    answer_s = rising[0].e2e.mean_s or 0.0 if rising[0].e2e else 0.0
    for load in rising:
        if why := _broke(load, most_s, whose, answer_s):
            return served.Knee(held, load.rate_per_s, why, method)
        held = load.rate_per_s
    return served.Knee(held, None, "", method)


def keeps_up(load: served.ServedLoad, answer_s: float = 0.0) -> bool:
    """Whether an open load was carried, however late: a rate that holds for whoever waits long enough."""
    return not _broke(load, np.inf, "e2e", answer_s)


def _broke(load: served.ServedLoad, most_s: float | None, whose: str, answer_s: float) -> str:
    """The first sign that a rate did not hold; nothing where it did."""
    p95_s = _p95_s(load, whose)
    if load.lost_fraction > LOST_MOST_FRACTION:
        return f"{100 * load.lost_fraction:.1f} % refused or failed"
    if p95_s is None or most_s is None:
        return "nothing finished"
    if p95_s > most_s:
        broke = f"p95 of {whose.upper()} {p95_s * 1e3:.4g} ms of {most_s * 1e3:.4g}"
        late_s = load.lag_s_p99 or 0.0
        return (
            broke if late_s < LATE_FRACTION * p95_s else f"{broke}, but the loader was late: maybe more holds"
        )
    if not load.duration_s:
        return ""
    # What chance offered, not the rate that was asked for. A request under way counts by half on average.
    under_way = min(0.5, answer_s / load.duration_s / 2)
    offered = (load.sent or 0) / load.duration_s * (1.0 - under_way)
    if (load.requests_per_s or 0.0) < KEPT_LEAST_FRACTION * offered:
        return f"{load.requests_per_s or 0.0:.3g}/s finished of {offered:.3g}"
    return ""


def _p95_s(load: served.ServedLoad, whose: str) -> float | None:
    latency = load.ttft if whose == "ttft" else load.e2e
    return latency.p95_s.value if latency and latency.p95_s else None
