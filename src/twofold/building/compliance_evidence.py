"""Who implements which control, and which mandates are in force: nothing here is stored as a verdict."""

from collections import Counter

from twofold.catalog.catalog import Catalog
from twofold.catalog.names import canonical
from twofold.catalog.types import ControlRow, MandateRow, Regime
from twofold.contracts.results import compliance
from twofold.core.errors import UnknownNameError

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
    counted = []
    for name in dict.fromkeys(control.family for control in controls):
        own = [control for control in controls if control.family == name]
        by = Counter(control.implementer for control in own)
        gaps = tuple(control.id for control in own if control.status in LACKING)
        parts = (by["product"], by["platform"], by["organisation"])
        counted.append(compliance.FamilyCount(name, len(own), *parts, gaps))
    return tuple(counted)


def register_of(catalog: Catalog, today: str | None) -> tuple[compliance.Mandate, ...]:
    """Every mandate with its standing: revoked, flagged because it rests on what was revoked, or in force.

    By that day; without a day, whatever has a date of its end has ceased.
    """
    rows = catalog.named(MandateRow)
    ceased = {name for name, row in rows.items() if row.revoked_on and (not today or row.revoked_on <= today)}
    register = []
    for row in rows.values():
        # The nearest mandate that it rests on, itself or through others, and that was revoked.
        seen, below = {row.name}, row.rests_on
        while below in rows and below not in seen | ceased:
            seen.add(below)
            below = rows[below].rests_on
        on = ""
        if below in rows and below not in seen:
            on = f"rests on {below}, revoked {rows[below].revoked_on}"
        status, because = FLAGGED if on else IN_FORCE, on
        if row.name in ceased:
            by = f" by {row.revoked_by}" if row.revoked_by else ""
            status, because = REVOKED, "; ".join(filter(None, (f"{row.revoked_on}{by}", on)))
        register.append(
            compliance.Mandate(
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
        )
    return tuple(register)


def cited_notes(catalog: Catalog, cites: tuple[str, ...], today: str | None) -> tuple[str, ...]:
    """What to know about the mandates that a spec's papers cite. Raises UnknownNameError for one unknown."""
    by_name = {canonical(mandate.name): mandate for mandate in register_of(catalog, today)}
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
