"""A proof as a page, HTML or Markdown: whether what was rehearsed came true, figure by figure."""

from collections.abc import Iterator

from twofold.contracts.results import proof
from twofold.pages.sections import Page, Section
from twofold.report import proof as shown
from twofold.report.figures import percent, ranged

HEADS = ("", "planned, 80 % range", "rehearsed, 80 % range", "live 1", "live 2", "apart", "")


def proof_page(made: proof.Proof) -> Page:
    """What its page shows."""
    title = f"{made.name}: rehearsed, then real"
    return Page(title, title, made.machine, _sections(made), _made_by(made))


def _made_by(made: proof.Proof) -> str:
    digests = (("plan", made.plan_digest), ("spec", made.spec_digest), ("device", made.device_digest))
    said = [f"{what} of sha256 {digest[:16]}" for what, digest in digests]
    frozen = f"frozen as sha256 {made.frozen_sha256} at {made.frozen_at}, before the runs"
    return " · ".join([frozen, f"seed {made.seed}", *said])


def _sections(made: proof.Proof) -> tuple[Section, ...]:
    return (
        _verdict(made),
        *_tables(made),
        Section("Gate and machine", sentences=(*shown.gate_words(made), *shown.machine_words(made))),
        Section("What differs between twin and live", sentences=made.differs),
        Section("Learned", sentences=tuple(f"{each.name} ×{each.ratio:.2f}" for each in made.learned)),
        Section("Worth knowing", sentences=made.notes),
    )


def _verdict(made: proof.Proof) -> Section:
    said = [shown.verdict_of(made)]
    said += [f"✗ {each.scenario}, {each.what}: {each.cause}" for each in made.findings]
    return Section("Came true" if made.is_inside else "Not all came true", sentences=tuple(said))


def _tables(made: proof.Proof) -> Iterator[Section]:
    for scenario in dict.fromkeys(row.scenario for row in made.rows):
        rows = tuple(_cells(row) for row in made.rows if row.scenario == scenario)
        yield Section(shown.scenario_title(made, scenario).capitalize(), HEADS, rows, (1, 2, 3, 4, 5))


def _cells(row: proof.ProofRow) -> tuple[str, ...]:
    apart = "" if row.apart is None else percent(row.apart)
    verdict = {True: "✓ came true", False: f"✗ {row.why}", None: ""}[row.inside]
    return (
        row.name,
        ranged(row.planned),
        shown.twin_words(row),
        shown.live_words(row, 0),
        shown.live_words(row, 1),
        apart,
        verdict,
    )
