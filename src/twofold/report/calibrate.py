"""The screen of `calibrate`: factors, errors before and after, and rows that were not used."""

from math import exp, log

from twofold.contracts.rows import calibrations
from twofold.report.lines import both_ends, heading, listed, stacked

LINES_OF_REFUSALS = 20
WORSE_RATIO = 1.1  # of an error to that before, from which a fit is told as worse: rows scatter
WIDEST_LOG = log(1e6)  # of a range that is shown by its ends
FACTOR_WORDS = {
    "compute": "FLOP/s that kernels reach",
    "memory_bandwidth": "bytes/s of device memory",
    "link": "bytes/s inside the scale-up domain",
    "fabric": "bytes/s between nodes",
    "host": "speed of launches and scheduling",
    "memory_use": "bytes held beside the states",
    "communication": "speed of collectives",
    "prefill": "speed of steps with prefill",
}
FIGURE_WORDS = {
    "step_time_s": "step time",
    "peak_mem_gib": "peak memory",
    "ttft_mean_ms": "TTFT, mean",
    "ttft_p50_ms": "TTFT, median",
    "tpot_mean_ms": "TPOT, mean",
    "tpot_p50_ms": "TPOT, median",
    "output_tok_s": "output tokens/s",
}


def calibration_lines(calibration: calibrations.Calibration) -> list[str]:
    """The whole screen, at most 100 columns wide."""
    refused = [f"line {row.line}: {row.reason}" for row in calibration.refused]
    if len(refused) > LINES_OF_REFUSALS:
        refused[LINES_OF_REFUSALS:] = [f"{len(refused) - LINES_OF_REFUSALS:,} further rows"]
    stacks = [_stack_lines(stack, calibration) for stack in calibration.stacks]
    return stacked([*stacks, [line for text in refused for line in heading("REFUSED", text)]])


def _stack_lines(stack: calibrations.CalibratedStack, calibration: calibrations.Calibration) -> list[str]:
    rows = "1 row" if stack.rows == 1 else f"{stack.rows} rows"
    factors = listed(
        stack.factors,
        ("FACTOR", lambda each: each.name),
        (">", lambda each: f"×{each.value:.2f}"),
        ("80 % range", lambda each: f"{each.low:.2f}–{each.high:.2f}"),
        ("before", lambda each: f"{each.low_before:.2f}–{each.high_before:.2f}"),
        ("", lambda each: FACTOR_WORDS.get(each.name, "")),
    )
    figures = listed(
        stack.figures,
        ("FIGURE", lambda each: FIGURE_WORDS.get(each.name, each.name)),
        (">rows", lambda each: f"{each.rows}"),
        (">before", lambda each: _percent(each.error_before)),
        (">fitted", lambda each: _percent(each.error_fitted)),
        (">row left out", lambda each: _percent(each.error_after)),
        ("80 % before", lambda each: _range(each.range_before_log)),
        ("80 % after", lambda each: _range(each.range_after_log)),
    )
    # `H100-SXM5-80GB under vllm 0.12+, inference`
    stack_name = f"{stack.accelerator} under {f'{stack.software} {stack.era}'.strip()}, {stack.half}"
    right = f"{rows} of {calibration.measurements}, {calibration.calibrated_on}"
    notes = [line for each in stack.figures for line in _worse(each)]
    return [*both_ends(stack_name, right), *factors, "", *figures, *notes]


def _worse(figure: calibrations.CalibratedFigure) -> list[str]:
    """That a fit is worse than none, and by which rows."""
    if figure.error_after <= WORSE_RATIO * figure.error_before or not figure.worse_lines:
        return []
    name = FIGURE_WORDS.get(figure.name, figure.name)
    lines = ", ".join(map(str, figure.worse_lines))
    those = f"{'lines' if len(figure.worse_lines) > 1 else 'line'} {lines}"
    return heading(
        "NOTE",
        f"{name}: rows left out are predicted worse than before, {_percent(figure.error_before)} → "
        f"{_percent(figure.error_after)}, {those} of the file most. Do rows differ in what they do not "
        "say, or did some measure something else than the machine?",
    )


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _range(half_log: float) -> str:
    """The ends of a range around ×1."""
    return f"×{exp(-half_log):.2f}–{exp(half_log):.2f}" if half_log < WIDEST_LOG else f"over ×{1e6:,.0f}"
