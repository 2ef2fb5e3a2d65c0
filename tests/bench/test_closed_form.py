"""The closed form's replicas behind a gate agree with the twin's, and the bench runs what is named."""

import pytest

from bench.closed_form import CASES, FIGURES, main, seen, told

TPOT_P95 = FIGURES.index("tpot p95")


def test_one_of_four_replicas_gives_tokens_as_late_as_on_the_twin() -> None:
    """One alone is 14 % later than one of four, and one of very many 9 % sooner."""
    (case,) = (each for each in CASES if each.name == "32b, 2 A100")
    ours, alone, many = (told(case, 0.0, 0.6, count)[TPOT_P95] for count in (4, 1, 10**6))
    theirs = seen(case, 0.0, 0.6, 4, request_count=400)[TPOT_P95]
    assert ours == pytest.approx(theirs, rel=0.06)
    assert many < 0.94 * theirs and alone > 1.1 * theirs


def test_a_case_that_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["slow", "9b, H100"])
    assert ended.value.code == 2
    told_of = capsys.readouterr().err
    assert "9b, H100" in told_of and "fast" in told_of and "8b, H100" in told_of
