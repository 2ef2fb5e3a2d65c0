"""Checks a portfolio, hour by hour, in plain loops: shares nothing with the programme that found it."""

from collections.abc import Iterator

from twofold.portfolio.problem import PortfolioAnswer, PortfolioProblem, ServingRate

TOLERANCE = 1e-4


def violations(problem: PortfolioProblem, answer: PortfolioAnswer) -> tuple[str, ...]:
    """Everything that the answer breaks, in words; empty when it keeps every requirement."""
    return tuple(
        text
        for check in (_served, _batches, _campaigns, _capacity, _limits, _leases, _kinds, _money)
        for text in check(problem, answer)
    )


def _more(left: float, right: float) -> bool:
    return left > right + TOLERANCE * (1 + abs(right))


def _rates(problem: PortfolioProblem) -> dict[tuple[str, str], list[ServingRate]]:
    """By offer and demand, those that keep the promise."""
    limits = {demand.name: demand.limit_s for demand in problem.demands}
    found: dict[tuple[str, str], list[ServingRate]] = {}
    for rate in problem.rates:
        limit = limits.get(rate.demand)
        if limit is None or rate.p95_s is None or rate.p95_s <= limit:
            found.setdefault((rate.offer, rate.demand), []).append(rate)
    return found


def _served(problem: PortfolioProblem, answer: PortfolioAnswer) -> Iterator[str]:
    rates = _rates(problem)
    for d, demand in enumerate(problem.demands):
        for week in range(problem.week_count):
            for hour in range(24):
                got = sum(answer.served_per_s[o, d, week, hour] for o in range(len(problem.offers)))
                got += answer.shortage_per_s[d, week, hour]
                if abs(got - demand.rate_per_s[week, hour]) > TOLERANCE * (1 + demand.rate_per_s[week, hour]):
                    wanted = demand.rate_per_s[week, hour]
                    yield f"{demand.name}: {got:.4g}/s of {wanted:.4g}/s in week {week}, hour {hour}"
    for o, offer in enumerate(problem.offers):
        for w, name in enumerate(problem.work_names):
            if answer.served_per_s[o, w].max() > TOLERANCE and (offer.name, name) not in rates:
                yield f"{name}: served on {offer.name}, which does not keep its promise"


def _batches(problem: PortfolioProblem, answer: PortfolioAnswer) -> Iterator[str]:
    for b, batch in enumerate(problem.batches, start=len(problem.demands)):
        for week in range(problem.week_count):
            done = 0.0
            for o in range(len(problem.offers)):
                for hour in range(24):
                    rate = answer.served_per_s[o, b, week, hour]
                    if rate > TOLERANCE and hour not in batch.hours:
                        yield f"{batch.name}: runs in hour {hour}"
                    done += rate * 3600
            if _more(batch.requests_per_day[week], done):
                yield f"{batch.name}: {done:.6g} of {batch.requests_per_day[week]:.6g} a day in week {week}"


def _campaigns(problem: PortfolioProblem, answer: PortfolioAnswer) -> Iterator[str]:
    for c, campaign in enumerate(problem.campaigns):
        placed = [each for each in answer.placements if each.campaign == campaign.name]
        if campaign.dense:
            if len(placed) != 1:
                yield f"{campaign.name}: placed {len(placed)} times"
            for each in placed:
                end = each.start_week + each.option.wall_h / 168
                known = each.option in campaign.options
                if not known or each.start_week < campaign.first_week or end > campaign.end_week + 1e-6:
                    where = f"weeks {each.start_week}–{end:.1f} on {each.option.offer}"
                    yield f"{campaign.name}: {where} are not among its options"
            continue
        parts = [each for each in answer.portions if each.campaign == campaign.name]
        for o, offer in enumerate(problem.offers):
            hours = float(answer.rented_unit_h[o, c])
            for week in range(problem.week_count):
                used = float(answer.paused_units[o, c, week].sum()) * 7
                if used > TOLERANCE and not campaign.first_week <= week < campaign.end_week:
                    yield f"{campaign.name}: runs in week {week}"
                hours += used
            here = [each for each in parts if each.option.offer == offer.name]
            worked = sum(each.done_fraction * each.option.units * each.option.wall_h for each in here)
            if _more(worked, hours):
                yield f"{campaign.name}: {worked:.4g} unit-hours of work in {hours:.4g} on {offer.name}"
        if any(each.option not in campaign.options for each in parts):
            yield f"{campaign.name}: runs in a way that is none of its options"
        done = sum(each.done_fraction for each in parts)
        if done < 1 - TOLERANCE:
            yield f"{campaign.name}: {done:.4f} of it is done"


def _capacity(problem: PortfolioProblem, answer: PortfolioAnswer) -> Iterator[str]:
    """Every hour, each offer's units carry what runs on them."""
    rates = _rates(problem)
    reserves = {demand.name: demand.reserve_ratio for demand in problem.demands}
    for o, offer in enumerate(problem.offers):
        if offer.tenure == "api":
            continue
        fastest = {
            name: max((rate.rate_per_unit_per_s for rate in rates.get((offer.name, name), ())), default=0.0)
            for name in problem.work_names
        }
        by_hour = offer.tenure != "owned" and offer.minimum_weeks == 0
        for week in range(problem.week_count):
            training = _training_units(answer, offer.name, week)
            for hour in range(24):
                need = 0.0 if by_hour else training
                for w, name in enumerate(problem.work_names):
                    served = answer.served_per_s[o, w, week, hour]
                    if served > TOLERANCE and fastest[name]:
                        need += served * reserves.get(name, 1.0) / fastest[name]
                need += float(answer.paused_units[o, :, week, hour].sum())
                have = answer.held_units[o, week] + answer.hourly_units[o, week, hour]
                if _more(need, have):
                    yield f"{offer.name}: {need:.4g} units of work on {have:.4g} in week {week}, hour {hour}"


