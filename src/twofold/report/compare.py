"""The screens of `compare`: the 2×2 with its penalties, and ladders as tables."""

from collections.abc import Callable
from types import MappingProxyType

from twofold.answer.ladder_training import Ladder, Rung
from twofold.answer.ladders import Ladders
from twofold.core.display import format_bytes, format_count
from twofold.core.estimate import Estimate
from twofold.planner.compare import Comparison, Crossed
from twofold.report.figures import percent, ranged
from twofold.report.lines import both_ends, field, heading, stacked, table
from twofold.report.training import note_lines

VERBS = {"training": "TRAIN", "serving": "SERVE"}


def _added(fraction: float) -> str:
    return f"{100 * fraction:+.1f} %" if abs(fraction) >= 5e-4 else "0 %"


# Keys of a rung's values -> how a screen heads them, and writes numbers; estimates write themselves.
COLUMNS: MappingProxyType[str, tuple[str, Callable[[float], str]]] = MappingProxyType(
    {
        "step_s": ("step", str),
        "added_fraction": ("added", _added),
        "exposed_fraction": ("exposed", percent),
        "switch_count": ("switches", format_count),
        "cable_count": ("cables", format_count),
        "switch": ("switch", str),
        "accelerator_count": ("devices", format_count),
        "tokens_per_s": ("tokens", str),
        "efficiency_fraction": ("efficiency", percent),
        "batch_sequences": ("batch", format_count),
        "memory_bytes": ("memory", format_bytes),
        "layout": ("layout", str),
        "overhead_fraction": ("overhead", percent),
        "total_s": ("run", str),
        "accelerator_h": ("GPU-h", str),
        "cost_usd": ("cost", str),
        "kv_bytes_per_user": ("KV per user", format_bytes),
        "ttft_s": ("TTFT", str),
        "tpot_s": ("TPOT p50", str),
        "users_count": ("users", format_count),
        "native": ("native", str),
        "weights_bytes": ("weights", format_bytes),
        "sequences_count": ("requests", format_count),
        "output_tokens_per_s": ("output", str),
        "usd_per_1k_tokens": ("per Mtok out", str),
        "weights_format": ("format", str),
        "feasible_formats": ("feasible", str),
        "tokens_per_s_per_accelerator": ("per device", str),
        "bound_by": ("bound by", str),
    }
)


def comparison_lines(answer: Comparison | Ladders) -> list[str]:
    """The 2×2, then what each half pays on the other's fleet; or every table of one axis."""
    if isinstance(answer, Ladders):
        blocks = [both_ends(answer.name, f"ladder: {answer.axis}"), *map(_ladder, answer.ladders)]
        return stacked([*blocks, note_lines(answer.warnings)])
    if not answer.rows:
        return [*both_ends(answer.name, "each half on the other's fleet"), *note_lines(answer.warnings)]
    cells = [{cell.fleet: cell.text for cell in (row.own, row.other)} for row in answer.rows]
    rows = [(row.name, own["training"], own["serving"]) for row, own in zip(answer.rows, cells, strict=True)]
    return [
        *both_ends(answer.name, "each half on the other's fleet"),
        *field("training", *[f"{fleet} fleet" for fleet in answer.training_fleets]),
        *field("serving", *[f"{fleet} fleet" for fleet in answer.serving_fleets]),
        "",
        *table(("", "on the training fleet", "on the serving fleet"), rows),
        "",
        *(line for row in answer.rows for line in heading(VERBS[row.half], *_penalty(row))),
        *note_lines(answer.warnings),
    ]


def _penalty(row: Crossed) -> list[str]:
    """`pretrain elsewhere: 9.1× the time, +38 % cost 0.84 M$ [0.7–1.0] f`."""
    metric = "time" if row.half == "training" else "TPOT p95"
    pieces = [f"{row.name} on the other fleet"]
    figure, slower = row.other.wall_s or row.other.latency_s, row.time_penalty_fraction
    if figure and slower is not None:
        times = f"{1 + slower:.2g} times" if slower >= 1 else _added(slower)
        pieces.append(f"{metric} {ranged(figure)}, {times}")
    if row.other.cost_usd and row.cost_penalty_fraction is not None:
        pieces.append(f"cost {ranged(row.other.cost_usd)}, {_added(row.cost_penalty_fraction)}")
    return pieces if row.other.feasible else [*pieces, "misses what the spec asks"]


def _ladder(ladder: Ladder) -> list[str]:
    headings = ["", *(COLUMNS[key][0] for key in ladder.columns)]
    rows = [[rung.label, *(_cell(rung, key) for key in ladder.columns)] for rung in ladder.rungs]
    noted = [f"{rung.label}: {rung.note}" for rung in ladder.rungs if rung.note]
    return [
        *heading(VERBS[ladder.half], f"{ladder.name}: {ladder.title}"),
        *table(headings, rows),
        *(line for note in (*noted, *ladder.notes) for line in field("", note)),
    ]


def _estimate(key: str, value: Estimate) -> str:
    """Hours are of devices; tokens of a table are paid by the million, where digits are not all zeros."""
    if key == "accelerator_h":
        return ranged(value, "GPU-h")
    if key != "usd_per_1k_tokens":
        return ranged(value)
    return ranged(value.times(1e3, "USD"))


def _cell(rung: Rung, key: str) -> str:
    value = rung.values.get(key)
    if value is None:
        return "no price" if "usd" in key and not rung.note else "–"
    if isinstance(value, Estimate):
        return _estimate(key, value)
    return COLUMNS[key][1](value) if isinstance(value, (int, float)) else str(value)
