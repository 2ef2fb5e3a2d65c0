"""Who implements which control, and which mandates are in force: nothing here is stored as a verdict."""

from twofold.catalog import Catalog, ControlRow, MandateRow, Regime, canonical
from twofold.contracts.results import compliance
from twofold.core import UnknownNameError

IN_FORCE, REVOKED, FLAGGED = "in force", "revoked", "flagged"
LACKING = frozenset({"partial", "gap"})


def controls_of(catalog: Catalog, regime: Regime, is_rented: bool) -> tuple[compliance.Control, ...]:
    """The controls of a regime's baseline. On a site of your own nothing is inherited: that part is yours."""
    rows = [
        row for row in catalog.rows(ControlRow) if regime.baseline == "high" or row.baseline == "moderate"
    ]
    return tuple(
        compliance.Control(
            row.id,
            row.family,
            row.title,
            row.implementer,
            "yours" if row.status == "inherited" and not is_rented else row.status,
            row.evidence,
            row.gap,
        )
        for row in rows
    )


def families_of(controls: tuple[compliance.Control, ...]) -> tuple[compliance.FamilyCount, ...]:
    """Controls by family and by who does them; gaps are what the product lacks."""
    names = dict.fromkeys(control.family for control in controls)
    counted = []
    for name in names:
        own = [control for control in controls if control.family == name]
        by = {who: sum(c.implementer == who for c in own) for who in ("product", "platform", "organisation")}
        gaps = tuple(control.id for control in own if control.status in LACKING)
        counted.append(
            compliance.FamilyCount(name, len(own), by["product"], by["platform"], by["organisation"], gaps)
        )
    return tuple(counted)


def register_of(catalog: Catalog, today: str | None) -> tuple[compliance.Mandate, ...]:
    """Every mandate with its standing: revoked, flagged because it rests on what was revoked, or in force."""
    rows = catalog.named(MandateRow)
    return tuple(_mandate(row, rows, today) for row in rows.values())


def cited_notes(register: tuple[compliance.Mandate, ...], cites: tuple[str, ...]) -> tuple[str, ...]:
    """What to know about the mandates that a spec's papers cite. Raises UnknownNameError for one unknown."""
    by_name = {canonical(mandate.name): mandate for mandate in register}
    notes = []
    for name in cites:
        mandate = by_name.get(canonical(name))
        if mandate is None:
            raise UnknownNameError(
                f"`{name}` is not in the policy register",
                hint="`twofold catalog mandates` lists it; add yours in `catalog/mandates.csv`",
            )
        if mandate.status != IN_FORCE:
            instead = f"; cite {mandate.replaced_by} instead" if mandate.replaced_by else ""
            notes.append(f"your papers cite {mandate.name}, {mandate.status}: {mandate.because}{instead}")
    return tuple(notes)


def _mandate(row: MandateRow, rows: dict[str, MandateRow], today: str | None) -> compliance.Mandate:
    below = _revoked_below(row, rows, today)
    on = f"rests on {below.name}, revoked {below.revoked_on}" if below else ""
    if _is_revoked(row, today):
        by = f" by {row.revoked_by}" if row.revoked_by else ""
        status, because = REVOKED, "; ".join(part for part in (f"{row.revoked_on}{by}", on) if part)
    else:
        status, because = (FLAGGED, on) if below else (IN_FORCE, "")
    return compliance.Mandate(
        row.name,
        row.title,
        row.kind,
        row.date,
        status,
        because,
        row.replaced_by,
        row.bears_on,
        row.source,
        row.confidence,
    )


def _revoked_below(row: MandateRow, rows: dict[str, MandateRow], today: str | None) -> MandateRow | None:
    """The nearest mandate that a row rests on, itself or through others, and that was revoked."""
    seen = {row.name}
    name = row.rests_on
    while name in rows and name not in seen:
        if _is_revoked(rows[name], today):
            return rows[name]
        seen.add(name)
        name = rows[name].rests_on
    return None


def _is_revoked(row: MandateRow, today: str | None) -> bool:
    """Whether it has ceased by that day; without a day, whatever has a date of its end has ceased."""
    return bool(row.revoked_on) and (not today or row.revoked_on <= today)
