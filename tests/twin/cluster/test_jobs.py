"""Generated jobs are those of the published curves; rows of traces become jobs."""

import csv
import gzip
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from twofold.twin.cluster.jobs import (
    DURATIONS_S,
    SHAPES,
    SIZES,
    JobEnd,
    JobTraffic,
    generate_jobs,
    size_correlation,
)

TRACES = Path(__file__).parents[4] / "shared" / "traces"
PUBLISHED = {  # mean run and mean accelerators of all GPU jobs, and the median run: the cluster summary
    "seren": (1414, 5.68, 122),
    "kalos": (1260, 26.8, 124),
    "philly": (18_006, 1.93, 874),
    "helios": (6652, 3.72, 206),
    "pai": (4787, None, 481),  # its parts of accelerators count as whole ones here
}


def drawn(name: str, count: int = 20_000, **changes: object) -> list:
    traffic = JobTraffic(SHAPES[name], until_s=1e12, **changes)  # type: ignore[arg-type]
    return list(islice(generate_jobs(traffic), count))


@pytest.mark.parametrize("name", SHAPES)
def test_generated_jobs_have_the_published_curves(name: str) -> None:
    shape, jobs = SHAPES[name], drawn(name)
    durations = np.array([job.duration_s for job in jobs])
    counts = np.array([job.accelerator_count for job in jobs])
    for at_s, percent in zip(DURATIONS_S, shape.duration_percent, strict=True):
        assert np.mean(durations <= at_s) == pytest.approx(percent / 100, abs=0.015)  # KS bound of 0.01 %
    for size, percent in zip(SIZES, shape.size_percent_by_jobs, strict=True):
        assert np.mean(counts <= size) == pytest.approx(percent / 100, abs=0.015)


@pytest.mark.parametrize("name", SHAPES)
def test_means_that_were_not_fitted_come_out_too(name: str) -> None:
    mean_s, mean_count, median_s = PUBLISHED[name]
    jobs = drawn(name, 30_000)
    assert np.mean([job.duration_s for job in jobs]) == pytest.approx(mean_s, rel=0.25)
    assert np.median([job.duration_s for job in jobs]) == pytest.approx(median_s, rel=0.15)
    if mean_count:
        assert np.mean([job.accelerator_count for job in jobs]) == pytest.approx(mean_count, rel=0.25)


@pytest.mark.parametrize("name", SHAPES)
def test_large_jobs_have_most_of_the_time_where_they_do(name: str) -> None:
    shape, jobs = SHAPES[name], drawn(name)
    time = np.array([job.duration_s * job.accelerator_count for job in jobs])
    counts = np.array([job.accelerator_count for job in jobs])
    shares = np.array([time[counts <= size].sum() / time.sum() for size in SIZES])
    # One number links two curves: what it cannot reach is stated, not hidden.
    assert np.max(np.abs(shares - np.array(shape.size_percent_by_time) / 100)) < 0.35
    assert size_correlation(shape) >= 0.0


def test_arrivals_follow_the_day_and_come_in_bursts() -> None:
    jobs = drawn("philly", gap_cv_ratio=1.0, seed=3)
    hours = Counter(int(job.submit_s / 3600) % 24 for job in jobs)
    assert hours[7] > 3 * hours[4]  # 2.47 against 0.48 of the mean
    gaps = np.diff([job.submit_s for job in drawn("philly", day_shape=(1.0,))])
    assert np.min(gaps) >= 0
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(20.29, rel=0.3)


def test_equal_seeds_draw_equal_jobs() -> None:
    assert drawn("kalos", 500, seed=4) == drawn("kalos", 500, seed=4)
    assert drawn("kalos", 500, seed=4) != drawn("kalos", 500, seed=5)


def test_teams_get_their_shares_and_none_is_too_large() -> None:
    jobs = drawn("kalos", teams=(("a", 3.0), ("b", 1.0)), sizes_max=64, gap_cv_ratio=1.0)
    assert np.mean([job.team == "a" for job in jobs]) == pytest.approx(0.75, abs=0.02)
    assert max(job.accelerator_count for job in jobs) == 64
    assert np.mean([job.state is JobEnd.COMPLETED for job in jobs]) == pytest.approx(0.541, abs=0.02)


@pytest.mark.skipif(not TRACES.exists(), reason="needs ../shared/traces")
def test_the_jobs_of_a_philly_trace_are_near_its_published_curve() -> None:
    with gzip.open(TRACES / "jobs_philly2017_h1.csv.gz", "rt") as file:
        durations = np.sort([float(row["duration_s"]) for row in csv.DictReader(file)])
    generated = np.sort([job.duration_s for job in drawn("philly", 20_000)])
    grid = np.concatenate([durations, generated])
    distance = np.max(
        np.abs(
            np.searchsorted(durations, grid, side="right") / len(durations)
            - np.searchsorted(generated, grid, side="right") / len(generated)
        )
    )
    # The trace's carrier kept 82 of 117 thousand jobs, the longer ones: it is not a sample of the curve.
    assert distance < 0.25
