"""A live run as a page, HTML or Markdown: whether it came as planned, then pictures, then every figure."""

from collections.abc import Sequence

from twofold.charts.of_loop import charts_of_loop
from twofold.contracts.results import loop
from twofold.core.display import format_si
from twofold.pages.sections import Cell, Derived, Linked, Page, Section, led, notes_section, range_of
from twofold.report.figures import ranged

MACHINE, VERDICT = "machine", "verdict"


def run_page(made: loop.LoopPage) -> Page:
    """What its page shows."""
    title = f"{made.name}: planned, then real"
    return Page(
        title,
        title,
        Linked(made.machine, MACHINE),
        (_verdict(made), *_row_sections(made)),
        _made_by(made),
        tuple(charts_of_loop(made)),
        _table_sections(made),
        derived=(_machine(made), _judged(made)),
    )


def _machine(made: loop.LoopPage) -> Derived:
    row = f"as the device that was measured here, sha256 {made.device_digest[:16]}; plans of it use that row"
    return Derived(MACHINE, "what the run ran on, as its system names it", (row,))


def _judged(made: loop.LoopPage) -> Derived:
    """What the counts of the headline are of."""
    rows = [row for row in made.rows if row.inside is not None]
    parts = [f"{len(rows)} of {len(made.rows)} figures have a planned range and were measured"]
    parts += [
        f"recovery: from the kill after step {run.recovery.killed_after_step:,} to the first step done after "
        f"it, which goes on from step {run.recovery.resumed_from_step:,}"
        for run in made.training
        if run.recovery is not None
    ]
    parts.append("requests that failed: of all loads together; a refusal is none")
    return Derived(VERDICT, "each measured figure, held against its planned range", tuple(parts))


def _made_by(made: loop.LoopPage) -> str:
    digests = (("plan", made.plan_digest), ("spec", made.spec_digest), ("device", made.device_digest))
    return " · ".join(f"{what} of sha256 {digest[:16]}" for what, digest in digests)


