"""What each step of DO THIS takes of the first year: lines of the bill that it recommends, with their tax."""

from collections.abc import Container, Sequence

from twofold.contracts import Lease, LineItem, Portfolio, total_usd

RENTED = ("rent", "support")
NOT_RENTED = ("owned", "api")


def rented_usd(lines: Sequence[LineItem], names: Container[str]) -> float:
    """Rent and support of the fleets of some runs and services, each of which has its lines in the bill."""
    return total_usd(line for line in lines if line.category in RENTED and owner_of(line) in names)


def leased_usd(portfolio: Portfolio, lines: Sequence[LineItem], leases: Sequence[Lease]) -> float:
    """Rent and support of some of a portfolio's leases; its bill begins with all of them, in their order."""
    starts = [index for index, line in enumerate(lines) if line.category == "rent"]
    rented = [lease for lease in portfolio.leases if lease.term not in NOT_RENTED]
    found: list[LineItem] = []
    for lease, start in zip(rented, starts, strict=False):  # behind them, what the portfolio leaves out
        if lease in leases:
            found.append(lines[start])
            found += [line for line in lines[start + 1 : start + 2] if line.category == "support"]
    return total_usd(found)


def hosted_usd(lines: Sequence[LineItem]) -> float:
    """Requests to hosted interfaces."""
    return total_usd(line for line in lines if line.category == "api")


def own_usd(lines: Sequence[LineItem]) -> float:
    """Energy of machines of one's own: those for rent have it in their price."""
    return total_usd(line for line in lines if line.category == "energy")


def owner_of(line: LineItem) -> str:
    """The run or service that a line is for."""
    return line.what.partition(":")[0]
