"""The screens of `estimate`: a training step, a collective, a fleet's FLOPs, a roofline drawn as text."""

from dataclasses import replace
from math import floor, log10
from string import ascii_lowercase as LETTERS

from twofold.answer import quick_single
from twofold.answer.serve_answer import ServingEstimate
from twofold.answer.training_estimate import TrainingEstimate
from twofold.answer.training_run import RunEstimate
from twofold.core.display import (
    format_bytes,
    format_count,
    format_memory,
    format_seconds,
    format_si,
    format_usd,
)
from twofold.core.estimate import exact
from twofold.report.estimate_serve import serve_lines
from twofold.report.figures import hours_unit, percent, ranged, shares, summed, watt_hours
from twofold.report.lines import DOT, WIDTH, both_ends, field, listed, stacked
from twofold.report.training import (
    bound_pieces,
    cost_text,
    machine_text,
    memory_lines,
    model_text,
    note_lines,
    price_pieces,
    wall_text,
)

KIND = {"pretrain": "training", "finetune": "full fine-tune", "lora": "LoRA"}
PLOT_ROWS = 12
MEASURED = "•"
AXIS_WIDTH = 12  # of the labels left of the plot
Single = quick_single.CollectiveEstimate | quick_single.ComputeEstimate | quick_single.RooflineEstimate


def estimate_lines(answer: TrainingEstimate | ServingEstimate | Single) -> list[str]:
    """The answer to one question, in at most 100 columns."""
    match answer:
        case TrainingEstimate():
            return train_lines(answer)
        case ServingEstimate():
            return serve_lines(answer)
        case quick_single.CollectiveEstimate():
            return collective_lines(answer)
        case quick_single.ComputeEstimate():
            return compute_lines(answer)
        case _:
            return roofline_lines(answer)


def train_lines(answer: TrainingEstimate) -> list[str]:
    """The answer in at most 100 columns."""
    machines = f"{machine_text(answer.machine)}{DOT}{answer.machine.fabric}"
    layouts = listed(
        list(enumerate(answer.layouts, 1)),
        (">", lambda row: f"{row[0]}"),
        ("layout, fastest first", lambda row: row[1].text),
        ("step", lambda row: ranged(row[1].step_s)),
        (">memory", lambda row: format_memory(row[1].memory_bytes.value)),
        (">exposed", lambda row: percent(row[1].communication_exposed_fraction)),
    )
    blocks = [
        [
            *both_ends(f"{model_text(answer.model, answer.parameters)}{DOT}{KIND[answer.kind]}", machines),
            *field("layout", *answer.layout.text.split(DOT), answer.precision, answer.framework),
            *_step(answer),
            *memory_lines(answer),
            *field("formats", *[f"{p.name} {format_memory(p.value.value)}" for p in answer.memory_by_format]),
            *field("bound by", *bound_pieces(answer.bounds)),
            *field("tried", f"{answer.valid_layouts:,} valid layouts", *_rejected(answer)),
        ],
        layouts if answer.layouts else [],
        _run(answer.run, answer) if answer.run else [],
        note_lines(answer.warnings),
    ]
    return stacked(blocks)


def size_text(value_bytes: float) -> str:
    """Three digits, as sizes of checkpoints are compared: `5.68 TB`."""
    scale, unit = (1e12, "TB") if value_bytes >= 1e12 else (1e9, "GB") if value_bytes >= 1e9 else (1e6, "MB")
    return f"{value_bytes / scale:.3g} {unit}"


def _step(answer: TrainingEstimate) -> list[str]:
    tokens = answer.sequence_tokens * answer.batch_sequences
    each = f"{answer.batch_sequences:,} seq × {answer.sequence_tokens:,} tok = {format_si(tokens, 'tok')}"
    more = answer.hardware_flops / answer.model_flops - 1
    flops = f"{format_si(answer.model_flops, 'FLOP')} of the model"
    again = any(part.name == "recompute" and part.value.value > 0 for part in answer.step_parts)
    least = "no product computed twice" if again else "nothing recomputed"  # norms and activations have none
    return [
        *field("step", f"{ranged(answer.step_s)} for {each}", f"MFU {ranged(answer.mfu_fraction)}"),
        *field("", *shares([(part.name, part.value.value) for part in answer.step_parts])),
        *field(
            "",
            f"exposed communication {ranged(answer.communication_exposed_s)}, "
            f"{percent(answer.communication_exposed_fraction)} of the step",
            f"{ranged(answer.tokens_per_s)}",
        ),
        *field("work", flops, f"recomputation adds {percent(more)}" if more else least),
    ]


