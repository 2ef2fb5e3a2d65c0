"""From a plan's searches to the problem of its portfolio, its answer, and what stands in the plan."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import partial
from math import ceil

import numpy as np

from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.training_choice import TrainingChoice
from twofold.contracts.results import holdings
from twofold.portfolio.capacity import promise_of, reserve_of, serving_rates, training_options
from twofold.portfolio.demand import ClassDemand, batch_of, class_demands, demand_of, first_day, repeats_of
from twofold.portfolio.hosted import hosted
from twofold.portfolio.offers import NodeOffer, node_offers, refused_quotes
from twofold.portfolio.problem import (
    HOUR_S,
    Batch,
    Campaign,
    CapacityOffer,
    Demand,
    PortfolioProblem,
    ServingRate,
)
from twofold.portfolio.programme import Known
from twofold.portfolio.prune import part_of
from twofold.portfolio.report import portfolio_of
from twofold.portfolio.solve import Effort, is_possible, solve, unserved
from twofold.portfolio.solved import PortfolioCase, SolvedPortfolio

LIMIT_S = 120.0  # a guard: effort ends the search much sooner, and the same on every machine
# What a request that nobody can serve counts, so that as few as possible stay unserved.
SHORTAGE_USD_PER_REQUEST = 100.0
WEEK_S = 604800.0


def portfolio(
    runs: Mapping[str, TrainingChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> holdings.Portfolio | None:
    """The cheapest mix of leases for a spec's runs and services; None where nothing is for rent.

    Nor where there are but runs, all on machines of your own; for services on them it has the months that
    are short.
    """
    if runs and not services and all(run.chosen.offer.owned for run in runs.values()):
        return None
    case = portfolio_case(runs, services, context)
    if case is None:
        return None
    known: Known = {}
    solving = partial(solve, limit_s=LIMIT_S, effort=Effort.USUAL, known=known)
    problem = case.problem
    conflicting: tuple[str, ...] = ()
    answer = solving(problem)
    if answer is None:  # what contradicts itself, and the best that can be done
        conflicting = conflict(problem) or ("time: none was found in it",)
        problem = relaxed(problem)
        answer = solving(problem)
    if answer is None:
        return None
    kept = {each.name for each in problem.campaigns}
    dropped = tuple(each.name for each in case.problem.campaigns if each.name not in kept)
    solved = replace(case, problem=problem)
    return portfolio_of(SolvedPortfolio(solved, answer, conflicting, dropped, known), context)


def portfolio_case(
    runs: Mapping[str, TrainingChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> PortfolioCase | None:
    """The problem of everything that a search has priced; None where no offer of it has a price."""
    searched = [trial.offer for choice in runs.values() for trial in (choice.chosen, *choice.others)]
    searched += [offer for choice in services.values() for offer in choice.offers.values()]
    start = first_day(context.spec)
    offers = node_offers(context, [offer.accelerator.name for offer in searched], searched, start)
    if not offers:
        return None
    wanted = tuple(each for choice in services.values() for each in class_demands(choice))
    demands, batches, rates = _serving(wanted, services, offers, context)
    hosting, hosted_rates, remarks = hosted(wanted, services, context)
    campaigns, left_out = _campaigns(runs, offers, context, start)
    if not campaigns and not rates:
        return None
    supply = context.spec.supply
    problem = plentiful(
        PortfolioProblem(
            (*(each.offer for each in offers), *hosting),
            tuple(demands),
            tuple(batches),
            campaigns,
            (*rates, *hosted_rates),
            platform_limit=supply.platforms,
        )
    )
    return PortfolioCase(problem, offers, wanted, start, (*left_out, *remarks, *refused_quotes(context)))


def plentiful(problem: PortfolioProblem) -> PortfolioProblem:
    """The same with those offers of lists that carry all of it at once, without their limits.

    Why      A limit that everything together stays below binds nothing, and what gives less than that is one
             of many small lots, which nobody runs a year on. Your machines and quotes keep their limits.
    """
    kept = []
    for offer in problem.offers:
        if offer.unit_limit is None or not offer.source.startswith("prices"):
            kept.append(offer)
        elif _most_units(offer, problem) <= offer.unit_limit:
            kept.append(replace(offer, unit_limit=None))
    return part_of(replace(problem, offers=tuple(kept)), {offer.name for offer in kept})


def _most_units(offer: CapacityOffer, problem: PortfolioProblem) -> float:
    """Units of an offer that everything would take which it can do, in whole units, all of it at once."""
    rates = {rate.demand: rate.rate_per_unit_per_s for rate in problem.rates if rate.offer == offer.name}
    waited = sum(
        ceil(float(each.rate_per_s.max()) * each.reserve_ratio / rates[each.name])
        for each in problem.demands
        if each.name in rates
    )
    daily = sum(
        ceil(float(each.requests_per_day.max()) / (len(each.hours) * HOUR_S) / rates[each.name])
        for each in problem.batches
        if each.name in rates
    )
    trained = sum(
        max((option.units for option in each.options if option.offer == offer.name), default=0)
        for each in problem.campaigns
    )
    return waited + daily + trained


def relaxed(problem: PortfolioProblem) -> PortfolioProblem:
    """The same with a price on what stays unserved; runs that cannot be are dropped."""
    offers = {offer.name: offer for offer in problem.offers}
    possible = tuple(
        campaign
        for campaign in problem.campaigns
        if any(
            not campaign.dense or campaign.last_start(option, problem.week_count) >= campaign.first_week
            for option in campaign.options
            if option.offer in offers
        )
    )
    return replace(problem, campaigns=possible, shortage_usd_per_request=SHORTAGE_USD_PER_REQUEST)


def _serving(
    wanted: tuple[ClassDemand, ...],
    services: Mapping[str, ServingChoice],
    offers: tuple[NodeOffer, ...],
    context: Context,
) -> tuple[list[Demand], list[Batch], list[ServingRate]]:
    demands: list[Demand] = []
    rates: list[ServingRate] = []
    for each in wanted:
        choice = services[each.service]
        rates += serving_rates(each, choice, offers, context)
        if not each.load.is_batch:
            promise = promise_of(each)
            limit_s = promise[1] if promise else None
            reserve = reserve_of(choice, each.load.name)
            demands.append(demand_of(each, choice.entry, context.spec, reserve, limit_s))
    quiet = sum((each.rate_per_s.mean(axis=0) for each in demands), np.zeros(24))
    batches = [batch_of(each, quiet) for each in wanted if each.load.is_batch]
    return demands, batches, rates


def _campaigns(
    runs: Mapping[str, TrainingChoice], offers: tuple[NodeOffer, ...], context: Context, start: date | None
) -> tuple[tuple[Campaign, ...], tuple[str, ...]]:
    """Every time of every run; what may pause is a tuning of one node that is over within a week.

    What must be over before its first week ends has no week to pause in: it runs from start to end. A run on
    machines of your own begins with its first week, unless another of them needs the same: those have to fit.
    """
    mine = sum(run.chosen.offer.owned for run in runs.values())
    found: list[Campaign] = []
    left_out: list[str] = []
    for name, choice in runs.items():
        options = training_options(choice, offers, context)
        times = repeats_of(choice.entry, start)
        if not options or not times:
            left_out.append(f"{name}: no offer of its kind of machine has a price")
            continue
        short = min(option.wall_h for option in options) * 3600.0 < WEEK_S
        dense = choice.entry.kind == "pretrain" or choice.chosen.node_count > 1 or not short
        now = choice.chosen.offer.owned and mine == 1
        for each, first_week, last_week in times:
            end_week = min(last_week, first_week + max(one.weeks for one in options)) if now else last_week
            at_once = dense or end_week < first_week + 1
            found.append(Campaign(each, first_week, end_week, options, at_once))
    return tuple(found), tuple(left_out)


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
