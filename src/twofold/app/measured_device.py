"""What a measured device adds to the tables that a plan is made from."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from twofold.perf import Constants, load_constants


@dataclass(frozen=True, slots=True)
class DeviceTables:
    """Our constants, a measured device's laid over them, and what to say about it."""

    constants: Constants
    summary: str  # "" without a measured device
    digest: str
    notes: tuple[str, ...]


def device_tables(folder: Path | None, today: date | None = None) -> DeviceTables:
    """The constants to plan with; `folder` is that of a measured device, None for none."""
    if folder is None:
        return DeviceTables(load_constants(), "", "", ())
    from twofold.device import notes_about, read_device, this_identity
    from twofold.perf import parse_constants, with_rows

    record, text = read_device(folder)
    constants = with_rows(load_constants(), parse_constants(text).rows)
    return DeviceTables(constants, record.summary, record.digest, notes_about(record, today, this_identity()))
