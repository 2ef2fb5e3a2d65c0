"""What each step of DO THIS takes of the first year: lines of the bill that it recommends, with their tax."""

from collections.abc import Container, Sequence

from twofold.contracts.results import Lease, LineItem, Portfolio, total_usd
from twofold.portfolio import by_lease

RENTED = ("rent", "support")


def rented_usd(lines: Sequence[LineItem], names: Container[str]) -> float:
    """Rent and support of the fleets of some runs and services, each of which has its lines in the bill."""
    return total_usd(line for line in lines if line.category in RENTED and owner_of(line) in names)


def leased_usd(portfolio: Portfolio, lines: Sequence[LineItem], leases: Sequence[Lease]) -> float:
    """Rent and support of some of a portfolio's leases."""
    billed, _ = by_lease(portfolio.leases, lines)
    of_them = [each for each in billed if each.lease in leases]
    return total_usd(line for each in of_them for line in (each.rent, each.support) if line)


def hosted_usd(lines: Sequence[LineItem]) -> float:
    """Requests to hosted interfaces."""
    return total_usd(line for line in lines if line.category == "api")


def own_usd(lines: Sequence[LineItem]) -> float:
    """Energy of machines of one's own: those for rent have it in their price."""
    return total_usd(line for line in lines if line.category == "energy")


def owner_of(line: LineItem) -> str:
    """The run or service that a line is for."""
    return line.what.partition(":")[0]
