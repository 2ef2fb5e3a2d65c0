"""The screen of `calibrate`: factors, errors before and after, and rows that were not used."""

from math import exp, log

from twofold.contracts.rows import calibrations
from twofold.report.lines import both_ends, heading, listed, stacked

LINES_OF_REFUSALS = 20
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
    return [*both_ends(stack_name, right), *factors, "", *figures]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _range(half_log: float) -> str:
    """The ends of a range around ×1."""
    return f"×{exp(-half_log):.2f}–{exp(half_log):.2f}" if half_log < WIDEST_LOG else f"over ×{1e6:,.0f}"