def _rejected(answer: TrainingEstimate) -> list[str]:
    counts = {count.reason: count.count for count in answer.rejected}
    kept = [
        f"{counts[reason]:,} {text}"
        for reason, text in (("memory", "exceed memory"), ("slower", "slower"))
        if reason in counts
    ]
    broken = sum(count for reason, count in counts.items() if reason not in ("memory", "slower"))
    return [*kept, f"{broken:,} combinations do not divide"] if broken else kept


def _run(run: RunEstimate, answer: TrainingEstimate) -> list[str]:
    saved = run.checkpoints
    # A model stands behind an estimate: all of its sizes are known.
    assert run.tokens and run.flops and run.data_bytes_per_s is not None
    assert saved.size_bytes is not None and saved.write_bytes_per_s is not None
    assert saved.storage_bytes_per_s is not None
    # Of the run, and of each cause that hours are kept for: they add up.
    spent_h = replace(run.accelerator_h, unit=hours_unit(answer.machine.accelerator))
    hours = f"{ranged(spent_h)}{DOT}no headroom asked"
    if run.headroom:
        hours = summed([(part.name, part.value.value) for part in run.headroom], spent_h)
    return [
        *both_ends(f"RUN       {format_si(run.tokens, 'tok')}, {run.steps:,} steps", cost_text(run.cost_usd)),
        *field("time", wall_text(run), f"goodput {ranged(run.goodput_fraction)}"),
        *field("devices", hours),
        *field("work", f"{run.flops:.3g} FLOP of the model"),
        *field("failures", f"{ranged(run.interruptions, 'interruptions')}"),
        *field(
            "checkpoint",
            f"{size_text(saved.size_bytes)} every {ranged(saved.interval_s)}",
            f"{format_si(saved.write_bytes_per_s, 'B/s')} to write it in {format_seconds(saved.write_s)}",
            f"training stops {format_seconds(saved.pause_s or saved.write_s)}",
        ),
        *field(
            "storage",
            f"{format_si(saved.storage_bytes_per_s, 'B/s')}, set by the {saved.storage_term}",
            f"data {format_bytes(run.data_bytes_per_s)}/s",
        ),
        *field("price", *price_pieces(answer.machine.price)),
        *field("energy", f"accelerators draw {watt_hours(run.energy_j)}"),
    ]


def collective_lines(answer: quick_single.CollectiveEstimate) -> list[str]:
    """Time on an idle network beside the ring formula's, and the tail that jitter makes."""
    what = f"{answer.operation} of {format_bytes(answer.payload_bytes)} among {answer.rank_count:,} ranks"
    ring = f"{answer.formula} = {format_seconds(answer.ring_s)}"
    against = answer.ring_difference_fraction
    signed = f"{100 * against:+.2g} %" if abs(against) >= 5e-4 else "0.0 %"
    tail = [f"{name} {ranged(value)}" for name, value in answer.tail_s.items()]
    return [
        *both_ends(what, f"{machine_text(answer.machine)}{DOT}{answer.machine.fabric}"),
        *field("idle", ranged(answer.idle_s), f"{format_si(answer.bus_bytes_per_s, 'B/s')} on each link"),
        *field("ring", ring, f"idle takes {signed} against it"),
        *field("jitter", f"{percent(answer.jitter_fraction)} of one rank, all wait for the slowest", *tail),
        *note_lines(answer.warnings),
    ]