def _training_units(answer: PortfolioAnswer, offer: str, week: int) -> int:
    return sum(
        each.option.units
        for each in answer.placements
        if each.option.offer == offer
        and each.start_week <= week < each.start_week + -(-(each.option.wall_h - 1e-9) // 168)
    )


def _limits(problem: PortfolioProblem, answer: PortfolioAnswer) -> Iterator[str]:
    for o, offer in enumerate(problem.offers):
        by_hour = offer.tenure != "owned" and offer.minimum_weeks == 0
        until = problem.week_count if offer.until_week is None else offer.until_week
        for week in range(problem.week_count):
            training = _training_units(answer, offer.name, week) if by_hour else 0
            most = max(answer.hourly_units[o, week]) + answer.held_units[o, week] + training
            if offer.unit_limit is not None and most > offer.unit_limit + TOLERANCE:
                yield f"{offer.name}: {most:.4g} units of {offer.unit_limit} in week {week}"
            if most > TOLERANCE and not offer.first_week <= week < until:
                yield f"{offer.name}: used in week {week}, when it is not to be had"
            for count in (*answer.hourly_units[o, week], answer.held_units[o, week]):
                if abs(count - round(count)) > TOLERANCE or count < 0:
                    yield f"{offer.name}: {count} units in week {week}"


def _leases(problem: PortfolioProblem, answer: PortfolioAnswer) -> Iterator[str]:
    """Units of a week are no fewer than those whose leases have not run out."""
    for o, offer in enumerate(problem.offers):
        if offer.tenure in ("owned", "api") or offer.minimum_weeks == 0:
            continue
        for week in range(problem.week_count):
            earlier = range(max(0, week - offer.minimum_weeks + 1), week + 1)
            bound = sum(answer.started_units[o, each] for each in earlier)
            if _more(bound, answer.held_units[o, week]):
                held = answer.held_units[o, week]
                yield f"{offer.name}: {held:.4g} units in week {week}, where leases bind {bound:.4g}"
            before = answer.held_units[o, week - 1] if week else 0.0
            if _more(answer.held_units[o, week] - before, answer.started_units[o, week]):
                yield f"{offer.name}: units appear in week {week} without a lease"


def _kinds(problem: PortfolioProblem, answer: PortfolioAnswer) -> Iterator[str]:
    used = []
    for o, offer in enumerate(problem.offers):
        serving = answer.served_per_s[o].max() > TOLERANCE if problem.work_names else False
        training = any(each.option.offer == offer.name for each in answer.placements)
        pausing = float(answer.rented_unit_h[o].sum() + answer.paused_units[o].sum()) > TOLERANCE
        if serving or training or pausing:
            used.append(offer)
    platforms, providers = {o.accelerator for o in used}, {o.provider for o in used}
    if problem.platform_limit is not None and len(platforms) > problem.platform_limit:
        yield f"{len(platforms)} platforms: {', '.join(sorted(platforms))}"
    if problem.provider_limit is not None and len(providers) > problem.provider_limit:
        yield f"{len(providers)} providers: {', '.join(sorted(providers))}"


def _money(problem: PortfolioProblem, answer: PortfolioAnswer) -> Iterator[str]:
    """The answer's total from its own parts."""
    total = paid_usd(problem, answer)
    short = float(answer.shortage_per_s.sum()) * 7 * 3600 * (problem.shortage_usd_per_request or 0.0)
    if abs(total + short - answer.usd) > TOLERANCE * (1 + abs(answer.usd)):
        yield f"{answer.usd:.2f} USD are said, {total + short:.2f} are added up"


def paid_usd(problem: PortfolioProblem, answer: PortfolioAnswer) -> float:
    """What the portfolio costs, added up lease by lease and hour by hour."""
    total = sum(each.option.extra_usd for each in answer.placements)
    total += sum(each.done_fraction * each.option.extra_usd for each in answer.portions)
    for o, offer in enumerate(problem.offers):
        price = offer.usd_per_unit_h * (1 - offer.discount_fraction) * (1 + offer.support_fraction)
        if offer.tenure == "owned" or offer.minimum_weeks:
            total += price * 168 * float(answer.held_units[o].sum())
            for week in range(problem.week_count):
                end = week + min(offer.minimum_weeks, problem.week_count)
                beyond = max(0, end - problem.week_count)
                total += price * 168 * beyond * float(answer.started_units[o, week])
        else:
            hours = float(answer.hourly_units[o].sum()) * 7 + float(answer.rented_unit_h[o].sum())
            hours += sum(each.option.unit_h for each in answer.placements if each.option.offer == offer.name)
            total += price * hours
        asked_usd = 0.0  # by request: hosted APIs, and answers that leave a provider
        for w, name in enumerate(problem.work_names):
            which = (offer.name, name)
            prices = [each.usd_per_request for each in problem.rates if (each.offer, each.demand) == which]
            if prices:
                asked_usd += min(prices) * float(answer.served_per_s[o, w].sum()) * 7 * 3600
        total += asked_usd
    return total
