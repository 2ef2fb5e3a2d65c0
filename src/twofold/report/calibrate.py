"""The screen of `calibrate`: factors, errors before and after, and rows that were not used."""

from math import exp

from twofold.contracts.rows import CalibratedStack, Calibration
from twofold.report.lines import both_ends, heading, table

LINES_OF_REFUSALS = 20
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


def calibration_lines(calibration: Calibration) -> list[str]:
    """The whole screen, at most 100 columns wide."""
    lines: list[str] = []
    for stack in calibration.stacks:
        lines += [*_stack_lines(stack, calibration), ""]
    shown = calibration.refused[:LINES_OF_REFUSALS]
    for row in shown:
        lines += heading("REFUSED", [f"line {row.line}: {row.reason}"])
    more = len(calibration.refused) - len(shown)
    lines += heading("REFUSED", [f"{more:,} further rows"]) if more else []
    return lines if shown else lines[:-1]


def stack_name(stack: CalibratedStack) -> str:
    """`H100-SXM5-80GB under vllm 0.12+, inference`."""
    return f"{stack.accelerator} under {f'{stack.software} {stack.era}'.strip()}, {stack.half}"


def _stack_lines(stack: CalibratedStack, calibration: Calibration) -> list[str]:
    rows = "1 row" if stack.rows == 1 else f"{stack.rows} rows"
    right = f"{rows} of {calibration.measurements}, {calibration.calibrated_on}"
    factors = [
        (
            each.name,
            f"×{each.value:.2f}",
            f"{each.low:.2f}–{each.high:.2f}",
            f"{each.low_before:.2f}–{each.high_before:.2f}",
            FACTOR_WORDS.get(each.name, ""),
        )
        for each in stack.factors
    ]
    figures = [
        (
            FIGURE_WORDS.get(each.name, each.name),
            f"{each.rows}",
            _percent(each.error_before),
            _percent(each.error_fitted),
            _percent(each.error_after),
            _range(each.range_before_log),
            _range(each.range_after_log),
        )
        for each in stack.figures
    ]
    figure_titles = ("FIGURE", "rows", "before", "fitted", "row left out", "80 % before", "80 % after")
    return [
        *both_ends(stack_name(stack), right),
        *table(("FACTOR", "", "80 % range", "before", ""), factors, numbers=(1,)),
        "",
        *table(figure_titles, figures, numbers=(1, 2, 3, 4)),
    ]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _range(half_log: float) -> str:
    """The ends of a range around ×1."""
    return f"×{exp(-half_log):.2f}–{exp(half_log):.2f}"
