"""What lies beside a spec and changes what plans are made from: a measured device, a calibration."""

from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path

from twofold.answer.calibrated import calibration_rows
from twofold.answer.measured_starts import start_constants
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.contracts.rows import calibrations
from twofold.contracts.rows.measured_rows import read_start_rows
from twofold.perf.constants import Constants, load_constants

GOOD_FOR_DAYS = 180  # releases of frameworks and engines, drivers and firmware change


@dataclass(frozen=True, slots=True)
class LocalTables:
    """Our constants, what was measured and calibrated laid over them, and what to say about it."""

    constants: Constants
    summary: str = ""  # of what lies there
    digest: str = ""
    notes: tuple[str, ...] = ()


def local_tables(
    device: Path | None,
    calibration: Path | None,
    today: date | None = None,
    starts: Path | None = None,
    catalog: Catalog | None = None,
) -> LocalTables:
    """The constants to plan with, and what to say about them; None for what is not there.

    `catalog` knows the accelerators that `starts` names; None: those that ship, and the device. Raises
    FileError, TableError or AlteredError where a file is there that is not whole, and UnknownNameError.
    """
    tables = _calibrated(_measured(device, today), calibration, today)
    if starts is None:
        return tables
    rows = read_start_rows(starts)
    told = "1 start of a replica" if len(rows) == 1 else f"{len(rows)} starts of replicas"
    return LocalTables(
        tables.constants.with_rows(start_constants(rows, catalog or load_catalog(device))),
        " · ".join(filter(None, (tables.summary, f"{told} measured"))),
        " ".join(filter(None, (tables.digest, sha256(starts.read_bytes()).hexdigest()))),
        tables.notes,
    )


def _measured(device: Path | None, today: date | None) -> LocalTables:
    tables = LocalTables(load_constants())
    if device:
        from twofold.device.files import notes_about, read_device

        record, text = read_device(device)
        constants = load_constants().with_rows(Constants.parse(text).rows)
        tables = LocalTables(constants, record.summary, record.digest, notes_about(record, today))
    return tables


def _calibrated(tables: LocalTables, calibration: Path | None, today: date | None) -> LocalTables:
    if calibration is None:
        return tables
    found = calibrations.Calibration.read(calibration)
    path = Path(*calibration.parts[-2:])  # as people see it beside the spec, wherever that is
    rows = "1 row" if found.rows == 1 else f"{found.rows} rows"
    calibrated = f"{rows} of {found.measurements}, calibrated {found.calibrated_on}"
    return LocalTables(
        tables.constants.with_rows(calibration_rows(found, path)),
        " · ".join(filter(None, (tables.summary, calibrated))),
        " ".join(filter(None, (tables.digest, found.digest))),
        (*tables.notes, *_notes(found, tables.constants, path, today)),
    )


def _notes(
    calibration: calibrations.Calibration, constants: Constants, path: Path, today: date | None
) -> tuple[str, ...]:
    """What to know before trusting a calibration: it is old, or our constants have changed since."""
    notes = []
    again = f"`twofold calibrate {calibration.measurements}`"
    if calibration.constants_digest != constants.digest:
        was, now = calibration.constants_version, constants.version
        notes.append(f"`{path}` multiplies constants {was}, these are {now}: {again} fits it to them")
    age_days = (today - calibration.calibrated_on).days if today else 0
    if age_days > GOOD_FOR_DAYS:
        notes.append(f"`{path}` is {age_days} days old: newer rows and {again} make it true again")
    return tuple(notes)
