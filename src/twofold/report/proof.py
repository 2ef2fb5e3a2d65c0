"""A proof as text: what was planned, what was rehearsed and frozen, and what two live runs came to."""

from collections.abc import Sequence

from twofold.contracts.results import proof
from twofold.core.display import format_si
from twofold.core.estimate import Estimate
from twofold.report.figures import percent, ranged
from twofold.report.lines import both_ends, heading, listed

TITLES = {
    "train": "TRAINING",
    "steady": "STEADY",
    "burst": "2× BURST",
    "killed": "A REPLICA KILLED",
    "release": "A BAD RELEASE",
}


def proof_lines(made: proof.Proof) -> list[str]:
    """The whole page, at most 100 columns wide."""
    lines = [*both_ends(f"{made.name} · rehearsed, then real", made.machine), ""]
    for scenario in dict.fromkeys(row.scenario for row in made.rows):
        rows = [row for row in made.rows if row.scenario == scenario]
        lines += [scenario_title(made, scenario), *proof_table(rows), ""]
    lines += heading("VERDICT", verdict_of(made))
    for each in made.findings:
        lines += heading("OUTSIDE", f"✗ {each.scenario}, {each.what}", each.cause)
    lines += heading("FROZEN", f"sha256 {made.frozen_sha256}")
    lines += heading("", f"at {made.frozen_at}, before the runs", f"seed {made.seed}")
    lines += heading("GATE", *gate_words(made))
    lines += heading("MACHINE", *machine_words(made))
    lines += [line for each in made.differs for line in heading("DIFFERS", each)]
    if made.learned:
        lines += heading("LEARNED", *(f"{each.name} ×{each.ratio:.2f}" for each in made.learned))
    return lines + [line for note in made.notes for line in heading("NOTE", note)]


def scenario_title(made: proof.Proof, scenario: str) -> str:
    """What is above a scenario's rows: its runs' counts."""
    runs = [run for run in made.runs if run.scenario == scenario]
    counts = " and ".join(f"{run.finished:,} of {run.sent:,}" for run in runs)
    return TITLES.get(scenario, scenario.upper()) + (f": {counts} requests finished" if counts else "")


def proof_table(rows: Sequence[proof.ProofRow]) -> list[str]:
    """One scenario's figures."""
    return listed(
        rows,
        ("", lambda row: row.name),
        ("planned", lambda row: ranged(row.planned)),
        ("rehearsed", twin_words),
        (">live 1", lambda row: live_words(row, 0)),
        (">live 2", lambda row: live_words(row, 1)),
        (">apart", lambda row: "" if row.apart is None else percent(row.apart)),
        ("", lambda row: {True: "✓", False: "✗", None: ""}[row.inside]),
    )


def twin_words(row: proof.ProofRow) -> str:
    """What the twin said, with its range; counts are whole numbers or halves of two runs."""
    twin: Estimate | None = row.twin
    if twin is None or row.unit:
        return ranged(twin)
    span = f" [{twin.low:,.0f}–{twin.high:,.0f}]" if twin.low < twin.high else ""
    return f"{twin.value:,.4g}{span}"


def live_words(row: proof.ProofRow, number: int) -> str:
    """What one live run came to."""
    value = row.live[number] if number < len(row.live) else None
    if value is None:
        return "–"
    return format_si(value, row.unit) if row.unit else f"{value:,.0f}"


def verdict_of(made: proof.Proof) -> str:
    """How many figures keep their goals."""
    set_ones = [row for row in made.rows if row.inside is not None]
    kept = sum(row.inside is True for row in set_ones)
    return f"{'✓' if made.is_inside else '✗'} {kept} of {len(set_ones)} figures came true"


def gate_words(made: proof.Proof) -> tuple[str, ...]:
    """Whether the twin and the gateway decided by one gate."""
    if made.twin_gate_digest == made.live_gate_digest:
        return (f"{made.twin_gate_digest[:16]} in twin and live",)
    return f"✗ {made.twin_gate_digest[:16]} in the twin", f"{made.live_gate_digest[:16]} live"


def machine_words(made: proof.Proof) -> tuple[str, ...]:
    """How busy the machine was, and who with."""
    uses: list[proof.MachineUse] = [run.use for run in made.runs]
    before = uses[0].load_average_before if uses else made.calibration.load_average_before
    after = uses[-1].load_average_after if uses else made.calibration.load_average_after
    most = max((use.others_cores for use in uses), default=0.0)
    return (
        f"load average {before:.1f} before and {after:.1f} after the runs",
        f"others kept {made.calibration.others_cores:.1f} cores busy while it was calibrated, at most"
        f" {most:.1f} in a run",
        f"{made.replica_count} replicas",
        f"knee {made.knee_per_s:.2g}/s, steady {made.rate_per_s:.2g}/s",
    )
