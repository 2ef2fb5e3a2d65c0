"""The block of a plan about rules: supply, the bill, enclaves, keys, logs, controls, mandates."""

from collections import Counter
from collections.abc import Sequence

from twofold.contracts.results import compliance
from twofold.core.display import format_bytes, format_seconds, format_si, format_usd
from twofold.report.figures import percent, ranged
from twofold.report.lines import both_ends, field, listed, table

SHOWN_PLACES, SHOWN_GAPS, SHOWN_DEPENDANTS, SHOWN_CATEGORIES = 2, 5, 3, 4


def compliance_lines(rules: compliance.Compliance) -> list[str]:
    """Supply, cost, uplift, way in, gaps; `--details` has enclaves, keys, logs, controls and mandates."""
    rent = f", of it {format_usd(rules.rent_usd)} dearer rent" if rules.rent_usd else ""
    first = f"first year {ranged(rules.first_year_usd)}{rent}"
    lines = both_ends(f"COMPLIANCE   {rules.regime}", first)
    places = ", ".join(place.where for place in rules.permitted[:SHOWN_PLACES]) or "your own site"
    more = len(rules.permitted) - SHOWN_PLACES
    count = sum(place.offer_count for place in rules.permitted)
    where = f"{places}{f', {more} more' if more > 0 else ''}"
    lines += field("supply", f"{count} of {rules.offers_in_all} offers authorised: {where}")
    later = f"then {format_usd(rules.later_year_usd.value)} a year"
    lines += field("cost", *_categories(rules.items), later)
    if rules.without_usd is not None:
        whole, without = rules.without_usd + rules.first_year_usd.value, format_usd(rules.without_usd)
        lines += field("total", f"{format_usd(whole)} with the rules, {without} less the lines above")
    first_uplift, *uplifts = _uplifts(rules)
    lines += field("uplift", first_uplift, *uplifts[-1:])
    if rules.transfer is not None:
        every = f"every {rules.transfer.update_every_days:.0f} d"
        updates = f"updates of {format_bytes(rules.transfer.update_bytes)} {every}"
        lines += field("one-way", f"first load {format_seconds(rules.transfer.first_s)}", updates)
    lines += field("controls", *_controls(rules))
    # Where a request waits longer for its record than the goals leave: that decides.
    return [*lines, *field("logs", *(_logs(rules.logs) if rules.logs.synchronous_fits is False else []))]


def more_compliance_lines(rules: compliance.Compliance) -> list[str]:
    """What `--details` says first of rules."""
    keys, enclaves = rules.keys, []
    for each in rules.enclaves:
        nodes = "nodes" if each.node_count > 1 else "node"
        enclaves.append(f"{each.name} {each.node_count} {nodes}" if each.node_count else each.name)
    offline = f" + {keys.offline_count} offline" if keys.offline_count else ""
    modules = f"{keys.module_count} HSMs{offline}: {keys.reason}"
    return [
        "MORE RULES",
        *field("uplift", *_uplifts(rules)),
        *field("enclaves", *enclaves),
        *field("keys", f"{len(keys.points)} key-use points", modules),
        *field("logs", *_logs(rules.logs)),
        *field("mandates", *_mandates(rules.mandates)),
    ]


def _categories(items: Sequence[compliance.ComplianceItem]) -> list[str]:
    """The bill by category, dearest first; the small ones together."""
    sums: dict[str, float] = {}
    for item in items:
        sums[item.category] = sums.get(item.category, 0.0) + item.line.total_usd
    ranked = sorted(sums.items(), key=lambda each: -each[1])
    shown = [f"{name} {format_usd(usd)}" for name, usd in ranked[:SHOWN_CATEGORIES]]
    others = sum(usd for _, usd in ranked[SHOWN_CATEGORIES:])
    return [*shown, f"others {format_usd(others)}"] if others else shown


def _uplifts(rules: compliance.Compliance) -> list[str]:
    own = [f"here {percent(rules.uplift.uplift_fraction.value)}"] if rules.uplift else []
    if not own and not rules.sizes:
        return ["no price of the machines to hold it against"]
    sizes = [
        f"{each.accelerator_count:,} accelerators {100 * each.uplift_fraction.value:.0f} % "
        f"[{100 * each.uplift_fraction.low:.0f}–{100 * each.uplift_fraction.high:.0f}]"
        for each in rules.sizes
    ]
    return [*own, *sizes, "claimed: 20–40 %"]


