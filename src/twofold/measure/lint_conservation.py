"""Figures of one serving row that say the same thing twice, and figures against the prediction.

Little's law holds for every queue in steady state: requests in flight = rate × time. The rest is arithmetic:
tokens/s per GPU and in all, requests/s × answer, energy × rate = power.
"""

from collections.abc import Sequence

import numpy as np

from twofold.measure.lint_inference import ServingBounds
from twofold.measure.lint_table import RowFinding, Table, first_known
from twofold.measure.lint_units import Slip, disagreements, slips, surprises
from twofold.measure.truth import Row

TTFT, TPOT = ("ttft_mean_ms", "ttft_p50_ms"), ("tpot_mean_ms", "tpot_p50_ms")  # the mean where it is known
# What percentiles, ramps and queues may take from a sum of means where lengths are alike, and where not.
ALIKE, MIXED = 1.25, 2.5


def lint_conservation(table: Table, bounds: ServingBounds, predicted: Sequence[Row]) -> list[RowFinding]:
    """Every finding of rates, sums and units of serving rows."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return [*_told_twice(table, bounds), *_surprises(table, bounds, predicted)]


def _told_twice(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """What is equal by definition, but for rounding; latency against its parts; Little's law.

    Percentiles of parts add up only where requests are alike. Requests in flight = rate × latency: clients
    start late and end early, so fewer may fly, never more.
    """
    outputs, lengths = table["osl_mean"], table["isl_mean"] + table["osl_mean"]
    tokens, tpot_ms, clients = table["output_tok_s"], table.first(*TPOT), table["concurrency"]
    implied = {
        "output rate": table["output_tok_s_per_gpu"] * table["gpus_total"],
        "total rate": tokens * lengths / outputs,
        "request rate": tokens / outputs,
        "user rate": 1e3 / tpot_ms,
        "power": table["joules_per_token"] * tokens / bounds.accelerators,
    }
    figures = table.numbers | {"lengths": lengths}
    found = [each for key, value in implied.items() for each in disagreements(table, key, value, figures)]
    parts_ms = table.first(*TTFT) + np.maximum(outputs - 1, 0) * tpot_ms
    spread = np.where(bounds.exact_lengths, ALIKE, MIXED)
    found += disagreements(table, "latency", parts_ms, figures, limits=(1 / spread, spread))
    rate = first_known(tokens, table["requests_per_s"] * outputs)
    flying = rate / outputs * first_known(parts_ms, table["e2e_p50_ms"]) / 1e3
    limited = np.where(np.isnan(table["request_rate_rps"]), clients, np.nan)  # a rate need not fill the limit
    for key, stated, most in (
        ("flight", flying, clients),
        ("full flight", flying, limited),
        ("decoding", rate * tpot_ms / 1e3, clients),
    ):
        found += disagreements(table, key, most, figures, stated=stated)
    return found + disagreements(table, "served", table["request_rate_rps"], figures)


def _surprises(table: Table, bounds: ServingBounds, predicted: Sequence[Row]) -> list[RowFinding]:
    """The measured columns that the models answer; a median or a mean of TTFT lies in either's range."""
    figures = {
        "answer": bounds.output_tokens,
        "request": bounds.input_tokens + bounds.output_tokens,
        "accelerators": bounds.accelerators,
    }
    # A first token that came within one generation may have waited for another request's place.
    waited = table.first(*TTFT) <= bounds.output_tokens * table.first(*TPOT)
    found = []
    for like in (TTFT[::-1], TTFT):
        times = [
            Slip(np.where(waited & (each.factor > 1), np.nan, each.factor), each.cause)
            for each in slips("time in ms", like[0], figures)
        ]
        found += surprises(table, predicted, like, table[like[0]], "ms", times)
    for column, unit, groups in (
        ("tpot_p50_ms", "ms", "time in ms;time of an answer"),
        ("tpot_mean_ms", "ms", "time in ms;time of an answer"),
        ("output_tok_s", "tokens/s", "served tokens"),
    ):
        possible = slips(groups, column, figures)
        found += surprises(table, predicted, (column,), table[column], unit, possible)
    return found
