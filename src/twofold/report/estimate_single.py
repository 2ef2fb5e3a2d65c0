"""The screens of single questions: a collective, a fleet's FLOPs, a roofline drawn as text."""

from math import floor, log10

from twofold.answer import CollectiveEstimate, ComputeEstimate, RooflineEstimate
from twofold.core import (
    exact,
    format_bytes,
    format_count,
    format_seconds,
    format_si,
    format_usd,
    format_usd_per_h,
)
from twofold.report.estimate_train import note_lines
from twofold.report.figures import hours_unit, percent, ranged, watt_hours
from twofold.report.lines import DOT, both_ends, field, table
from twofold.report.training import machine_text, price_pieces

PLOT_ROWS = 12
AXIS_WIDTH = 12  # of the labels left of the plot


def collective_lines(answer: CollectiveEstimate) -> list[str]:
    """Time on an idle network beside the ring formula's, and the tail that jitter makes."""
    ring = f"{answer.formula} = {format_seconds(answer.ring_s)}"
    tail = [f"{name} {ranged(value)}" for name, value in answer.tail_s.items()]
    return [
        *both_ends(
            f"{answer.operation} of {format_bytes(answer.payload_bytes)} among {answer.rank_count:,} ranks",
            f"{machine_text(answer.machine)}{DOT}{answer.machine.fabric}",
        ),
        *field("idle", [ranged(answer.idle_s), f"{format_si(answer.bus_bytes_per_s, 'B/s')} on each link"]),
        *field("ring", [ring, f"idle takes {_signed(answer.ring_difference_fraction)} against it"]),
        *field("jitter", [f"{percent(answer.jitter_fraction)} of one rank, all wait for the slowest", *tail]),
        *note_lines(answer.warnings),
    ]


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.2g} %" if abs(fraction) >= 5e-4 else "0.0 %"


def compute_lines(answer: ComputeEstimate) -> list[str]:
    """FLOPs, accelerator-hours and the price that a spend allows."""
    work = [f"{answer.flops:.3g} FLOP"]
    if answer.tokens:
        work.append(f"trains {answer.model} on {format_si(answer.tokens, 'tok')}")
    money = []
    if answer.usd_per_accelerator_h is not None and answer.spend_usd is not None:
        money.append(
            f"{format_usd_per_h(answer.usd_per_accelerator_h)} each meets {format_usd(answer.spend_usd)}"
        )
    money.append(f"at the usual price {ranged(answer.cost_usd)}" if answer.cost_usd else "no price")
    peak = f"{format_si(answer.peak_flops_per_s, 'FLOP/s')} peak each"
    unit = hours_unit(answer.machine.accelerator)
    return [
        *both_ends(f"{machine_text(answer.machine)} for {format_seconds(answer.duration_s)}", peak),
        *field("work", [*work, f"at an MFU of {percent(answer.mfu_fraction)}"]),
        *field("devices", [f"{answer.machine.accelerator_count:,}", format_si(answer.accelerator_h, unit)]),
        *field("money", money),
        *field("price", price_pieces(answer.machine.price)),
        *field("energy", [f"{watt_hours(exact(answer.energy_j, 'J'))}, accelerators at their power limit"]),
        *note_lines(answer.warnings),
    ]


def roofline_lines(answer: RooflineEstimate, width: int) -> list[str]:
    """Ridges, the points of training, prefill and decode, and both drawn on logarithmic axes."""
    peak, rate = format_si(answer.peak_flops_per_s, "FLOP/s"), format_si(answer.memory_bytes_per_s, "B/s")
    ridges = [f"{name} {ridge:,.0f}" for name, ridge in answer.ridges.items()]
    rows = [
        (
            chr(ord("a") + at),
            point.name,
            f"{point.flops_per_byte:,.1f}",
            format_si(point.flops_per_s, "FLOP/s"),
            percent(point.flops_per_s / answer.peak_flops_per_s),
            point.bound,
        )
        for at, point in enumerate(answer.points)
    ]
    headings = ("", "work", "FLOP/B", "at most", "of peak", "bound by")
    return [
        *both_ends(
            f"{answer.model} in {answer.weights_format}", f"{answer.accelerator}{DOT}{peak}{DOT}{rate}"
        ),
        *field("ridge", [f"{answer.ridge_flops_per_byte:,.0f} FLOP/B: above it compute binds"]),
        *field("", [f"by format: {ridges[0]}", *ridges[1:], "FLOP/B"]),
        "",
        *plot(answer, width),
        "",
        *table(headings, rows, numbers=(2, 3, 4)),
    ]


def plot(answer: RooflineEstimate, width: int) -> list[str]:
    """The roof as `─` and `╱`, the points by their letters, the ridge marked below."""
    columns = width - AXIS_WIDTH - 4
    intensities = [point.flops_per_byte for point in answer.points]
    left, right = floor(log10(min(intensities))), log10(max(*intensities, answer.ridge_flops_per_byte)) + 0.2
    top = log10(answer.peak_flops_per_s)
    bottom = log10(10.0**left * answer.memory_bytes_per_s)

    def column(intensity: float) -> int:
        return round((log10(intensity) - left) / (right - left) * (columns - 1))

    def row(flops_per_s: float) -> int:
        return PLOT_ROWS - 1 - round((log10(flops_per_s) - bottom) / (top - bottom) * (PLOT_ROWS - 1))

    grid = [[" "] * columns for _ in range(PLOT_ROWS)]
    for at in range(columns):
        intensity = 10.0 ** (left + at / (columns - 1) * (right - left))
        rises = intensity < answer.ridge_flops_per_byte
        roof = min(answer.peak_flops_per_s, intensity * answer.memory_bytes_per_s)
        grid[row(roof)][at] = "╱" if rises else "─"
    for at, point in enumerate(answer.points):
        # Points that would hide one another stand side by side.
        place = next(
            (
                c
                for c in range(column(point.flops_per_byte), columns)
                if not grid[row(point.flops_per_s)][c].isalpha()
            ),
            columns - 1,
        )
        grid[row(point.flops_per_s)][place] = chr(ord("a") + at)
    labels = {
        0: format_si(answer.peak_flops_per_s, "FLOP/s"),
        PLOT_ROWS - 1: format_si(10.0**bottom, "FLOP/s"),
    }
    lines = [
        f"{labels.get(at, ''):>{AXIS_WIDTH}} │{''.join(cells).rstrip()}" for at, cells in enumerate(grid)
    ]
    ridge = column(answer.ridge_flops_per_byte)
    axis = "".join("┴" if at == ridge else "─" for at in range(columns))
    mark = f"{answer.ridge_flops_per_byte:,.0f} FLOP/B"
    ends = f"{format_count(10.0**left)}".ljust(max(ridge - len(mark) // 2, 4)) + mark
    return [*lines, f"{'':>{AXIS_WIDTH}} └{axis}", f"{'':>{AXIS_WIDTH}}  {ends}"]
