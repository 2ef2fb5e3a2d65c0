"""`measure device`: benchmarks of this machine become a device that the plans beside it use."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from twofold.app.sources import DEVICE_FOLDER
from twofold.core.data import to_data
from twofold.core.display import format_si
from twofold.core.errors import ValueRefusedError
from twofold.core.extras import require_extra
from twofold.device.files import DeviceRecord, notes_about
from twofold.device.rows import measure_into
from twofold.report.answers import Shown
from twofold.report.lines import both_ends, field, table

RANKS_MAX = 64


@dataclass(frozen=True, slots=True)
class MeasuredDevice(Shown):
    """What was measured, and where its tables lie."""

    schema = "twofold/measure-device/1"
    record: DeviceRecord
    folder: Path

    @property
    def lines(self) -> tuple[str, ...]:
        """A table of what was measured, and how well the fitted constants give it back."""
        record = self.record
        share = f"1 of {record.rank_count} equal shares" if record.rank_count > 1 else "the whole"
        left, right = f"{record.name}: {share} of {record.identity.words}", f"{record.duration_s:.0f} s"
        measured = []
        for each in record.figures:
            value, low, high = (format_si(part, each.unit) for part in (each.value, each.low, each.high))
            measured.append((each.group, each.name, value, f"{low} – {high}"))
        fitted = []
        for fit in record.fit:
            median, worst = f"{100 * fit.median_fraction:.0f} %", f"{100 * fit.worst_fraction:.0f} %"
            fitted.append((fit.group, str(fit.rows), median, worst))
        return (
            *both_ends(left, right),
            f"  {record.software}",
            "",
            *table(("MEASURED", "", "", "80 % of repeats"), measured, numbers=(2,)),
            "",
            *table(("FITTED", "cases", "median off", "worst off"), fitted, numbers=(1, 2, 3)),
            *self._formats(),
            *notes_about(record, None, record.identity),
            "",
            f"wrote {self.folder}: plans beside it use `{record.name}`",
        )

    def _formats(self) -> list[str]:
        """What runs in other number formats, how much longer or shorter, and what has no kernel here."""
        rows = [
            (each.group, each.name, f"×{each.value:.2f}", f"×{each.low:.2f} – ×{each.high:.2f}")
            for each in self.record.kernels
        ]
        heads = "KERNELS", "", "time", "80 % of repeats"
        told = ["", *table(heads, rows, numbers=(2,))] if rows else []
        return [*told, *(field("NO KERNEL", ", ".join(self.record.missing)) if self.record.missing else [])]

    @property
    def as_data(self) -> dict[str, Any]:
        """The record, and its folder."""
        record = to_data(self.record)
        return {"folder": str(self.folder), **record, "measured_on": self.record.measured_on.isoformat()}


def measure_device(
    out: Path | None = None,
    ranks: int | None = None,
    today: date | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> MeasuredDevice:
    """Measure this machine for about a minute and write `OUT/.twofold/device`, the working folder by default.

    Raises MissingExtraError without torch, ValueRefusedError for a count of ranks that no machine has,
    RunError when a rank fails; nothing is written then.
    """
    if ranks is not None and not 1 <= ranks <= RANKS_MAX:
        raise ValueRefusedError(f"{ranks} ranks cannot be measured", hint=f"write 1 to {RANKS_MAX}")
    require_extra("train")
    folder = (out or Path.cwd()) / DEVICE_FOLDER
    return MeasuredDevice(measure_into(folder, ranks, today or date.today(), tell), folder)
