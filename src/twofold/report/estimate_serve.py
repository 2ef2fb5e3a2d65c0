"""The screen of `estimate serve`: a model under a load, its memory, latency, limits and tables."""

from twofold.answer import ServingEstimate
from twofold.contracts import METRICS, QUANTILES
from twofold.core import Estimate, format_bytes, format_count, format_memory, format_si
from twofold.report.figures import apportioned, percent, ranged, shares
from twofold.report.lines import DOT, both_ends, field, heading, stacked, table
from twofold.report.training import bound_pieces, machine_text, model_text, note_lines, price_pieces

GIB = 2.0**30


def serve_lines(answer: ServingEstimate) -> list[str]:
    """The answer in at most 100 columns."""
    blocks = [
        [
            *both_ends(
                f"{model_text(answer.model, answer.parameters)}{DOT}serving", machine_text(answer.machine)
            ),
            *field(
                "replica",
                [
                    *answer.replica.text.split(DOT),
                    f"maths in {answer.compute_format}",
                    answer.replica.engine or "",
                ],
            ),
            *field(
                "load",
                [answer.load, f"{answer.input_tokens:,.0f} tok in, {answer.output_tokens:,.0f} tok out"],
            ),
            *_memory(answer),
            *_cache(answer),
        ],
        _latency(answer),
        _rates(answer),
        _formats(answer),
        _layouts(answer),
        _switches(answer),
        _replicas(answer),
        note_lines(answer.warnings),
    ]
    return stacked(blocks)


def _memory(answer: ServingEstimate) -> list[str]:
    """One device by part, adding up to all it has; then the weights of the whole model."""
    texts = apportioned([part.value.value / GIB for part in answer.memory_parts], 1)
    parts = [f"{part.name} {text}" for part, text in zip(answer.memory_parts, texts, strict=True)]
    scales = f", {format_bytes(answer.scales_bytes)} of it scales" if answer.scales_bytes else ""
    return [
        *field("memory", [f"{format_memory(answer.memory_capacity_bytes)} per device", *parts]),
        *field("", [f"weights of the whole model {format_bytes(answer.weights_bytes)}{scales}"]),
    ]


def _cache(answer: ServingEstimate) -> list[str]:
    held, clients = answer.max_sequences, answer.client_count
    together = (
        f"{format_bytes(clients * answer.kv_bytes_per_sequence)} for all {clients:,}" if clients else ""
    )
    return field(
        "KV cache",
        [
            f"{answer.kv_bytes_per_token:,.0f} B per token",
            f"{format_bytes(answer.kv_bytes_per_sequence)} per request",
            *([together] if together else []),
            f"room for {ranged(held, 'requests')} at once",
            f"{percent(answer.kv_fraction)} full at this load",
            f"a full replica is limited by {answer.batch_limit}",
        ],
    )


def _latency(answer: ServingEstimate) -> list[str]:
    rows = [
        (name, *(ranged(answer.percentiles[f"{metric}_{q}"]) for q in QUANTILES))
        for metric, name in {**METRICS, "e2e": "end to end"}.items()
    ]
    budget = [(part.name, part.value.value) for part in answer.latency_budget]
    total = sum(value for _, value in budget)
    parts = [f"{name} {format_si(value, 's')}" for name, value in budget]
    whole = Estimate(total, total, total, "s", answer.latency_budget[-1].value.source)
    return [
        *table(("latency", *QUANTILES), rows),
        *field("budget", [*parts, f"= {format_si(whole.value, 's')} on average"]),
        *field("a step", [ranged(answer.step_s), f"{answer.batch_sequences:,.0f} requests decode together"]),
        *field("", shares([(part.name, part.value.value) for part in answer.step_parts])),
    ]


