"""The SERVING block of the one-screen plan."""

from collections.abc import Iterator, Sequence

from twofold.answer.serving_plan import SHARED_POOL
from twofold.contracts.goals import metric_text
from twofold.contracts.results import serving
from twofold.contracts.results.serving import ClassPlan, ServicePlan
from twofold.core.display import format_apart, format_seconds, format_si, format_usd
from twofold.report.figures import answered, chance, percent, ranged, success_goal
from twofold.report.lines import DOT, both_ends, field, listed, table
from twofold.report.training import bound_pieces, cost_text, memory_lines, price_pieces

SHOWN_SAVING = 0.01  # of the accelerators
# What the names of choices mean.
CHOICES = {
    "disaggregation": "prompts on their own workers",
    "drafts": "drafts",
    "prefix_cache": "prefixes kept in caches",
}
HEADINGS = ("class", "peak", "goal", "at the peak", "replicas", "holds until")


def _start_text(service: ServicePlan) -> str:
    if service.cold_start_s is None:
        return ""
    warm = "" if service.warm_pool_count is None else f", warm pool {service.warm_pool_count}"
    return f"cold start {ranged(service.cold_start_s)}{warm}"


def serving_lines(
    service: ServicePlan, rehearsed: bool, asked: float | None = None, own_usd: float | None = None
) -> list[str]:
    """One service: the fleet, what each class gets at its peak, and what the fleet is bound by."""
    fleet = f"SERVING   {service.name}: {_fleet(service)}"
    limit = f"batch limited by {service.batch_limit}" if service.batch_limit else ""
    held = service.kv_utilisation_fraction
    return [
        *both_ends(fleet, cost_text(service.cost_usd_per_year, "USD/y", own_usd)),
        *field("replica", *_replica_pieces(service)),
        *_class_table(service, asked),
        *field("before", *tier_pieces(service.tiers)),
        *memory_lines(service),
        *field(
            "fleet",
            f"spare: {service.spare_reason}" if service.spare_reason else "no spare",
            _start_text(service),
            "" if held is None else f"KV cache {percent(held)} full at peak",
            *(f"{name} in the valleys of the others, on their machines" for name in service.in_valleys),
            *pooling_pieces(service),
            f"regions {', '.join(service.regions)}" if service.regions else "",
        ),
        *field("cost", *_cost_pieces(service)),
        *_price_lines(service, own_usd),
        *field("bound by", *bound_pieces(service.bounds), limit),
        *_choice_lines(service),
        *_rehearsed_lines(service, rehearsed),
    ]


def tier_pieces(tiers: Sequence[serving.TierPlan]) -> list[str]:
    """`retrieval 3 × 4 cores p95 62 of 200 ms ✓ holds to 120 /s`, in the order of requests."""
    pieces = []
    for each in tiers:
        reached, limit = format_apart(each.p95_s, each.goal_s, "s")
        mark, until = "✓" if each.p95_s <= each.goal_s else "✗", format_si(each.holds_until_per_s, "1/s")
        size = f"{each.replica_count} × {each.cores} core{'s' if each.cores != 1 else ''}"
        bound = " bottleneck" if each.is_bottleneck else ""
        pieces.append(f"{each.name} {size} p95 {reached} of {limit} {mark} holds to {until}{bound}")
    return pieces


def _choice_lines(service: ServicePlan) -> list[str]:
    """What nobody decided on and would save machines, the largest saving first; `--details` has all."""
    lines: list[str] = []
    for each in service.choices:
        if each.saved_fraction.value >= SHOWN_SAVING:
            saved = ranged(each.saved_fraction, "fraction")
            if each.saved_usd_per_year is not None:
                saved = f"{cost_text(each.saved_usd_per_year, 'USD/y')}, {percent(each.saved_fraction.value)}"
            said = f"{CHOICES[each.name]} would save {saved}: needs {'; '.join(each.needs)}"
            lines += field("" if lines else "instead", said)
    return lines


def choice_table(service: ServicePlan) -> list[str]:
    """Every way that was weighed, whether it saves or not."""
    return listed(
        service.choices,
        ("way", lambda each: CHOICES[each.name]),
        (">devices", lambda each: f"{each.accelerator_count:,}"),
        ("saves", lambda each: ranged(each.saved_fraction, "fraction")),
        ("a year", lambda each: cost_text(each.saved_usd_per_year)),
        ("needs", lambda each: "; ".join(each.needs)),
    )


