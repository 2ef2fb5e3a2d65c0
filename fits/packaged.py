"""What ships of the constants of fits that did not see something: `python -m fits.packaged` after a fit.

`validate` without data predicts the packaged rows, and asks for few of these constants: those alone ship
beside the rows. Priors ship whole, since `validate` holds any user's rows against them.
"""

from collections.abc import Callable, Iterator

from fits.fitted import write_blind
from twofold.catalog.catalog import load_catalog
from twofold.measure.blind import (
    ALL,
    EVERYTHING,
    OF_THE_SAMPLE,
    PREDICT,
    PRIORS,
    BlindRow,
    all_hidden,
    fold_of,
    hidden_constants,
    hidden_source,
    read_blind,
)
from twofold.measure.truth import Row
from twofold.measure.validation import read_data
from twofold.perf.constants import load_constants
from twofold.perf.known import load_known

HIDING: tuple[Callable[[Row], str], ...] = (fold_of, hidden_source, all_hidden)


def asked_rows() -> Iterator[BlindRow]:
    """Those of all rows that a prediction of a packaged row looks up, whatever is hidden from it."""
    catalog, shipped, known = load_catalog(), load_constants(), load_known()
    for half, rows in read_data(None).rows.items():
        for hidden_of in HIDING:
            for hidden in sorted({hidden_of(row) for row in rows}):
                constants = hidden_constants(half, hidden, shipped, ALL)
                mine = [row for row in rows if hidden_of(row) == hidden]
                PREDICT[half](mine, catalog, constants, known.without(hidden))
                # A table remembers what it was asked.
                asked = {(row.name, row.scope) for row in constants._asked.values()}
                kept = read_blind(ALL).get((half, hidden), ())
                yield from (row for row in kept if (row.name, row.scope) in asked)


def write_packaged() -> None:
    """Write both tables that ship, from that of all fits."""
    write_blind(asked_rows(), OF_THE_SAMPLE)
    every = read_blind(ALL)
    write_blind((row for (_, hidden), rows in every.items() if hidden == EVERYTHING for row in rows), PRIORS)


if __name__ == "__main__":
    write_packaged()