def compute_lines(answer: quick_single.ComputeEstimate) -> list[str]:
    """FLOPs, accelerator-hours and the price that a spend allows."""
    trains = f"trains {answer.model} on {format_si(answer.tokens, 'tok')}" if answer.tokens else ""
    spend = ""
    if answer.usd_per_accelerator_h is not None and answer.spend_usd is not None:
        spend = f"${answer.usd_per_accelerator_h:,.2f}/h each meets {format_usd(answer.spend_usd)}"
    usual = f"at the usual price {ranged(answer.cost_usd)}" if answer.cost_usd else "no price"
    peak = f"{format_si(answer.peak_flops_per_s, 'FLOP/s')} peak each"
    unit = hours_unit(answer.machine.accelerator)
    return [
        *both_ends(f"{machine_text(answer.machine)} for {format_seconds(answer.duration_s)}", peak),
        *field("work", f"{answer.flops:.3g} FLOP", trains, f"at an MFU of {percent(answer.mfu_fraction)}"),
        *field("devices", f"{answer.machine.accelerator_count:,}", format_si(answer.accelerator_h, unit)),
        *field("money", spend, usual),
        *field("price", *price_pieces(answer.machine.price)),
        *field("energy", f"{watt_hours(exact(answer.energy_j, 'J'))}, accelerators at their power limit"),
        *note_lines(answer.warnings),
    ]


def roofline_lines(answer: quick_single.RooflineEstimate) -> list[str]:
    """Ridges, the points of training, prefill and decode, and both drawn on logarithmic axes."""
    peak, rate = format_si(answer.peak_flops_per_s, "FLOP/s"), format_si(answer.memory_bytes_per_s, "B/s")
    ridges = [f"{name} {ridge:,.0f}" for name, ridge in answer.ridges.items()]
    device = f"{answer.accelerator}{DOT}{peak}{DOT}{rate}"
    points = listed(
        list(zip(LETTERS, answer.points, strict=False)),
        ("", lambda row: row[0]),
        ("work", lambda row: row[1].name),
        (">FLOP/B", lambda row: f"{row[1].flops_per_byte:,.1f}"),
        (">at most", lambda row: format_si(row[1].flops_per_s, "FLOP/s")),
        (">of peak", lambda row: percent(row[1].flops_per_s / answer.peak_flops_per_s)),
        ("bound by", lambda row: row[1].bound),
    )
    measured = listed(
        [(MEASURED, point) for point in answer.measured],
        ("", lambda row: row[0]),
        ("measured product", lambda row: row[1].name),
        (">FLOP/B", lambda row: f"{row[1].flops_per_byte:,.1f}"),
        (">reached", lambda row: format_si(row[1].flops_per_s, "FLOP/s")),
        (">of peak", lambda row: percent(row[1].flops_per_s / answer.peak_flops_per_s)),
        (">of the roof", lambda row: percent(row[1].roof_fraction)),
    )
    sources = sorted({point.source for point in answer.measured})
    return [
        *both_ends(f"{answer.model} in {answer.weights_format}", device),
        *field("ridge", f"{answer.ridge_flops_per_byte:,.0f} FLOP/B: above it compute binds"),
        *field("", f"by format: {ridges[0]}", *ridges[1:], "FLOP/B"),
        "",
        *plot(answer, WIDTH),
        "",
        *points,
        "",
        *(measured if sources else field("measured", "nothing of this part in this format")),
        *(field("source", *sources) if sources else []),
    ]


def plot(answer: quick_single.RooflineEstimate, width: int) -> list[str]:
    """The roof as `─` and `╱`, what the model's work may reach at most by letters on it, measured products as
    dots under it, the ridge marked below."""
    columns = width - AXIS_WIDTH - 4
    intensities = [point.flops_per_byte for point in answer.points]
    intensities += [point.flops_per_byte for point in answer.measured]
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
    for seen in answer.measured:
        grid[min(row(seen.flops_per_s), PLOT_ROWS - 1)][column(seen.flops_per_byte)] = MEASURED
    for letter, point in zip(LETTERS, answer.points, strict=False):
        # Points that would hide one another stand side by side.
        cells, first = grid[row(point.flops_per_s)], column(point.flops_per_byte)
        place = next((c for c in range(first, columns) if not cells[c].isalpha()), columns - 1)
        cells[place] = letter
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
