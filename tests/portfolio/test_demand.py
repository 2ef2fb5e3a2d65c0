"""What a spec asks by week and hour: seasons by month, quiet hours for a batch, repeats within the year."""

from datetime import date

import numpy as np
import pytest

from twofold.contracts.spec.spec import Spec
from twofold.portfolio.demand import WEEK_COUNT, first_day, month_of, repeats_of, seasons

RUN = {"kind": "lora", "model": "llama-3.1-8b", "steps": "100", "global_batch": "64 seq"}


def spec(**supply: object) -> Spec:
    return Spec.model_validate({"training": {**RUN, "repeats": "every 4 weeks"}, "supply": supply})


def test_a_season_changes_the_weeks_of_its_months_alone() -> None:
    factors = seasons(spec(start="2027-01-04", seasons=[{"months": ["nov", "dec"], "factor": "1.5x"}]))
    start = date(2027, 1, 4)
    busy = [week for week in range(WEEK_COUNT) if month_of(week, start) in (10, 11)]
    assert busy and all(factors[week] == pytest.approx(1.5) for week in busy)
    assert float(np.delete(factors, busy).max()) == 1.0


def test_a_year_without_a_first_day_begins_in_january() -> None:
    assert first_day(spec()) is None
    assert (month_of(0, None), month_of(51, None)) == (0, 11)


def test_a_run_repeats_as_often_as_it_ends_within_the_year() -> None:
    (run,) = spec().training
    times = repeats_of(run, None)
    assert len(times) == 13
    assert [first_week for _, first_week, _ in times] == list(range(0, 52, 4))
    assert all(end_week <= WEEK_COUNT for *_, end_week in times)


def test_a_window_is_weeks_from_the_first_day() -> None:
    window = {"start": "2027-03-01", "end": "2027-04-25"}
    planned = Spec.model_validate({"training": {**RUN, "window": window}, "supply": {"start": "2027-01-04"}})
    (once,) = repeats_of(planned.training[0], first_day(planned))
    assert once[1:] == (8, 16.0)