def _logs(logs: compliance.LogPlan) -> list[str]:
    volume = f"{format_bytes(logs.bytes_per_year.value)} a year, kept {logs.retention_days:.0f} d"
    if logs.bytes_per_request is None or logs.synchronous_s is None:
        return [volume]
    rate = format_si(logs.requests_per_s, "/s")
    record = f"{logs.recorded} {format_bytes(logs.bytes_per_request)} × {rate}, and hosts: {volume}"
    fits = "within" if logs.synchronous_fits else "over"
    budget = "" if logs.budget_s is None else f", {fits} {format_seconds(logs.budget_s)}"
    return [record, f"a request waits {ranged(logs.synchronous_s)}{budget}"]


def _controls(rules: compliance.Compliance) -> list[str]:
    by = Counter(control.implementer for control in rules.controls)
    shares = ", ".join(f"{who} {by[who]}" for who in ("product", "platform", "organisation"))
    gaps = [control.id for control in rules.controls if control.status == "gap"]
    return [
        f"{len(rules.controls)} of the {rules.baseline} baseline: {shares}",
        f"product's gaps {len(gaps)}: {_first(gaps, SHOWN_GAPS)}",
    ]


def _first(names: Sequence[str], count: int) -> str:
    return ", ".join(names[:count]) + (" …" if len(names) > count else "")


def _mandates(register: Sequence[compliance.Mandate]) -> list[str]:
    """The order that most papers still cite, and what rests on it."""
    revoked = [each for each in register if each.status == "revoked"]
    first = next((each for each in revoked if each.name == "EO 14110"), None)
    texts = [f"{len(register)} listed, {len(revoked)} revoked"]
    if first is not None:
        resting = [each.name for each in register if f"rests on {first.name}," in each.because]
        named = _first(resting, SHOWN_DEPENDANTS)
        texts.append(f"{first.name} revoked {first.because}; rest on it: {named}")
    return texts


def bill_blocks(rules: compliance.Compliance) -> list[list[str]]:
    """What `--details` adds: bill, boundaries, keys, what is done otherwise, controls and the register."""
    bill = listed(
        rules.items,
        ("what", lambda item: item.line.what),
        ("quantity", lambda item: f"{_count(item.line.quantity)} {item.line.unit}"),
        (">$ each", lambda item: f"{item.line.unit_usd:,.2f}"),
        ("paid", lambda item: item.recurs),
        (">$", lambda item: f"{item.line.total_usd:,.2f}"),
        ("range", _range),
    )
    enclaves = listed(
        rules.enclaves,
        ("enclave", lambda each: each.name),
        ("place", lambda each: each.place),
        (">nodes", lambda each: str(each.node_count)),
        ("holds", lambda each: each.holds),
        ("sends to", lambda each: ", ".join(each.connects_to)),
    )
    keys = listed(
        rules.keys.points,
        ("used for", lambda each: each.name),
        ("protects", lambda each: each.protects),
        ("controls", lambda each: each.standard),
        ("by", lambda each: each.evidence),
        (">1/s", lambda each: f"{each.operations_per_s:,.2g}"),
    )
    differences = [(each.what, each.usually, each.here) for each in rules.differences]
    families = listed(
        rules.families,
        ("family", lambda each: each.family),
        (">all", lambda each: str(each.control_count)),
        (">product", lambda each: str(each.product_count)),
        (">platform", lambda each: str(each.platform_count)),
        (">organisation", lambda each: str(each.organisation_count)),
        ("the product lacks all or part of", lambda each: ", ".join(each.gaps) or "–"),
    )
    ended = listed(
        [each for each in rules.mandates if each.status != "in force"],
        ("name", lambda each: each.name),
        ("status", lambda each: each.status),
        ("because", lambda each: each.because),
        ("instead", lambda each: each.replaced_by or "–"),
    )
    return [
        more_compliance_lines(rules),
        ["BILL OF RULES", *bill],
        ["ENCLAVES", *enclaves],
        ["KEYS", *keys],
        ["OTHERWISE", *table(("what", "usually", "here"), differences)],
        ["CONTROLS", *families],
        ["MANDATES", *ended],
    ]


def _range(item: compliance.ComplianceItem) -> str:
    return f"{item.low_usd:,.0f} to {item.high_usd:,.0f}" if item.low_usd < item.high_usd else "–"


def _count(quantity: float) -> str:
    return f"{quantity:,.0f}" if quantity >= 100 else f"{quantity:.4g}"
