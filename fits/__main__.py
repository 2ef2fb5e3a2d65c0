"""Refit the constants: `python -m fits TRUTH [NAME …]` runs each fit and writes its rows.

Kernels come first, because the others stand on them. Each fit owns the rows that name it and leaves the rest.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from fits.fitted import Fitted, format_known, replace_blind, write_constants
from fits.packaged import write_packaged
from twofold.measure.blind import BlindRow, made_by_ranges
from twofold.perf.constants import Constants, constants_path, load_constants
from twofold.perf.known import known_path, load_known

FITS = (  # name, module with `fit(truth: Path, constants: Constants) -> Fitted`
    ("kernels", "fits.kernels"),
    ("power", "fits.power"),
    ("training", "fits.training"),
    ("inference", "fits.inference"),
    ("ranges", "fits.ranges"),  # last: they stand on the errors of all others
)


def main(arguments: list[str]) -> int:
    """Run the named fits, or all; the exit code."""
    if not arguments or not Path(arguments[0]).is_dir():
        print(
            "usage: python -m fits TRUTH_FOLDER [kernels|power|training|inference|ranges …]",
            file=sys.stderr,
        )
        return 2
    truth, wanted = Path(arguments[0]), set(arguments[1:]) or {name for name, _ in FITS}
    path = constants_path()
    for name, module in FITS:
        if name not in wanted or find_spec(module) is None:
            continue
        if name == "ranges":  # an earlier run's ranges must not shape the errors that these stand on
            for half in ("training", "inference"):
                replace_blind(half, (), owned=made_by_ranges)
        found: Fitted = import_module(module).fit(truth, Constants.parse(path.read_text(encoding="utf-8")))
        version = write_constants(path, name, found.rows)
        if found.blind:
            _write_blind(name, found.blind)
        if found.seen:
            known_path().write_text(format_known(found.seen), encoding="utf-8")
            load_known.cache_clear()
        print(f"{name}: {len(found.rows)} rows fitted, the constants are version {version}")
    load_constants.cache_clear()
    write_packaged()
    return 0


def _write_blind(name: str, rows: Sequence[BlindRow]) -> None:
    """Each half's rows in place of those that the same fit wrote before."""
    of_ranges = name == "ranges"
    for half in {row.half for row in rows}:
        mine = [row for row in rows if row.half == half]
        replace_blind(half, mine, owned=lambda each: made_by_ranges(each) == of_ranges)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
