"""Why no portfolio exists: the smallest set of requirements that contradict each other."""

from twofold.supply.portfolio_problem import PortfolioProblem
from twofold.supply.portfolio_prune import cheapest_usd_per_request
from twofold.supply.solve import is_possible


def unserved(problem: PortfolioProblem) -> tuple[str, ...]:
    """Demands and runs that no offer can take at all, whatever it costs: they conflict with nothing else."""
    alone = [
        f"class {each.name}"
        for each in problem.demands
        if each.rate_per_s.max() > 0 and cheapest_usd_per_request(problem, each.name) == float("inf")
    ]
    alone += [
        f"batch {each.name}"
        for each in problem.batches
        if each.requests_per_day.max() > 0 and cheapest_usd_per_request(problem, each.name) == float("inf")
    ]
    return (*alone, *(f"run {each.name}" for each in problem.campaigns if not each.options))


def conflict(problem: PortfolioProblem) -> tuple[str, ...]:
    """Requirements of which every one is needed for the contradiction; () where there is none.

    Deletion filter: each is dropped in turn, and for good where the rest still contradicts itself. What is
    left is minimal: without any one of its members the others can be met.
    """
    lonely = unserved(problem)
    if lonely:
        return lonely[:1]
    if is_possible(problem):
        return ()
    left = problem
    for requirement in problem.requirements:
        without = left.without(requirement)
        if not is_possible(without):
            left = without
    return left.requirements
