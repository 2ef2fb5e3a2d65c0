"""A proof as a page, HTML or Markdown: whether what was rehearsed came true, figure by figure."""

from collections.abc import Iterator

from twofold.contracts.results import proof
from twofold.pages.sections import Cell, Derived, Linked, Page, Section, led, notes_section, range_of
from twofold.report import proof as shown
from twofold.report.figures import percent, ranged

MACHINE, VERDICT, GATE, DIFFERS, LEARNED = "machine", "verdict", "gate", "differs", "learned"
HEADS = ("", "planned, 80 % range", "rehearsed, 80 % range", "live 1", "live 2", "apart", "")


def proof_page(made: proof.Proof) -> Page:
    """What its page shows."""
    title = f"{made.name}: rehearsed, then real"
    intro, verdict = Linked(made.machine, MACHINE), Derived(VERDICT, "figures that were set, each by its row")
    machine = Derived(MACHINE, "what both halves ran on, as its system names it", shown.machine_words(made))
    differs = Derived(DIFFERS, "settings of the twin beside those of the live service, each by name")
    learned = Derived(LEARNED, "what was measured over what was planned, the mean of the live runs")
    derived = machine, verdict, differs, learned
    return Page(title, title, intro, _sections(made), _made_by(made), derived=derived)


def _made_by(made: proof.Proof) -> str:
    digests = (("plan", made.plan_digest), ("spec", made.spec_digest), ("device", made.device_digest))
    said = [f"{what} of sha256 {digest[:16]}" for what, digest in digests]
    frozen = f"frozen as sha256 {made.frozen_sha256} at {made.frozen_at}, before the runs"
    return " · ".join([frozen, f"seed {made.seed}", *said])


def _sections(made: proof.Proof) -> tuple[Section, ...]:
    return (
        _verdict(made),
        *_tables(made),
        Section(
            "Gate and machine",
            sentences=(*led(GATE, *shown.gate_words(made)), *led(MACHINE, *shown.machine_words(made))),
            derived=(Derived(GATE, "sha256 of the gate's settings, as twin and gateway each built them"),),
        ),
        Section("What differs between twin and live", sentences=led(DIFFERS, *made.differs)),
        Section(
            "Learned", sentences=led(LEARNED, *(f"{each.name} ×{each.ratio:.2f}" for each in made.learned))
        ),
        notes_section(made.notes, "the twin and both live runs, held against the goals of the proof"),
    )


def _verdict(made: proof.Proof) -> Section:
    said = [shown.verdict_of(made)]
    said += [f"✗ {each.scenario}, {each.what}: {each.cause}" for each in made.findings]
    return Section("Came true" if made.is_inside else "Not all came true", sentences=led(VERDICT, *said))


def _tables(made: proof.Proof) -> Iterator[Section]:
    for scenario in dict.fromkeys(row.scenario for row in made.rows):
        own = [row for row in made.rows if row.scenario == scenario]
        derived = tuple({_path(row): _derived(made, row) for row in own}.values())
        title = shown.scenario_title(made, scenario).capitalize()
        yield Section(title, HEADS, tuple(map(_cells, own)), range_of(1, 6), derived=derived)


def _path(row: proof.ProofRow) -> str:
    return f"{row.scenario}.{row.name}".replace(" ", "-")


def _derived(made: proof.Proof, row: proof.ProofRow) -> Derived:
    """Who said it, who measured it, and over how much."""
    runs = [run for run in made.runs if run.scenario == row.scenario]
    counts = [
        f"live {at}: {run.finished:,} of {run.sent:,} requests finished" for at, run in enumerate(runs, 1)
    ]
    parts = (
        f"planned: in the plan of sha256 {made.plan_digest[:16]}",
        f"rehearsed: by the twin with seed {made.seed}, frozen before the runs",
        *counts,
        "apart: the live runs from what was rehearsed",
    )
    return Derived(_path(row), "planned, rehearsed, then measured live", parts)


def _cells(row: proof.ProofRow) -> tuple[Cell, ...]:
    apart = "" if row.apart is None else percent(row.apart)
    verdict = {True: "✓ came true", False: f"✗ {row.why}", None: ""}[row.inside]
    sides = ranged(row.planned), shown.twin_words(row), shown.live_words(row, 0), shown.live_words(row, 1)
    return led(_path(row), row.name, *sides, apart, verdict)