def _rates(answer: ServingEstimate) -> list[str]:
    cost = answer.usd_per_1k_output_tokens
    each = answer.communication_bytes_per_token
    sent = [f"each device sends {format_bytes(each)} per token" if each else "nothing leaves a device"]
    if answer.all_to_all_bytes_per_token:
        exchanged = format_bytes(answer.all_to_all_bytes_per_token)
        sent.append(f"all-to-all between experts {exchanged} per token through all layers")
    starting = [f"{part.name} {ranged(part.value)}" for part in answer.cold_start_parts]
    return [
        *field(
            "output",
            [
                f"{ranged(answer.output_tokens_per_s)}",
                f"{ranged(answer.output_tokens_per_s_per_accelerator)} per device",
                f"{ranged(answer.requests_per_s)}",
            ],
        ),
        *field("", [f"{ranged(answer.output_tokens_per_j, 'tok/s per W')} at {ranged(answer.power_w)}"]),
        *field("cost", [f"{ranged(cost)} per 1k output tokens" if cost else "no price"]),
        *field("", price_pieces(answer.machine.price) if answer.machine.price else []),
        *field("cold start", [ranged(answer.cold_start_s), *starting]),
        *field("network", sent),
        *field("bound by", bound_pieces(answer.bounds)),
    ]


def _formats(answer: ServingEstimate) -> list[str]:
    rows = [
        (
            row.weights_format,
            "yes" if row.supported else "no",
            format_bytes(row.weights_bytes),
            format_bytes(row.scales_bytes) if row.scales_bytes else "–",
            "–" if row.max_sequences is None else format_count(row.max_sequences),
            _or_dash(row.tpot_s),
            _or_dash(row.output_tokens_per_s),
            _or_dash(row.usd_per_1k_output_tokens),
        )
        for row in answer.formats
    ]
    if not rows:
        return []
    notes = [f"{row.weights_format}: {row.note}" for row in answer.formats if row.note]
    headings = ("format", "native", "weights", "scales", "requests", "TPOT p50", "output", "$/1k tok")
    return [
        *heading("FORMATS", ["each in its fastest layout at this load"]),
        *table(headings, rows, numbers=(2, 3, 4)),
        *(line for note in notes for line in field("", [note])),
    ]


def _layouts(answer: ServingEstimate) -> list[str]:
    rows = [
        (
            f"{row.tp}",
            f"{row.pp}",
            f"{row.ep}",
            f"{row.dp}",
            format_count(row.max_sequences) if row.fits else "does not fit",
            _or_dash(row.ttft_s),
            _or_dash(row.tpot_s),
            _or_dash(row.output_tokens_per_s),
            format_bytes(row.communication_bytes_per_token),
        )
        for row in answer.layouts
    ]
    if not rows:
        return []
    headings = ("TP", "PP", "EP", "DP", "requests", "TTFT p95", "TPOT p50", "output", "sent/token")
    return [*heading("LAYOUTS", ["fastest answer first"]), *table(headings, rows, numbers=(0, 1, 2, 3, 4, 8))]


def _switches(answer: ServingEstimate) -> list[str]:
    rows = [(row.name, format_count(row.max_sequences), f"×{row.ratio:.2f}") for row in answer.switches]
    titled = heading("KV CACHE", ["requests at once with each way of keeping it, switched on by itself"])
    return [*titled, *table(("cache", "requests", ""), rows, numbers=(1, 2))] if rows else []


def _replicas(answer: ServingEstimate) -> list[str]:
    rows = [
        (
            f"{row.replica_count:,}",
            f"{row.accelerator_count:,}",
            ranged(row.requests_per_s),
            ranged(row.output_tokens_per_s),
            percent(row.efficiency_fraction),
        )
        for row in answer.replicas
    ]
    if not rows:
        return []
    last = answer.replicas[-1]
    note = f"{last.replica_count:,} replicas keep {percent(last.efficiency_fraction)} of as many times one"
    headings = ("replicas", "devices", "requests", "output", "efficiency")
    return [*heading("REPLICAS", [note]), *table(headings, rows, numbers=(0, 1, 4))]


def _or_dash(estimate: Estimate | None) -> str:
    return ranged(estimate) if estimate else "–"
