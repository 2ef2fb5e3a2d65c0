"""The block of a plan about rules: supply, the bill, enclaves, keys, logs, controls, mandates."""

from collections.abc import Sequence

from twofold.contracts.results import Compliance, compliance
from twofold.core import format_bytes, format_seconds, format_si, format_usd
from twofold.report.figures import percent, ranged
from twofold.report.lines import both_ends, field, table

SHOWN_PLACES, SHOWN_GAPS, SHOWN_DEPENDANTS, SHOWN_CATEGORIES = 2, 5, 3, 4


def compliance_lines(rules: Compliance) -> list[str]:
    """Supply, cost, uplift, way in, gaps; `--details` has enclaves, keys, logs, controls and mandates."""
    rent = f", of it {format_usd(rules.rent_usd)} dearer rent" if rules.rent_usd else ""
    first = f"first year {ranged(rules.first_year_usd)}{rent}"
    lines = both_ends(f"COMPLIANCE   {rules.regime}", first)
    lines += field("supply", _supply(rules))
    later = f"then {format_usd(rules.later_year_usd.value)} a year"
    lines += field("cost", [*_categories(rules.items), later])
    if rules.without_usd is not None:
        whole = format_usd(rules.without_usd + rules.first_year_usd.value)
        lines += field(
            "total", [f"{whole} with the rules, {format_usd(rules.without_usd)} less the lines above"]
        )
    lines += field("uplift", [*_uplifts(rules)[:1], *_uplifts(rules)[1:][-1:]])
    if rules.transfer is not None:
        every = f"every {rules.transfer.update_every_days:.0f} d"
        updates = f"updates of {format_bytes(rules.transfer.update_bytes)} {every}"
        lines += field("one-way", [f"first load {format_seconds(rules.transfer.first_s)}", updates])
    lines += field("controls", _controls(rules))
    # Where a request waits longer for its record than the goals leave: that decides.
    return [*lines, *field("logs", _logs(rules.logs) if rules.logs.synchronous_fits is False else [])]


def more_compliance_lines(rules: Compliance) -> list[str]:
    """What `--details` says first of rules."""
    enclaves = [
        f"{each.name} {each.node_count} node{'s' if each.node_count > 1 else ''}"
        if each.node_count
        else each.name
        for each in rules.enclaves
    ]
    lines = ["MORE RULES", *field("uplift", _uplifts(rules))]
    lines += field("enclaves", enclaves)
    keys = rules.keys
    offline = f" + {keys.offline_count} offline" if keys.offline_count else ""
    lines += field(
        "keys", [f"{len(keys.points)} key-use points", f"{keys.module_count} HSMs{offline}: {keys.reason}"]
    )
    lines += field("logs", _logs(rules.logs))
    return [*lines, *field("mandates", _mandates(rules.mandates))]


def _supply(rules: Compliance) -> list[str]:
    count = sum(place.offer_count for place in rules.permitted)
    places = ", ".join(place.where for place in rules.permitted[:SHOWN_PLACES])
    more = len(rules.permitted) - SHOWN_PLACES
    tail = f", {more} more" if more > 0 else ""
    where = f": {places}{tail}" if places else ": your own site"
    return [f"{count} of {rules.offers_in_all} offers authorised{where}"]


def _categories(items: Sequence[compliance.ComplianceItem]) -> list[str]:
    """The bill by category, dearest first; the small ones together."""
    sums: dict[str, float] = {}
    for item in items:
        sums[item.category] = sums.get(item.category, 0.0) + item.line.total_usd
    ranked = sorted(sums.items(), key=lambda each: -each[1])
    shown = [f"{name} {format_usd(usd)}" for name, usd in ranked[:SHOWN_CATEGORIES]]
    others = sum(usd for _, usd in ranked[SHOWN_CATEGORIES:])
    return [*shown, f"others {format_usd(others)}"] if others else shown


def _uplifts(rules: Compliance) -> list[str]:
    own = [f"here {percent(rules.uplift.uplift_fraction.value)}"] if rules.uplift else []
    if not own and not rules.sizes:
        return ["no price of the machines to hold it against"]
    return [*own, *map(_size, rules.sizes), "claimed: 20–40 %"]


def _size(uplift: compliance.Uplift) -> str:
    fraction = uplift.uplift_fraction
    spread = f"[{100 * fraction.low:.0f}–{100 * fraction.high:.0f}]"
    return f"{uplift.accelerator_count:,} accelerators {100 * fraction.value:.0f} % {spread}"


