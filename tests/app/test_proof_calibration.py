"""What a calibration takes from a load, and what it refuses to go on without."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twofold.app import proof_calibration
from twofold.core.errors import RunError
from twofold.live.loads import loads

ENDED = loads.Outcome.FINISHED


def load_of(*ended: tuple[loads.Outcome, int]) -> loads.Load:
    load = loads.Load()
    load.begin(0.0, 10.0)
    for outcome, tokens in ended:
        answer = loads.Answer(0.0, 8, lag_s=0.0)
        answer.outcome, answer.output_tokens, answer.first_s, answer.last_s = outcome, tokens, 1.0, 2.0
        load.answers.append(answer)
    return load


def test_only_answers_that_ended_say_how_far_answers_go() -> None:
    made = load_of((ENDED, 6), (loads.Outcome.REFUSED, 0), (ENDED, 24), (loads.Outcome.FAILED, 2))
    assert list(proof_calibration._shares([12, 12, 12, 12], made)) == [0.5, 1.0]


@pytest.mark.parametrize(("silent", "named"), [("v1", "the service"), ("worse", "the release")])
def test_who_answers_nothing_has_no_token_time(
    monkeypatch: pytest.MonkeyPatch, silent: str, named: str
) -> None:
    class Alone:
        def __enter__(self) -> tuple[str, str]:
            return "http://127.0.0.1:2", "worse"

        def __exit__(self, *_: object) -> None:
            pass

    trials = SimpleNamespace(
        until_whole=lambda *_: ["r0"],
        address_of=lambda *_: ("http://127.0.0.1:1", "v1"),
        engine_alone=lambda *_: Alone(),
    )
    monkeypatch.setattr(proof_calibration, "trials", trials)
    monkeypatch.setattr(
        proof_calibration, "_token_times_s", lambda _, to: [] if to.model == silent else [0.01]
    )
    settings = SimpleNamespace(version="v1", replica_count=1, engine=None)
    bench: Any = SimpleNamespace(standing=SimpleNamespace(settings=settings, state=Path("s"), release=None))
    with pytest.raises(RunError, match=f"{named} answered nothing"):
        proof_calibration.release_factor(bench)


def test_no_cold_start_is_made_up_where_nothing_was_killed() -> None:
    standing: Any = SimpleNamespace(settings=SimpleNamespace(version="v1", replica_count=1), state=Path("s"))
    killed: Any = SimpleNamespace(done_s=None, added_s=None)
    with pytest.raises(RunError, match="no replica could be killed"):
        proof_calibration.deployed(standing, killed)
