"""What a portfolio does not keep by its own rehearsal, what that left out, and what nobody promises."""

from twofold.contracts.results import Portfolio, RehearsedMachine

NOT_PROMISED = "not promised"


def uncorrected(portfolio: Portfolio) -> tuple[RehearsedMachine, ...]:
    """Machines that still serve and miss what is promised, at every rate that there is a portfolio for.

    A machine is looked at once, in whatever round it comes up; a miss with a correction was solved again.
    """
    return tuple(each for each in portfolio.rehearsed if each.serves and each.verdict == "misses")


def unseen(portfolio: Portfolio) -> tuple[RehearsedMachine, ...]:
    """Machines that serve since the last correction, which no round was left to look at."""
    return tuple(each for each in portfolio.rehearsed if each.serves and each.verdict == "unseen")


def unpromised(portfolio: Portfolio) -> tuple[str, ...]:
    """Classes that hosted interfaces answer, with whose: they promise no latency."""
    return tuple(f"{each.what} by {each.provider}" for each in portfolio.leases if each.term == "api")
