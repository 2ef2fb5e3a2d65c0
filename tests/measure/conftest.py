"""The packaged rows beside their predictions, once for all tests of this room."""

import pytest

from twofold.measure.evidence import Evidence, gather
from twofold.measure.results import Column
from twofold.measure.validation import read_data


@pytest.fixture(scope="session")
def sample() -> Evidence:
    """The packaged rows beside what constants that never saw their source predict."""
    return gather(read_data(None), only=(Column.LEFT_OUT,))