def _class_table(service: ServicePlan, asked: float | None) -> list[str]:
    """The classes; where the service was rehearsed, what the twin says stands in place of the probability."""
    rows = [row for one in service.classes for row in _class_rows(one, bool(service.rehearsals), asked)]
    if not service.rehearsals:
        return table(HEADINGS, rows, numbers=(1, 4))
    twin = [text for one in service.classes for text in (*map(_rehearsed, one.slos), _answered(one.success))]
    beside = [(*row[:4], seen, *row[4:]) for row, seen in zip(rows, twin, strict=True)]
    return table((*HEADINGS[:4], "rehearsed", *HEADINGS[4:]), beside, numbers=(1, 5))


def _rehearsed(slo: serving.SloOutcome) -> str:
    """`326 ms ±4 % ✓`: the twin's figure and half of its interval."""
    seen = slo.rehearsed
    if seen is None or seen.value_s is None or seen.met is None:
        return "–"
    mark = "✓" if seen.met else "✗"
    if seen.low_s is None or seen.high_s is None or not seen.value_s:
        vague = "" if seen.resolved else " unresolved"
        return f"{format_seconds(seen.value_s)}{vague} {mark}"
    half = (seen.high_s - seen.low_s) / 2 / seen.value_s
    return f"{format_seconds(seen.value_s)} ±{100 * half:.0f} % {mark}"


def _answered(success: serving.SuccessOutcome) -> str:
    """`99.96 % ✓`: what the twin says of whole answers."""
    if success.rehearsed_fraction is None:
        return "–"
    mark = {True: "✓", False: "✗", None: "unresolved"}[success.rehearsed_met]
    return f"{answered(success.rehearsed_fraction)} {mark}"


def _rehearsed_lines(service: ServicePlan, rehearsed: bool) -> list[str]:
    """Each fleet that was tried on the twin, the planned one first; or that none was."""
    if not service.rehearsals:
        return field("", "rehearsed" if rehearsed else "not rehearsed: closed form only")
    words = [
        f"{one.name} {'holds' if one.holds else 'misses a goal'}{' (planned)' if one.chosen else ''}"
        for one in service.rehearsals
    ]
    needs = [line for need in service.replica_needs for line in field("", *_need_pieces(need))]
    return [*field("rehearsed", "at the peak, spares away", *words), *needs]


def _need_pieces(need: serving.ReplicaNeed) -> list[str]:
    """`chat: closed form 20, twin 17, 16 miss TTFT p95`, and where they are further apart than one, why."""
    asked, fewest, missing = need.closed_form_count, need.holding_count, need.missing_count
    told = f"{need.pool}: closed form {asked}, twin {'within one of it' if need.agrees else fewest or 'none'}"
    if need.missed:
        told += f", {missing} miss {_goals_text(need.missed[:1], need.pool)}"
    pieces = [told]
    if need.agrees:
        return pieces
    if asked > need.full_load_count:
        pieces.append(f"{asked - need.full_load_count} for the part of the load that is kept free")
    if need.missed and need.predicted_s is not None and need.simulated_s is not None:
        figures = f"{format_seconds(need.predicted_s)} by the closed form, {format_seconds(need.simulated_s)}"
        pieces.append(f"at {fewest} {metric_text(need.missed[0].metric)} is {figures} on the twin")
    return pieces


def rehearsed_text(need: serving.ReplicaNeed, service: ServicePlan) -> str:
    """`rehearsed: 21 miss TPOT p95 (41 of 40 ms), 24 hold, 23 do not: +0.1 M$/y`; "" where all is as planned.

    The first number is what was planned before it was rehearsed.
    """
    asked, fewest, missing = need.closed_form_count, need.holding_count, need.missing_count
    if fewest == asked:
        return ""
    cost = ""
    if need.usd_per_year is not None:
        sign = "+" if need.usd_per_year > 0 else "−"
        cost = f": {sign}{format_usd(abs(need.usd_per_year))}/y" if need.usd_per_year else ": costs the same"
    if not need.planned_missed:
        return f"rehearsed: {fewest} of the {asked} would do{cost}"
    told = f"rehearsed: {asked} miss {_goals_text(need.planned_missed, need.pool)}"
    machine = service.machine
    if need.accelerator != machine.accelerator:
        told = told.replace(f" {asked} ", f" {asked} {need.accelerator} ", 1)
        cost = f": now {machine.accelerator}"
    elif need.provider and machine.price and machine.price.provider != need.provider:
        cost += f", now of {machine.price.provider}, not {need.provider}"
    if fewest is None:
        return f"{told}, nor do {missing} hold{cost}"
    return f"{told}, {fewest} hold{f', {missing} do not' if missing and missing > asked else ''}{cost}"


