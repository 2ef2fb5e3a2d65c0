"""What a planned service sends to the hosted API beside it, and what that asks for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twofold.contracts.results.serving import ClassPlan
from twofold.contracts.spec.service import Service
from twofold.core.display import format_usd
from twofold.core.estimate import Estimate
from twofold.core.quantity import YEAR_S

SURVIVE = {"p50": 0.5, "p95": 0.05, "p99": 0.01}  # share of requests that are later than each quantile
GATED = ("ttft", "e2e")  # what the gate predicts; of the gaps between tokens it knows nothing before


@dataclass(frozen=True, slots=True)
class HostedShare:
    """One class's requests at the hosted API."""

    class_name: str
    late_fraction: float | None  # of them, at the peak; None: it is too slow for what they are promised
    requests_count_per_year: float  # at that share, all year
    usd_per_1k: float  # of requests of mean lengths


def hosted_shares(entry: Service, classes: Sequence[ClassPlan]) -> tuple[HostedShare, ...]:
    """The classes that may go to the spec's hosted API; none without one.

    Formula  late = P(latency > limit) at the peak rate, on lines through p50, p95 and p99, logarithmic both;
             requests = late · mean rate · a year; price = input tokens · price + output tokens · price
    Why      The gate sends there what it predicts to be late here: at the planned peak, what the closed form
             has beyond the limit.
    Limits   The share of the peak holds all year, so requests are the most there may be; a lost replica and
             a load beyond the peak send more, `in_flight` bounds how much. The twin counts both.
    """
    told = entry.overflow
    if told is None:
        return ()
    found = []
    for each in classes:
        if told.classes and each.name not in told.classes:
            continue
        limits_s = {slo.metric.partition("_")[0]: slo.limit_s for slo in each.slos}
        tokens = each.input_tokens or 0.0, each.output_tokens or 0.0
        there_s = {"ttft": told.ttft_s, "e2e": told.ttft_s + tokens[1] * told.tpot_s}
        in_time = all(there_s[name] <= limits_s[name] for name in GATED if name in limits_s)
        late = max(
            (late_fraction(each.percentiles, name, limits_s[name]) for name in GATED if name in limits_s),
            default=0.0,
        )
        usd = (tokens[0] * told.input_price_usd + tokens[1] * told.output_price_usd) / 1e3
        found.append(
            HostedShare(
                each.name,
                late if in_time else None,
                late * each.rate_per_s * YEAR_S if in_time else 0.0,
                usd,
            )
        )
    return tuple(found)


def late_fraction(percentiles: Mapping[str, Estimate], metric: str, limit_s: float) -> float:
    """The share of requests later than `limit_s`, from the quantiles; 0 where they are not known.

    Beyond p99 the line between p95 and p99 goes on, before p50 that between p50 and p95.
    """
    named = {f"{metric}_{at}": share for at, share in SURVIVE.items()}
    known = [(percentiles[name].value, share) for name, share in named.items() if name in percentiles]
    if len(known) < len(SURVIVE) or not all(np.isfinite(s) and s > 0 for s, _ in known):
        return 0.0
    seconds, shares = (np.log(each) for each in zip(*known, strict=True))
    at = np.log(limit_s)
    first = 0 if at < seconds[1] else 1
    (x, further_x), (y, further_y) = seconds[first : first + 2], shares[first : first + 2]
    if further_x - x < 1e-9:  # no tail: all of them are as late
        return 0.0 if at >= x else 1.0
    return float(np.exp(min(0.0, y + (at - x) * (further_y - y) / (further_x - x))))


def overflow_notes(entry: Service, classes: Sequence[ClassPlan]) -> Iterator[str]:
    """A line for each class that may go there."""
    for each in hosted_shares(entry, classes):
        price = f"{format_usd(each.usd_per_1k)} per 1,000"
        if each.late_fraction is None:
            slow = f"too slow for what `{each.class_name}` is promised, and is never asked"
            yield f"overflow: the hosted API is {slow}"
            continue
        usd = format_usd(each.requests_count_per_year * each.usd_per_1k / 1e3)
        share = f"{100 * each.late_fraction:.2g} % of `{each.class_name}` is late here at the peak"
        yield f"overflow: {share}, at {price} at the hosted API: at most {usd}/y, in the bill of `--money`"
