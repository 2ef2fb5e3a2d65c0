"""Which boot of which machine this is: times of its monotonic clock compare with those of this one only."""

from functools import cache
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def this_boot() -> str:
    """An id of this boot; "" where the system tells none."""
    try:
        return BOOT_ID.read_text("utf-8").strip()
    except OSError:
        return ""
