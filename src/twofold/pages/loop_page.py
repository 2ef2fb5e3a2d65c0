"""A live run as a page, HTML or Markdown: whether it came as planned, then pictures, then every figure."""

from collections.abc import Sequence

from twofold.charts.of_loop import charts_of_loop
from twofold.contracts.results import loop
from twofold.core.display import format_si
from twofold.pages.sections import Cell, Derived, Linked, Page, Section
from twofold.report.figures import ranged


def run_page(made: loop.LoopPage) -> Page:
    """What its page shows."""
    title = f"{made.name}: planned, then real"
    return Page(
        title,
        title,
        made.machine,
        (_verdict(made), *_row_sections(made.rows)),
        _made_by(made),
        tuple(charts_of_loop(made)),
        _table_sections(made),
        derived=tuple(_derived(made, row) for row in made.rows if row.measured is not None),
    )


def _made_by(made: loop.LoopPage) -> str:
    digests = (("plan", made.plan_digest), ("spec", made.spec_digest), ("device", made.device_digest))
    return " · ".join(f"{what} of sha256 {digest[:16]}" for what, digest in digests)


def _verdict(made: loop.LoopPage) -> Section:
    """How many figures lie in their planned ranges, which do not, and what else went wrong."""
    judged = [row for row in made.rows if row.inside is not None]
    outside = [row for row in judged if row.inside is False]
    said = [
        f"{len(judged) - len(outside)} of {len(judged)} measured figures lie in their planned 80 % ranges"
    ]
    said += [
        f"✗ {row.half}, {_name(row)}: measured {_measured(row)}, planned {_planned(row)}" for row in outside
    ]
    for run in made.training:
        if run.recovery is not None:
            same = "the same losses, bit for bit" if run.recovery.equal_losses else "✗ OTHER LOSSES"
            back = format_si(run.recovery.kill_to_step_s, "s")
            said.append(f"rank {run.recovery.killed_rank} was killed: next step after {back}, {same}")
    for service in made.serving:
        lost = sum(load.failed for load in service.loads)
        if lost:
            said.append(f"✗ {lost:,} request{'s' if lost > 1 else ''} failed")
    said += [f"✗ {each.rule}: {each.saw}. {each.advice}" for each in made.findings if each.verdict != "ok"]
    title = "As planned" if judged and not outside else "Not judged" if not judged else "Not all as planned"
    return Section(title, sentences=tuple(said))


def _row_sections(rows: Sequence[loop.Row]) -> tuple[Section, ...]:
    return tuple(
        _half_section(half, [row for row in rows if row.half == half])
        for half in dict.fromkeys(row.half for row in rows)
    )


def _half_section(half: str, rows: Sequence[loop.Row]) -> Section:
    """A half's rows; the twin has a column where it rehearsed any of them."""
    heads = ["", "planned, 80 % range", "measured", "measured / planned", ""]
    cells, title = [list(_row(row)) for row in rows], "planned and measured"
    if any(row.twin for row in rows):
        title = "plan, twin and live"
        heads.insert(2, "twin")
        for row, cell in zip(rows, cells, strict=True):
            cell.insert(2, ranged(row.twin, row.unit) if row.twin else "")
    numbers = tuple(range(1, len(heads) - 1))
    return Section(f"{half.capitalize()}: {title}", tuple(heads), tuple(map(tuple, cells)), numbers)


def _row(row: loop.Row) -> tuple[Cell, ...]:
    ratio = ""
    if row.planned is not None and row.measured is not None and row.planned.value:
        ratio = f"{row.measured / row.planned.value:.2f}"
    verdict = {True: "✓ inside", False: "✗ outside", None: ""}[row.inside]
    measured: Cell = Linked(_measured(row), _path(row)) if row.measured is not None else "–"
    return row.name, _planned(row), measured, ratio, verdict


def _derived(made: loop.LoopPage, row: loop.Row) -> Derived:
    """What was measured when, and what the plan's side rests on."""
    parts = []
    if row.half == "training":
        parts = [
            f"{run.steps:,} steps on {run.rank_count} ranks, {run.wall_s:,.0f} s" for run in made.training
        ]
    elif row.half == "serving":
        parts = [
            f"{load.name}: {load.sent:,} sent, {load.finished:,} finished"
            for service in made.serving
            for load in service.loads
            if _at(load) == row.name.partition(":")[0]
        ]
    if row.planned is not None:
        parts.append(f"planned {_planned(row)}, in the plan of sha256 {made.plan_digest[:16]}")
    if row.twin is not None:
        gate = f", through the gate of sha256 {made.gate_digest[:16]}" if made.gate_digest else ""
        parts.append(f"rehearsed {ranged(row.twin, row.unit)}{gate}")
    return Derived(
        _path(row), f"{_measured(row).removesuffix(' m')}, measured on {made.machine}", tuple(parts)
    )


def _at(load: loop.LoadPoint) -> str:
    """How a row names a load."""
    if load.concurrency is None:
        return f"{load.rate_per_s or 0.0:.2g} /s"
    return "1 client" if load.concurrency == 1 else f"{load.concurrency} clients"


def _table_sections(made: loop.LoopPage) -> tuple[Section, ...]:
    runs = [
        (
            f"{run.parameter_count / 1e6:,.1f} M parameters",
            f"{run.steps:,}",
            f"{run.rank_count * run.wall_s / 3600.0:,.3g}",
            f"{run.first_loss:.3f}",
            f"{run.last_loss:.3f}",
            format_si(run.wall_s, "s"),
            f"{run.checkpoint_count:,}",
        )
        for run in made.training
    ]
    loads = [
        (
            load.name,
            *(f"{getattr(load, name):,}" for name in ("sent", "finished", "refused", "failed")),
            format_si(load.requests_per_s, "1/s"),
            format_si(load.output_tokens_per_s, "tok/s"),
        )
        for service in made.serving
        for load in service.loads
    ]
    checks = [(each.rule, each.verdict, each.saw, each.advice) for each in made.findings]
    heads = ("run", "steps", "accelerator-h", "first loss", "last loss", "finished after", "checkpoints")
    counts = ("load", "sent", "finished", "refused", "failed", "finished/s", "output")
    return (
        Section("Runs", heads, tuple(runs), tuple(range(1, 7))),
        Section("Loads", counts, tuple(loads), tuple(range(1, 7))),
        Section("What the doctor saw", ("rule", "verdict", "saw", "advice"), tuple(checks)),
        Section("Worth knowing", sentences=made.notes),
    )


def _name(row: loop.Row) -> str:
    return row.name.removeprefix("· ")


def _path(row: loop.Row) -> str:
    return f"{row.half}.{_name(row)}".replace(" ", "-")


def _measured(row: loop.Row) -> str:
    return "–" if row.measured is None else f"{format_si(row.measured, row.unit)} m"


def _planned(row: loop.Row) -> str:
    planned = row.planned
    if planned is not None and planned.low == planned.high:
        return format_si(planned.value, row.unit)  # counted, not estimated: no letter
    return ranged(planned, row.unit)
