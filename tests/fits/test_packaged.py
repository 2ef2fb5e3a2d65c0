"""What ships of the blind constants answers the packaged rows as all of them do, and holds no more."""

import pytest

from fits.packaged import asked_rows
from twofold.measure.blind import ALL, EVERYTHING, OF_THE_SAMPLE, PRIORS, read_blind
from twofold.measure.results import Column
from twofold.measure.validation import predict_column, read_data


@pytest.mark.parametrize("half", ["training", "inference"])
@pytest.mark.parametrize("column", Column)
def test_the_packaged_rows_are_answered_as_by_all_constants(half: str, column: Column) -> None:
    rows = read_data(None).rows[half]
    assert predict_column(half, rows, column, OF_THE_SAMPLE) == predict_column(half, rows, column, ALL)


def test_what_ships_is_what_the_packaged_rows_ask_for() -> None:
    shipped = read_blind(OF_THE_SAMPLE)
    assert {row for rows in shipped.values() for row in rows} == set(asked_rows())
    assert OF_THE_SAMPLE.stat().st_size < 200_000


def test_the_priors_ship_whole() -> None:
    priors = {key: rows for key, rows in read_blind(ALL).items() if key[1] == EVERYTHING}
    assert read_blind(PRIORS) == priors