def _logs(logs: compliance.LogPlan) -> list[str]:
    volume = f"{format_bytes(logs.bytes_per_year.value)} a year, kept {logs.retention_days:.0f} d"
    if logs.bytes_per_request is None or logs.synchronous_s is None:
        return [volume]
    rate = f"{format_si(logs.requests_per_s, '/s')}"
    record = f"{logs.recorded} {format_bytes(logs.bytes_per_request)} × {rate}, and hosts: {volume}"
    if logs.budget_s is None:
        return [record, f"a request waits {ranged(logs.synchronous_s)}"]
    fits = "within" if logs.synchronous_fits else "over"
    return [record, f"a request waits {ranged(logs.synchronous_s)}, {fits} {format_seconds(logs.budget_s)}"]


def _controls(rules: Compliance) -> list[str]:
    by = dict.fromkeys(("product", "platform", "organisation"), 0)
    for control in rules.controls:
        by[control.implementer] += 1
    gaps = [control for control in rules.controls if control.status == "gap"]
    named = ", ".join(control.id for control in gaps[:SHOWN_GAPS]) + (" …" if len(gaps) > SHOWN_GAPS else "")
    shares = ", ".join(f"{who} {count}" for who, count in by.items())
    return [
        f"{len(rules.controls)} of the {rules.baseline} baseline: {shares}",
        f"product's gaps {len(gaps)}: {named}",
    ]


def _mandates(register: Sequence[compliance.Mandate]) -> list[str]:
    """The order that most papers still cite, and what rests on it."""
    revoked = [each for each in register if each.status == "revoked"]
    first = next((each for each in revoked if each.name == "EO 14110"), None)
    texts = [f"{len(register)} listed, {len(revoked)} revoked"]
    if first is not None:
        resting = [each.name for each in register if f"rests on {first.name}," in each.because]
        named = ", ".join(resting[:SHOWN_DEPENDANTS]) + (" …" if len(resting) > SHOWN_DEPENDANTS else "")
        texts.append(f"{first.name} revoked {first.because}; rest on it: {named}")
    return texts


def bill_blocks(rules: Compliance) -> list[list[str]]:
    """What `--details` adds: bill, boundaries, keys, what is done otherwise, controls and the register."""
    return [
        more_compliance_lines(rules),
        _bill(rules),
        _boundaries(rules),
        _keys(rules),
        [
            "OTHERWISE",
            *table(
                ("what", "usually", "here"),
                [(each.what, each.usually, each.here) for each in rules.differences],
            ),
        ],
        _families(rules),
        _ended(rules),
    ]


def _bill(rules: Compliance) -> list[str]:
    rows = [
        (
            item.line.what,
            f"{_count(item.line.quantity)} {item.line.unit}",
            f"{item.line.unit_usd:,.2f}",
            item.recurs,
            f"{item.line.total_usd:,.2f}",
            f"{item.low_usd:,.0f} to {item.high_usd:,.0f}" if item.low_usd < item.high_usd else "–",
        )
        for item in rules.items
    ]
    head = ("what", "quantity", "$ each", "paid", "$", "range")
    return ["BILL OF RULES", *table(head, rows, numbers=(2, 4))]


def _boundaries(rules: Compliance) -> list[str]:
    rows = [
        (each.name, each.place, str(each.node_count), each.holds, ", ".join(each.connects_to))
        for each in rules.enclaves
    ]
    return ["ENCLAVES", *table(("enclave", "place", "nodes", "holds", "sends to"), rows, numbers=(2,))]


def _keys(rules: Compliance) -> list[str]:
    rows = [
        (each.name, each.protects, each.standard, each.evidence, f"{each.operations_per_s:,.2g}")
        for each in rules.keys.points
    ]
    return ["KEYS", *table(("used for", "protects", "controls", "by", "1/s"), rows, numbers=(4,))]


def _families(rules: Compliance) -> list[str]:
    rows = [
        (
            each.family,
            str(each.control_count),
            str(each.product_count),
            str(each.platform_count),
            str(each.organisation_count),
            ", ".join(each.gaps) or "–",
        )
        for each in rules.families
    ]
    head = ("family", "all", "product", "platform", "organisation", "the product lacks all or part of")
    return ["CONTROLS", *table(head, rows, numbers=(1, 2, 3, 4))]


def _ended(rules: Compliance) -> list[str]:
    rows = [
        (each.name, each.status, each.because, each.replaced_by or "–")
        for each in rules.mandates
        if each.status != "in force"
    ]
    return ["MANDATES", *table(("name", "status", "because", "instead"), rows)]


def _count(quantity: float) -> str:
    return f"{quantity:,.0f}" if quantity >= 100 else f"{quantity:.4g}"