def _goals_text(missed: Sequence[serving.MissedGoal], pool: str) -> str:
    """`TTFT p95 (510 of 500 ms) and E2E p95 (16 of 15 s) of documents`; `pool` names the first class."""
    return " and ".join(
        f"{each.text}{'' if each.class_name == pool else f' of {each.class_name}'}" for each in missed
    )


def _fleet(service: ServicePlan) -> str:
    """`14 × 4 H200-SXM-141GB (fp8), 2 of them spare, 3 zones`."""
    replica, machine = service.replica, service.machine
    count = service.replica_count
    size = f"{count} × {replica.accelerator_count} {machine.accelerator}"
    if count * replica.accelerator_count != machine.accelerator_count:  # replicas of two kinds
        size = f"{count} replicas on {machine.accelerator_count} {machine.accelerator}"
    spare = f", {service.spare_count} spare" if service.spare_count else ""
    zones = f", {service.zones} zones" if service.zones > 1 else ""
    return f"{size} ({replica.weights_format or 'measured'}){spare}{zones}"


def _price_lines(service: ServicePlan, own_usd: float | None) -> list[str]:
    """Which row of prices it is; with what is held all year its own, and how many of either."""
    machine = service.machine
    if machine.base_price is None:
        return field("price", *price_pieces(machine.price, own_usd))
    held = machine.accelerator_count - machine.hourly_count
    counts = f"{held} held all year", f"up to {machine.hourly_count} more"
    each = zip(counts, (machine.base_price, machine.price), strict=True)
    return [line for count, price in each for line in field("price", count, *price_pieces(price))]


def _replica_pieces(service: ServicePlan) -> list[str]:
    """Measured times say nothing of memory, tokens and starts."""
    others = [one for one in service.classes if one.replica_text not in ("", service.replica.text)]
    if len({one.replica_text for one in service.classes}) == 1 and len(service.classes) > 1:
        others = []  # one pool for all: the table says so
    rate, exposed = service.output_tokens_per_s_per_accelerator, service.communication_exposed_fraction
    return [
        *service.replica.text.split(DOT),
        service.replica.engine or "",
        f"{ranged(rate, 'tok/s')} per device" if rate else "",
        "" if exposed is None else f"exposed communication {percent(exposed)}",
        f"quality: {service.quality_note}" if service.quality_note else "",
        *(f"{one.name} on {one.replica_text.replace(DOT, ', ')}" for one in others),
    ]


def _class_rows(latency_class: ClassPlan, rehearsed: bool, asked: float | None) -> Iterator[tuple[str, ...]]:
    """A row for each goal; the first one carries what belongs to the class."""
    peak = format_si(latency_class.peak_per_s, "1/s")
    shared = " shared" if SHARED_POOL in latency_class.replica_text else ""
    replicas, holds = f"{latency_class.replica_count}{shared}", ranged(latency_class.holds_until_per_s, "1/s")
    own = (latency_class.name, peak), (replicas, holds)
    for slo in latency_class.slos:
        (name, rate), rest = own
        goal = f"{metric_text(slo.metric)} ≤ {format_seconds(slo.limit_s)}"
        yield name, rate, goal, _predicted(slo, None if rehearsed else slo.holds_probability, asked), *rest
        own = ("", ""), ("", "")
    kept = latency_class.success
    predicted = "not measured" if kept.predicted_fraction is None else answered(kept.predicted_fraction)
    mark = "" if kept.met is None else f" {chance(kept.met, None)}"
    yield "", "", success_goal(kept.goal_fraction), f"{predicted}{mark}", "", ""


def _predicted(slo: serving.SloOutcome, holds: float | None, asked: float | None) -> str:
    """`410 ms [360–460] f ✓ 84 %`, the probability that it holds; measured rows may hold no such time."""
    if slo.predicted is None or slo.met is None:
        return "not measured"
    return f"{ranged(slo.predicted)} {chance(slo.met, holds, asked)}"


def pooling_pieces(service: ServicePlan) -> list[str]:
    """What a pool for each class costs against one for all; nothing where there is one class to pool."""
    loss = service.pooling_loss_fraction or 0.0
    if loss > 0:
        return [f"a pool per class would need {percent(loss)} more accelerators than this one pool"]
    return [f"one pool for all would need {percent(1 / (1 + loss) - 1)} more accelerators"] if loss else []


def _cost_pieces(service: ServicePlan) -> list[str]:
    """What a million output tokens of each class cost; nothing without a price."""
    costs = [
        f"{one.name} {ranged(one.usd_per_1k_output_tokens.times(1e3, 'USD'))}"
        for one in service.classes
        if one.usd_per_1k_output_tokens
    ]
    return [f"per million output tokens: {costs[0]}", *costs[1:]] if costs else []
