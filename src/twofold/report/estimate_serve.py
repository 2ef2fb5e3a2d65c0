"""The screen of `estimate serve`: a model under a load, its memory, latency, limits and tables."""

from twofold.answer.serve_answer import ServingEstimate
from twofold.contracts.goals import METRICS, QUANTILES
from twofold.core.display import format_bytes, format_count, format_memory, format_seconds
from twofold.core.estimate import Estimate
from twofold.report.figures import percent, ranged, shares
from twofold.report.lines import DOT, both_ends, field, listed, stacked, table, titled
from twofold.report.training import (
    bound_pieces,
    machine_text,
    memory_texts,
    model_text,
    note_lines,
    price_pieces,
)


def serve_lines(answer: ServingEstimate) -> list[str]:
    """The answer in at most 100 columns."""
    model = model_text(answer.model, answer.parameters)
    tokens = f"{answer.input_tokens:,.0f} tok in, {answer.output_tokens:,.0f} tok out"
    scales = f", {format_bytes(answer.scales_bytes)} of it scales" if answer.scales_bytes else ""
    parts = memory_texts(answer.memory_parts)  # of one device, adding up to all it has
    each, clients = answer.kv_bytes_per_sequence, answer.client_count
    layouts = listed(
        answer.layouts,
        (">TP", lambda row: f"{row.tp}"),
        (">PP", lambda row: f"{row.pp}"),
        (">EP", lambda row: f"{row.ep}"),
        (">DP", lambda row: f"{row.dp}"),
        (">requests", lambda row: format_count(row.max_sequences) if row.fits else "does not fit"),
        ("TTFT p95", lambda row: ranged(row.ttft_s)),
        ("TPOT p50", lambda row: ranged(row.tpot_s)),
        ("output", lambda row: ranged(row.output_tokens_per_s)),
        (">sent/token", lambda row: format_bytes(row.communication_bytes_per_token)),
    )
    rows = [(row.name, format_count(row.max_sequences), f"×{row.ratio:.2f}") for row in answer.switches]
    switches = table(("cache", "requests", ""), rows, numbers=(1, 2))
    blocks = [
        [
            *both_ends(f"{model}{DOT}serving", machine_text(answer.machine)),
            *field(
                "replica",
                *answer.replica.text.split(DOT),
                f"maths in {answer.compute_format}",
                answer.replica.engine or "",
            ),
            *field("load", answer.load, tokens),
            *field("memory", f"{format_memory(answer.memory_capacity_bytes)} per device", *parts),
            *field("", f"weights of the whole model {format_bytes(answer.weights_bytes)}{scales}"),
            *field(
                "KV cache",
                f"{answer.kv_bytes_per_token:,.0f} B per token",
                f"{format_bytes(each)} per request",
                f"{format_bytes(clients * each)} for all {clients:,}" if clients else "",
                f"room for {ranged(answer.max_sequences, 'requests')} at once",
                f"{percent(answer.kv_fraction)} full at this load",
                f"a full replica is limited by {answer.batch_limit}",
            ),
        ],
        _latency(answer),
        _rates(answer),
        _formats(answer),
        titled("LAYOUTS", "fastest answer first", layouts),
        titled("KV CACHE", "requests at once with each way of keeping it, switched on by itself", switches),
        _replicas(answer),
        note_lines(answer.warnings),
    ]
    return stacked(blocks)


def _latency(answer: ServingEstimate) -> list[str]:
    rows = [
        (name, *(ranged(answer.percentiles[f"{metric}_{q}"]) for q in QUANTILES))
        for metric, name in {**METRICS, "e2e": "end to end"}.items()
    ]
    parts = [f"{part.name} {format_seconds(part.value.value)}" for part in answer.latency_budget]
    total_s = sum(part.value.value for part in answer.latency_budget)
    return [
        *table(("latency", *QUANTILES), rows),
        *field("budget", *parts, f"= {format_seconds(total_s)} on average"),
        *field("a step", ranged(answer.step_s), f"{answer.batch_sequences:,.0f} requests decode together"),
        *field("", *shares([(part.name, part.value.value) for part in answer.step_parts])),
    ]


def _rates(answer: ServingEstimate) -> list[str]:
    cost, price = answer.usd_per_1k_output_tokens, answer.machine.price
    each, exchanged = answer.communication_bytes_per_token, answer.all_to_all_bytes_per_token
    starting = [f"{part.name} {ranged(part.value)}" for part in answer.cold_start_parts]
    return [
        *field(
            "output",
            f"{ranged(answer.output_tokens_per_s)}",
            f"{ranged(answer.output_tokens_per_s_per_accelerator)} per device",
            f"{ranged(answer.requests_per_s)}",
        ),
        *field("", f"{ranged(answer.output_tokens_per_j, 'tok/s per W')} at {ranged(answer.power_w)}"),
        *field("cost", f"{ranged(cost.times(1e3))} per million output tokens" if cost else "no price"),
        *field("", *(price_pieces(price) if price else [])),
        *field("cold start", ranged(answer.cold_start_s), *starting),
        *field(
            "network",
            f"each device sends {format_bytes(each)} per token" if each else "nothing leaves a device",
            f"all-to-all between experts {format_bytes(exchanged)} per token through all layers"
            if exchanged
            else "",
        ),
        *field("bound by", *bound_pieces(answer.bounds)),
    ]


def _formats(answer: ServingEstimate) -> list[str]:
    lines = listed(
        answer.formats,
        ("format", lambda row: row.weights_format),
        ("native", lambda row: "yes" if row.supported else "no"),
        (">weights", lambda row: format_bytes(row.weights_bytes)),
        (">scales", lambda row: format_bytes(row.scales_bytes) if row.scales_bytes else "–"),
        (">requests", lambda row: "–" if row.max_sequences is None else format_count(row.max_sequences)),
        ("TPOT p50", lambda row: ranged(row.tpot_s)),
        ("output", lambda row: ranged(row.output_tokens_per_s)),
        ("$/Mtok out", lambda row: _per_mtok(row.usd_per_1k_output_tokens)),
    )
    notes = [f"{row.weights_format}: {row.note}" for row in answer.formats if row.note]
    lines += [line for note in notes for line in field("", note)]
    return titled("FORMATS", "each in its fastest layout at this load", lines)


def _replicas(answer: ServingEstimate) -> list[str]:
    if not answer.replicas:
        return []
    lines = listed(
        answer.replicas,
        (">replicas", lambda row: f"{row.replica_count:,}"),
        (">devices", lambda row: f"{row.accelerator_count:,}"),
        ("requests", lambda row: ranged(row.requests_per_s)),
        ("output", lambda row: ranged(row.output_tokens_per_s)),
        (">efficiency", lambda row: percent(row.efficiency_fraction)),
    )
    last = answer.replicas[-1]
    note = f"{last.replica_count:,} replicas keep {percent(last.efficiency_fraction)} of as many times one"
    return titled("REPLICAS", note, lines)


def _per_mtok(usd_per_1k: Estimate | None) -> str:
    return ranged(usd_per_1k.times(1e3) if usd_per_1k else None)
