"""What a portfolio does not keep by its own rehearsal, and what nobody promises it."""

from twofold.contracts import Portfolio

EVEN = "misses even at"  # more replicas than are tried: its rate is cut, and may still be too high
NOT_PROMISED = "not promised"
AS_IT_WAS = "with the corrected rates there is no portfolio: the one shown has the planned ones"


def uncorrected(portfolio: Portfolio) -> tuple[str, ...]:
    """What the twin said of machines that are still leased and miss a promise, in the words of its line.

    A machine is looked at once, in whatever round it comes up; a miss with a correction was solved again,
    but where no portfolio has the corrected rates.
    """
    stands = AS_IT_WAS in portfolio.rounds
    return tuple(
        text
        for text in portfolio.rounds
        if (EVEN in text or text.endswith(", misses") or (stands and ", misses" in text))
        and any(f" × {lease.accelerator} " in text for lease in portfolio.leases)
    )


def unpromised(portfolio: Portfolio) -> tuple[str, ...]:
    """Classes that hosted interfaces answer, with whose: they promise no latency."""
    return tuple(f"{each.what} by {each.provider}" for each in portfolio.leases if each.term == "api")
