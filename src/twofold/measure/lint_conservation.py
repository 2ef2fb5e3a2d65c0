"""Figures of one serving row that say the same thing twice, and figures against the prediction.

Little's law holds for every queue in steady state: requests in flight = rate × time. The rest is arithmetic:
tokens/s per GPU and in all, requests/s × answer, energy × rate = power.
"""

from collections.abc import Sequence

import numpy as np

from twofold.measure.lint_inference import ServingBounds
from twofold.measure.lint_table import RowFinding, Table, Values
from twofold.measure.lint_units import Agreement, Prediction, Slip, disagreements, surprises, time_slips
from twofold.measure.truth import Row, number

TTFT, TPOT = ("ttft_mean_ms", "ttft_p50_ms"), ("tpot_mean_ms", "tpot_p50_ms")  # the mean where it is known
ROUNDING = 1.02
MEDIANS_FOR_MEANS = (
    1.25  # what percentiles, ramps and queues may take from Little's law where lengths are alike
)
MIXED_LENGTHS = 2.5  # and where they are not


def lint_conservation(table: Table, bounds: ServingBounds, predicted: Sequence[Row]) -> list[RowFinding]:
    """Every finding of rates, sums and units of serving rows."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        agreements = [*_arithmetic(table, bounds), _latency(table, bounds), *_little(table), _served(table)]
        predictions = _predictions(table, bounds, predicted)
    return [
        *(finding for agreement in agreements for finding in disagreements(table, agreement)),
        *(finding for prediction in predictions for finding in surprises(table, prediction)),
    ]


def _arithmetic(table: Table, bounds: ServingBounds) -> list[Agreement]:
    """What is equal by definition, but for rounding."""
    gpus, outputs, lengths = table["gpus_total"], table["osl_mean"], table["isl_mean"] + table["osl_mean"]
    output = table["output_tok_s"]
    thousand = (Slip(1e3, "one of them is in thousands"), Slip(1e-3, "one of them is in thousands"))
    hint = "one of these was measured or worked out differently"

    def equal(
        quantity: str, columns: tuple[str, ...], stated: Values, implied: Values, *slips: Slip
    ) -> Agreement:
        sides = (columns[:1], stated), (columns[1:], implied)
        limits = 1 / ROUNDING, ROUNDING
        return Agreement("rate", quantity, *sides, limits, (*slips, *thousand), hint)

    return [
        equal(
            "output tokens/s",
            ("output_tok_s", "output_tok_s_per_gpu", "gpus_total"),
            output,
            table["output_tok_s_per_gpu"] * gpus,
            Slip(1 / gpus, "output_tok_s is the rate per GPU, or output_tok_s_per_gpu that of all GPUs"),
        ),
        equal(
            "total tokens/s",
            ("total_tok_s", "output_tok_s", "isl_mean", "osl_mean"),
            table["total_tok_s"],
            output * lengths / outputs,
            Slip(
                outputs / lengths,
                "the two are the same: output_tok_s is the total, or total_tok_s the output",
            ),
            Slip(1 / gpus, "total_tok_s is the rate per GPU"),
        ),
        equal(
            "requests/s",
            ("requests_per_s", "output_tok_s", "osl_mean"),
            table["requests_per_s"],
            output / outputs,
            Slip(outputs, "requests_per_s counts tokens"),
            Slip(60.0, "requests_per_s is per minute"),
            Slip(gpus, "output_tok_s is the rate per GPU"),
            Slip(1 / gpus, "requests_per_s is the rate per GPU"),
        ),
        equal(
            "tokens/s of a user",
            ("tok_s_per_user", *TPOT),
            table["tok_s_per_user"],
            1e3 / table.first(*TPOT),
            Slip(outputs, "TPOT is the time of the whole answer"),
            Slip(1e3, "TPOT is in microseconds"),
            Slip(1e-3, "TPOT is in seconds"),
        ),
        equal(
            "power in W",
            ("watts_per_gpu", "joules_per_token", "output_tok_s", "gpus_total"),
            table["watts_per_gpu"],
            table["joules_per_token"] * output / bounds.accelerators,
            Slip(gpus, "watts_per_gpu is the power of all GPUs together"),
            Slip(3.6e6, "joules_per_token is in kWh"),
        ),
    ]


HINT = "the run was not steady, the length or the load is another run's, or one figure is a slip"


def _latency(table: Table, bounds: ServingBounds) -> Agreement:
    """The whole latency against its parts; their percentiles add up only where requests are alike."""
    outputs = table["osl_mean"]
    spread = np.where(bounds.exact_lengths, MEDIANS_FOR_MEANS, MIXED_LENGTHS)
    slips = (
        *time_slips("e2e_p50_ms", "ms"),
        Slip(1e3, "ttft or tpot is in seconds"),
        Slip(1e-3, "ttft and tpot are in microseconds"),
        Slip(1 / outputs, "TPOT is the time of the whole answer"),
    )
    sides = (("e2e_p50_ms",), table["e2e_p50_ms"]), ((*TTFT, *TPOT, "osl_mean"), _parts_ms(table))
    limits = 1 / spread, spread
    return Agreement("latency", "end to end latency in ms", *sides, limits, slips, HINT, MIXED_LENGTHS)


def _parts_ms(table: Table) -> Values:
    """Time to the first token and of every token behind it."""
    return table.first(*TTFT) + np.maximum(table["osl_mean"] - 1, 0) * table.first(*TPOT)


def _little(table: Table) -> list[Agreement]:
    """Requests in flight = rate × latency. Clients start late and end early: fewer may fly, never more."""
    gpus, outputs, clients = table["gpus_total"], table["osl_mean"], table["concurrency"]
    parts_ms, tokens = _parts_ms(table), table["output_tok_s"]
    rate = np.where(np.isnan(tokens), table["requests_per_s"] * outputs, tokens)
    flying = rate / outputs * np.where(np.isnan(parts_ms), table["e2e_p50_ms"], parts_ms) / 1e3
    decoding = rate * table.first(*TPOT) / 1e3
    limited = np.where(np.isnan(table["request_rate_rps"]), clients, np.nan)  # a rate need not fill the limit
    slips = (
        Slip(1e3, "a time is in microseconds"),
        Slip(1e-3, "a time is in seconds"),
        Slip(gpus, "concurrency is counted per GPU"),
        Slip(1 / gpus, "output_tok_s is the rate per GPU"),
        Slip((table["isl_mean"] + outputs) / outputs, "output_tok_s holds the input tokens"),
        Slip(outputs, "TPOT is the time of a whole answer, or requests were multiplied by tokens twice"),
        Slip(1 / outputs, "output_tok_s counts requests"),
    )
    flying_by = ("output_tok_s", "requests_per_s", *TTFT, *TPOT, "e2e_p50_ms", "osl_mean"), flying
    decoding_by = ("output_tok_s", "requests_per_s", *TPOT), decoding
    all_clients, limit = (("concurrency",), clients), (("concurrency",), limited)
    flight, decode = (
        "requests in flight (rate × latency)",
        "sequences that decode at once (output rate × TPOT)",
    )
    most = 0.0, MEDIANS_FOR_MEANS
    return [
        Agreement("conservation", flight, flying_by, all_clients, most, slips, HINT),
        Agreement("conservation", flight, flying_by, limit, (0.5, np.inf), slips, HINT, np.inf),
        Agreement("conservation", decode, decoding_by, all_clients, most, slips, HINT),
    ]


def _served(table: Table) -> Agreement:
    """Requests served against requests offered."""
    slips = (Slip(60.0, "requests_per_s is per minute"), Slip(1 / 60, "request_rate_rps is per minute"))
    served, offered = (((name,), table[name]) for name in ("requests_per_s", "request_rate_rps"))
    hint = "more was served than was offered"
    return Agreement("conservation", "requests/s served", served, offered, (0.0, 1.1), slips, hint)


def _predictions(table: Table, bounds: ServingBounds, predicted: Sequence[Row]) -> list[Prediction]:
    """The measured columns that the models answer; a median or a mean of TTFT lies in either's range."""
    lengths, outputs = bounds.input_tokens + bounds.output_tokens, bounds.output_tokens
    # A first token that came within one generation may have waited for another request's place.
    waited = table.first(*TTFT) <= bounds.output_tokens * table.first(*TPOT)

    def times(column: str) -> tuple[Slip, ...]:
        slips = time_slips(column, "ms")
        if column not in TTFT:
            return slips
        return tuple(
            Slip(np.where(waited & (each.factor > 1), np.nan, each.factor), each.cause) for each in slips
        )

    found = [
        _prediction(table, predicted, column, like, "ms", times(column) + extra)
        for column, like, extra in (
            ("ttft_p50_ms", ("ttft_p50_ms", "ttft_mean_ms"), ()),
            ("ttft_mean_ms", ("ttft_mean_ms", "ttft_p50_ms"), ()),
            ("tpot_p50_ms", ("tpot_p50_ms",), (Slip(outputs, "tpot_p50_ms is the time of a whole answer"),)),
            (
                "tpot_mean_ms",
                ("tpot_mean_ms",),
                (Slip(outputs, "tpot_mean_ms is the time of a whole answer"),),
            ),
        )
    ]
    slips = (
        Slip(1e3, "output_tok_s is multiplied by 1000"),
        Slip(1e-3, "output_tok_s is in thousands"),
        Slip(1 / bounds.accelerators, "output_tok_s is the rate per GPU"),
        Slip(bounds.accelerators, "output_tok_s was multiplied by the GPU count twice"),
        Slip(lengths / outputs, "output_tok_s holds the input tokens"),
        Slip(1 / outputs, "output_tok_s counts requests"),
    )
    return [*found, _prediction(table, predicted, "output_tok_s", ("output_tok_s",), "tokens/s", slips)]


def _prediction(
    table: Table, rows: Sequence[Row], column: str, like: tuple[str, ...], unit: str, slips: Sequence[Slip]
) -> Prediction:
    """The prediction of the first of `like`, its range wide enough for all of them."""

    def predicted(name: str, end: str) -> Values:
        return np.array([number(row, f"pred_{name}{end}") or np.nan for row in rows], float)

    low = np.fmin.reduce([predicted(name, "_low") for name in like])
    high = np.fmax.reduce([predicted(name, "_high") for name in like])
    return Prediction(column, table[column], predicted(like[0], ""), (low, high), unit, slips)
