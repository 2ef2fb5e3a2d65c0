"""The screen of a sweep: a row for each value, and what the values say together."""

from collections.abc import Sequence

from twofold.contracts.results import sweeps
from twofold.core.display import format_seconds, format_si, format_usd
from twofold.rehearse.figure_table import figure_of
from twofold.report.lines import both_ends, heading, table

COLUMNS_MAX = 6  # besides the value and the verdict: what fits a screen
CLASS_COLUMNS_MAX = 3
# By key: what it is swept for, before the rest.
ASKED_FOR = {
    "engine.reserve": "kv_waste_fraction",
    "policies.pools": "cost_usd",
    "cluster.jitter": "step_p99_s step_inflation_fraction slowdown_factor goodput_fraction",
    "cluster.files": "checkpoint_files_count checkpoint_metadata_s checkpoint_data_s goodput_fraction",
    "cluster.run_nodes": "run_accelerators step_compute_s step_communication_s step_input_s step_sync_s"
    " step_p99_s",
}
TRAINING = "goodput_fraction work_fraction busy_h lost_h restarting_h recovery_s_mean"


def sweep_lines(sweep: sweeps.Sweep) -> list[str]:
    """The whole screen, at most 100 columns wide."""
    seeds = f"{len(sweep.seeds)} seeds" if len(sweep.seeds) > 1 else f"seed {sweep.seeds[0]}"
    names = _columns(sweep.key, sweep.points)
    heads = (sweep.key.split(".")[-1], *(_short(name) for name in names), "goals")
    rows = []
    for point in sweep.points:
        cells = [_cell(name, point.figures.get(name)) for name in names]
        rows.append((point.value, *cells, "all met" if point.slos_met else "missed"))
    lines = [
        *both_ends(f"{sweep.name} · {sweep.scenario} · {sweep.key}", seeds),
        "",
        *table(heads, rows, numbers=tuple(range(1, len(names) + 1))),
    ]
    for finding in sweep.findings:
        lines += ["", *heading(finding.rule.upper(), finding.text)]
    return [*lines, *(line for note in sweep.notes for line in heading("NOTE", note))]


def _columns(key: str, points: Sequence[sweeps.SweepPoint]) -> list[str]:
    """The figures to show: those of the first class and of the whole that differ between the values."""
    known = list(points[0].figures)
    asked_for = ASKED_FOR.get(key, "")
    training = [f"training.{name}" for name in (asked_for or TRAINING).split()]
    training = [name for name in training if name in known]
    if training:
        return training[:COLUMNS_MAX]
    first = next((name.split(".")[0] for name in known if "." in name), "")
    of_class = [name for name in _ranked(known) if name.startswith(f"{first}.")]
    asked = [name for name in asked_for.split() if name in known]
    others = [f"{first}.unanswered_fraction", *(name for name in _ranked(known) if "." not in name)]
    whole = []
    for name in (name for name in others if name in known and name not in asked):
        values = [point.figures[name].mean for point in points if name in point.figures]
        if max(values) - min(values) > 0.005 * max(abs(max(values)), 1e-12):
            whole.append(name)
    return [*of_class[:CLASS_COLUMNS_MAX], *asked, *whole][:COLUMNS_MAX]


def _ranked(names: Sequence[str]) -> list[str]:
    """Those that any sweep shows, in their order."""
    ranks = {name: row.sweep_rank for name in names if (row := figure_of(name)) and row.sweep_rank}
    return sorted(ranks, key=ranks.__getitem__)


def _short(name: str) -> str:
    row, last = figure_of(name), name.split(".")[-1]
    if row and row.heading:
        return row.heading
    for ending in ("_s_mean", "_fraction", "_s", "_h"):
        last = last.removesuffix(ending)
    words = last.replace("_", " ").split()
    return " ".join(word.upper() if word in ("ttft", "tpot") else word for word in words)


def _cell(name: str, figure: sweeps.Swept | None) -> str:
    if figure is None:
        return "–"
    value = figure.mean
    if name.endswith(("_s", "_s_mean")) and not name.endswith("per_s"):
        return format_seconds(value)
    if name.endswith("_fraction"):
        return f"{100 * value:.1f} %"
    if name.endswith("_usd"):
        return format_usd(value)
    return f"{value:,.0f} h" if name.endswith("_h") else format_si(value, "").strip()
