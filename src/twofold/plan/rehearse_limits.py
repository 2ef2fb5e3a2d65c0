"""Rehearsals that would not end in a day are refused before they begin, with what makes them so long."""

from twofold.core import DAY_S, ValueRefusedError, format_seconds
from twofold.plan.rehearse_traffic import DrawnTraffic, TrafficMix

SPAN_S_MAX = 366 * DAY_S  # simulated
REQUESTS_MAX = 50_000_000  # drawn in one run: hours of computing
SCRAPES_MAX = 20_000_000  # of one replica


def check_ends(horizon_s: float, scraped_every_s: float, traffic: TrafficMix) -> None:
    """Raises ValueRefusedError for a run that is too long, asks too much, or looks too often."""
    if horizon_s > SPAN_S_MAX:
        raise ValueRefusedError(
            f"a rehearsal of requests over {format_seconds(horizon_s)} would not end: a year is the most",
            hint="write a shorter `horizon`, replay a part of the trace, or raise `scale` under `traffic`",
        )
    drawn = [part.model for part in traffic.parts if isinstance(part, DrawnTraffic)]
    requests = horizon_s * sum(model.rate_per_s for model in drawn)
    if requests > REQUESTS_MAX:
        raise ValueRefusedError(
            f"about {requests:.3g} requests are more than the {REQUESTS_MAX:.3g} that a rehearsal draws",
            hint="write a shorter `horizon`, or a lower `scale` under `traffic`",
        )
    if horizon_s / scraped_every_s > SCRAPES_MAX:
        raise ValueRefusedError(
            f"metrics every {scraped_every_s:g} s: {horizon_s / scraped_every_s:.3g} looks at each replica",
            hint="write a longer `every` under `metrics`: live, it is seconds",
        )


def check_measured(ends_s: float, warm_up_s: float, *, at_once: bool = False) -> None:
    """Raises ValueRefusedError where requests end before any is in the figures: traces may be short.

    `at_once`: all requests of the trace come at one moment.
    """
    if warm_up_s >= ends_s > 0 and at_once:
        raise ValueRefusedError(
            f"all requests arrive at once, so that a warm-up of {format_seconds(warm_up_s)} leaves none",
            hint="leave `warm_up` out, or replay a trace that lasts",
        )
    if warm_up_s >= ends_s > 0:
        raise ValueRefusedError(
            f"a warm-up of {format_seconds(warm_up_s)} leaves none of {format_seconds(ends_s)} of requests",
            hint="write a shorter `warm_up`, or replay a longer part of the trace",
        )
