"""What lies beside a spec and changes what plans are made from: a measured device, a calibration."""

from datetime import date
from pathlib import Path

from twofold.answer import calibration_rows
from twofold.app.measured_device import DeviceTables, device_tables
from twofold.contracts.rows import Calibration, read_calibration
from twofold.perf import load_constants, with_rows

GOOD_FOR_DAYS = 180  # releases of frameworks and engines, drivers and firmware change


def local_tables(device: Path | None, calibration: Path | None, today: date | None = None) -> DeviceTables:
    """The constants to plan with, and what to say about them; None for what is not there.

    Raises FileError or AlteredError where a file is there that is not whole.
    """
    tables = device_tables(device, today)
    if calibration is None:
        return tables
    found = read_calibration(calibration)
    path = Path(*calibration.parts[-2:])  # as people see it beside the spec, wherever that is
    return DeviceTables(
        with_rows(tables.constants, calibration_rows(found, path)),
        " · ".join(filter(None, (tables.summary, _summary(found)))),
        " ".join(filter(None, (tables.digest, found.digest))),
        (*tables.notes, *_notes(found, path, today)),
    )


def _summary(calibration: Calibration) -> str:
    rows = "1 row" if calibration.rows == 1 else f"{calibration.rows} rows"
    return f"{rows} of {calibration.measurements}, calibrated {calibration.calibrated_on}"


def _notes(calibration: Calibration, path: Path, today: date | None) -> tuple[str, ...]:
    """What to know before trusting a calibration: it is old, or our constants have changed since."""
    notes = []
    again = f"`twofold calibrate {calibration.measurements}`"
    if calibration.constants_digest != load_constants().digest:
        was, now = calibration.constants_version, load_constants().version
        notes.append(f"`{path}` multiplies constants {was}, these are {now}: {again} fits it to them")
    if today and (today - calibration.calibrated_on).days > GOOD_FOR_DAYS:
        age_days = (today - calibration.calibrated_on).days
        notes.append(f"`{path}` is {age_days} days old: newer rows and {again} make it true again")
    return tuple(notes)