def _verdict(made: loop.LoopPage) -> Section:
    """How many figures lie in their planned ranges, which do not, and what else went wrong."""
    judged = [row for row in made.rows if row.inside is not None]
    outside = [row for row in judged if row.inside is False]
    said: list[Cell] = [
        f"{len(judged) - len(outside)} of {len(judged)} measured figures lie in their planned 80 % ranges"
    ]
    said += [
        Linked(f"✗ {row.half}, {_name(row)}: measured {_measured(row)}, planned {_planned(row)}", _path(row))
        for row in outside
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
    said += [
        Linked(f"✗ {each.rule}: {each.saw}. {each.advice}", _rule(each))
        for each in made.findings
        if each.verdict != "ok"
    ]
    said += [f"✗ {each.missed}" for each in made.releases if each.missed]
    is_off = bool(outside or made.missed)
    title = "Not all as planned" if is_off else "As planned" if judged else "Not judged"
    return Section(title, sentences=led(VERDICT, *said))


def _row_sections(made: loop.LoopPage) -> tuple[Section, ...]:
    return tuple(
        _half_section(made, half, [row for row in made.rows if row.half == half])
        for half in dict.fromkeys(row.half for row in made.rows)
    )


def _half_section(made: loop.LoopPage, half: str, rows: Sequence[loop.Row]) -> Section:
    """A half's rows; the twin has a column where it rehearsed any of them."""
    heads = ["", "planned, 80 % range", "measured", "measured / planned", ""]
    cells, title = [list(_row(row)) for row in rows], "planned and measured"
    if any(row.twin for row in rows):
        title = "plan, twin and live"
        heads.insert(2, "twin")
        for row, cell in zip(rows, cells, strict=True):
            cell.insert(2, *led(_path(row), ranged(row.twin, row.unit) if row.twin else ""))
    derived = tuple({_path(row): _derived(made, row) for row in rows}.values())
    numbers, table = range_of(1, len(heads) - 1), tuple(map(tuple, cells))
    return Section(f"{half.capitalize()}: {title}", tuple(heads), table, numbers, derived=derived)


def _row(row: loop.Row) -> tuple[Cell, ...]:
    ratio = ""
    if row.planned is not None and row.measured is not None and row.planned.value:
        ratio = f"{row.measured / row.planned.value:.2f}"
    verdict = {True: "✓ inside", False: "✗ outside", None: ""}[row.inside]
    return *led(_path(row), row.name, _planned(row), _measured(row), ratio), verdict


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
    said = "not measured"
    if row.measured is not None:
        said = f"{_measured(row).removesuffix(' m')}, measured on {made.machine}"
    return Derived(_path(row), said, tuple(parts))


def _at(load: loop.LoadPoint) -> str:
    """How a row names a load."""
    if load.concurrency is None:
        return f"{load.rate_per_s or 0.0:.2g} /s"
    return "1 client" if load.concurrency == 1 else f"{load.concurrency} clients"


def _table_sections(made: loop.LoopPage) -> tuple[Section, ...]:
    heads = ("rule", "verdict", "saw", "advice")
    checks = [(each.rule, each.verdict, *led(_rule(each), each.saw, each.advice)) for each in made.findings]
    judged = tuple(
        Derived(
            _rule(each),
            "a rule of the doctor over this run's record: what it saw, and what it judges that by",
            (each.saw, *([each.advice] if each.advice else [])),
        )
        for each in {each.rule: each for each in made.findings}.values()
    )
    return (
        _runs(made.training),
        _loads(made.serving),
        Section("What the doctor saw", heads, tuple(checks), derived=judged),
        notes_section(made.notes, "counted in the logs of this run, or set in its spec"),
    )


def _runs(training: Sequence[loop.TrainingMeasured]) -> Section:
    rows = []
    for number, run in enumerate(training):
        told = (
            f"{run.parameter_count / 1e6:,.1f} M parameters",
            f"{run.steps:,}",
            f"{run.rank_count * run.wall_s / 3600.0:,.3g}",
            f"{run.first_loss:.3f}",
            f"{run.last_loss:.3f}",
            format_si(run.wall_s, "s"),
            f"{run.checkpoint_count:,}",
        )
        rows.append(led(f"runs.{number}", *told))
    heads = ("run", "steps", "accelerator-h", "first loss", "last loss", "finished after", "checkpoints")
    derived = tuple(Derived(f"runs.{at}", *_run(run)) for at, run in enumerate(training))
    return Section("Runs", heads, tuple(rows), range_of(1, 7), derived=derived)


def _run(run: loop.TrainingMeasured) -> tuple[str, tuple[str, ...]]:
    """What each column of a run is."""
    hours = f"{run.rank_count:,} ranks × {format_si(run.wall_s, 's')}"
    return (
        "read from the lines that the trainer wrote step by step",
        (
            "parameters: of the network that was built; steps: repeated ones not counted twice",
            f"accelerator-h: {hours}; finished after: launch to artefact, time between launches left out",
            "losses: means over all ranks, nats/token, of the first and of the last step",
            f"checkpoints: complete ones, each {format_si(float(run.checkpoint_bytes), 'B')} at most",
        ),
    )


def _loads(serving: Sequence[loop.ServingMeasured]) -> Section:
    rows, derived = [], []
    for number, service in enumerate(serving):
        for load in service.loads:
            path = f"loads.{number}.{load.name}"
            counts = (f"{getattr(load, name):,}" for name in ("sent", "finished", "refused", "failed"))
            rates = format_si(load.requests_per_s, "1/s"), format_si(load.output_tokens_per_s, "tok/s")
            rows.append((load.name, *led(path, *counts, *rates)))
            derived.append(Derived(path, *_load(load, service)))
    heads = ("load", "sent", "finished", "refused", "failed", "finished/s", "output")
    return Section("Loads", heads, tuple(rows), range_of(1, 7), derived=tuple(derived))


def _load(load: loop.LoadPoint, service: loop.ServingMeasured) -> tuple[str, tuple[str, ...]]:
    """What each column of a load is."""
    kind = (
        "each client sends when its answer is there"
        if load.concurrency
        else "they arrive by chance, at that rate"
    )
    return (
        f"counted by the load generator, {_at(load)}: {kind}",
        (
            f"against {service.replica_count:,} replicas of {service.engine}, through the gateway",
            f"in the mean prompts of {load.input_tokens:,.0f} tokens, answers of {load.output_tokens:,.0f}",
            "refused: by the gateway, 429 or 503; failed: otherwise without a whole answer",
            "finished/s and output: of requests that finished",
        ),
    )


def _rule(finding: loop.Finding) -> str:
    return f"doctor.{finding.rule}"


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
