"""Scores against hand-made rows; the page itself is written by `make accuracy`."""

import pytest

from twofold.measure.accuracy import TRAINING, by_source, means_where_they_are, score, table


def row(source: str, measured: float, predicted: float, tier: str = "A") -> dict[str, str]:
    return {
        "source": source,
        "tier": tier,
        "step_time_s": str(measured),
        "pred_step_time_s": str(predicted),
        "pred_step_time_s_low": str(predicted / 1.2),
        "pred_step_time_s_high": str(predicted * 1.2),
    }


def test_a_score_is_errors_bias_coverage_and_width() -> None:
    found = score([(10.0, 11.0, 9.0, 13.0), (10.0, 5.0, 4.0, 6.0)])
    assert found.mean_error == pytest.approx(0.3)
    assert found.bias == pytest.approx(0.55**0.5 - 1)
    assert found.coverage == 0.5
    assert found.width == pytest.approx((13 / 9 + 1.5) / 2)


def test_context_rows_and_rows_without_an_answer_are_not_scored() -> None:
    rows = [row("a", 1, 1), row("a", 1, 2, tier="C"), row("b", 1, 1) | {"pred_step_time_s": ""}]
    assert {source: len(found) for source, found in by_source(rows, TRAINING[0]).items()} == {"a": 1}


def test_every_source_weighs_the_same_in_the_mean() -> None:
    rows = [row("large", 1, 1)] * 9 + [row("small", 1, 1.5)]
    assert table(rows, TRAINING[0])[-2].startswith("| **mean of sources** | 10 | 25.0% |")


def test_a_statistic_that_behaves_as_a_mean_is_scored_as_one() -> None:
    rows = [{"source": "inferencex", "ttft_p50_ms": "5"}, {"source": "blis", "ttft_p50_ms": "5"}]
    moved, kept = means_where_they_are(rows)
    assert (moved["ttft_mean_ms"], moved["ttft_p50_ms"]) == ("5", "")
    assert kept["ttft_p50_ms"] == "5"
