"""`calibrate`: a user's measured rows become the factors that plans beside them use."""

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

from twofold.app.files import whole_file
from twofold.app.sources import CALIBRATION_FILE
from twofold.catalog import load_catalog
from twofold.contracts.rows import CALIBRATION_SCHEMA, Calibration, calibration_to_data
from twofold.perf import load_constants
from twofold.report import Shown, calibration_lines


@dataclass(frozen=True, slots=True)
class Calibrated(Shown):
    """What the rows say, and where it was written."""

    schema: ClassVar[str] = CALIBRATION_SCHEMA
    data: Calibration
    path: Path

    def _used(self) -> str:
        beside = (
            self.path.name == CALIBRATION_FILE.name and self.path.parent.name == CALIBRATION_FILE.parent.name
        )
        return (
            ": plans beside it use it" if beside else f"; plans read `{CALIBRATION_FILE}` beside their spec"
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """Factors with their ranges, errors before and after, rows refused."""
        return (*calibration_lines(self.data), "", f"wrote {self.path}{self._used()}")

    @property
    def as_data(self) -> dict[str, Any]:
        """The calibration, and its file."""
        return {"file": str(self.path), **calibration_to_data(self.data)}


def calibrate(measurements: Path, out: Path = CALIBRATION_FILE, today: date | None = None) -> Calibrated:
    """Calibrate with the CSV table `measurements` and write `out`, whole or not at all.

    Raises TableError where no row can be used, InputError for a table that cannot be read.
    """
    from twofold.measure import calibrate as fitted
    from twofold.measure import read_rows

    rows = read_rows(measurements)
    calibration = fitted(rows, load_catalog(), load_constants(), measurements.name, today or date.today())
    if out == CALIBRATION_FILE:
        out.parent.mkdir(exist_ok=True)
    with whole_file(out) as handle:
        data = {"schema": CALIBRATION_SCHEMA, **calibration_to_data(calibration)}
        handle.write(json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    return Calibrated(calibration, out)
