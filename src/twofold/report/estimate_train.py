"""The screen of `estimate train`: the step of a job on given machines, its memory, layouts and run."""

from twofold.answer import RunEstimate, TrainingEstimate
from twofold.core import format_bytes, format_memory, format_seconds, format_si
from twofold.report.figures import hours_unit, percent, ranged, shares, summed, watt_hours
from twofold.report.lines import DOT, both_ends, field, heading, table
from twofold.report.training import bound_pieces, cost_text, machine_text, memory_lines, price_pieces

KIND = {"pretrain": "training", "finetune": "full fine-tune", "lora": "LoRA"}


def train_lines(answer: TrainingEstimate) -> list[str]:
    """The answer in at most 100 columns."""
    machines = f"{machine_text(answer.machine)}{DOT}{answer.machine.fabric}"
    blocks = [
        [
            *both_ends(f"{model_text(answer.model, answer.parameters)}{DOT}{KIND[answer.kind]}", machines),
            *field("layout", [*answer.layout.text.split(DOT), answer.precision, answer.framework]),
            *_step(answer),
            *memory_lines(answer.memory_bytes, answer.memory_parts, answer.memory_capacity_bytes),
            *field("formats", [f"{p.name} {format_memory(p.value.value)}" for p in answer.memory_by_format]),
            *field("bound by", bound_pieces(answer.bounds)),
            *field("tried", [f"{answer.valid_layouts:,} valid layouts", *_rejected(answer)]),
        ],
        _layouts(answer),
        _run(answer.run, answer) if answer.run else [],
        note_lines(answer.warnings),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block).split("\n")


def model_text(name: str, parameters: int) -> str:
    """`llama-3.1-70b · 70.6 B parameters`."""
    size = f"{parameters / 1e9:,.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:,.0f} M"
    return f"{name}{DOT}{size} parameters"


def note_lines(warnings: tuple[str, ...]) -> list[str]:
    """What to know beside the figures, one note per line."""
    return [line for at, note in enumerate(warnings) for line in heading("" if at else "NOTE", [note])]


def size_text(value_bytes: float) -> str:
    """Three digits, as sizes of checkpoints are compared: `5.68 TB`."""
    scale, unit = (1e12, "TB") if value_bytes >= 1e12 else (1e9, "GB") if value_bytes >= 1e9 else (1e6, "MB")
    return f"{value_bytes / scale:.3g} {unit}"


def _step(answer: TrainingEstimate) -> list[str]:
    tokens = answer.sequence_tokens * answer.batch_sequences
    each = f"{answer.batch_sequences:,} seq × {answer.sequence_tokens:,} tok = {format_si(tokens, 'tok')}"
    more = answer.hardware_flops / answer.model_flops - 1
    flops = f"{format_si(answer.model_flops, 'FLOP')} of the model"
    return [
        *field("step", [f"{ranged(answer.step_s)} for {each}", f"MFU {ranged(answer.mfu_fraction)}"]),
        *field("", shares([(part.name, part.value.value) for part in answer.step_parts])),
        *field(
            "",
            [
                f"exposed communication {ranged(answer.communication_exposed_s)}, "
                f"{percent(answer.communication_exposed_fraction)} of the step",
                f"{ranged(answer.tokens_per_s)}",
            ],
        ),
        *field("work", [flops, f"recomputation adds {percent(more)}" if more else "nothing recomputed"]),
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


def _layouts(answer: TrainingEstimate) -> list[str]:
    if not answer.layouts:
        return []
    rows = [
        (
            f"{at}",
            row.text,
            ranged(row.step_s),
            format_memory(row.memory_bytes.value),
            percent(row.communication_exposed_fraction),
        )
        for at, row in enumerate(answer.layouts, 1)
    ]
    return table(("", "layout, fastest first", "step", "memory", "exposed"), rows, numbers=(0, 3, 4))


def _run(run: RunEstimate, answer: TrainingEstimate) -> list[str]:
    saved = run.checkpoints
    # A model stands behind an estimate: all of its sizes are known.
    assert run.tokens and run.flops and run.data_bytes_per_s is not None
    assert saved.size_bytes is not None and saved.write_bytes_per_s is not None
    assert saved.storage_bytes_per_s is not None
    base = [("compute", run.compute_s.value), ("checkpoints", run.checkpoint_s.value)]
    base.append(("failures", run.failure_s.value))
    return [
        *both_ends(f"RUN       {format_si(run.tokens, 'tok')}, {run.steps:,} steps", cost_text(run.cost_usd)),
        *field("time", [summed(base, run.wall_s), f"goodput {ranged(run.goodput_fraction)}"]),
        *field("devices", _hours(run, hours_unit(answer.machine.accelerator))),
        *field("work", [f"{run.flops:.3g} FLOP of the model"]),
        *field("failures", [f"{ranged(run.interruptions, 'interruptions')}"]),
        *field(
            "checkpoint",
            [
                f"{size_text(saved.size_bytes)} every {ranged(saved.interval_s)}",
                f"{format_si(saved.write_bytes_per_s, 'B/s')} to write it in {format_seconds(saved.write_s)}",
            ],
        ),
        *field(
            "storage",
            [
                f"{format_si(saved.storage_bytes_per_s, 'B/s')}, set by the {saved.storage_term}",
                f"data {format_bytes(run.data_bytes_per_s)}/s",
            ],
        ),
        *field("price", price_pieces(answer.machine.price)),
        *field("energy", [f"accelerators draw {watt_hours(run.energy_j)}"]),
    ]


def _hours(run: RunEstimate, unit: str) -> list[str]:
    """Accelerator-hours of the run, and of each cause that hours are kept for: they add up."""
    if not run.headroom:
        return [ranged(run.accelerator_h, unit), "no headroom asked"]
    total = run.accelerator_h
    parts = [(f"{part.name}", part.value.value) for part in run.headroom]
    return [summed(parts, type(total)(total.value, total.low, total.high, unit, total.source))]
