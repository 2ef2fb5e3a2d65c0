"""The gateway's bench runs, its bare pass-through with the least in place of a gate."""

from functools import partial

import pytest

pytest.importorskip("uvloop", reason="needs the extra [live]: `make extras`")

from bench import gateway


def test_every_server_answers_at_every_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gateway, "LOADS", ((1, False), (2, True)))
    monkeypatch.setattr(gateway, "ROUNDS", 1)
    monkeypatch.setattr(gateway, "load_s", partial(gateway.load_s, duration_s=0.2))
    gateway.main()
    *lines, alone, together = capsys.readouterr().out.splitlines()[3:]
    assert len(lines) == 2 * 4
    assert all(float(line[29:40]) > 0 for line in lines)  # answers per second
    assert alone.startswith("every policy, 1 at once: ") and together.startswith(
        "every policy, 2 at once, paced: "
    )


def test_an_engine_that_cost_less_than_a_tick_has_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    point = gateway.Point([1000.0], [1e-3], {"engine": [0.0]}, [0.0])
    gateway._print({("engine alone", (1, False)): point, (gateway.BARE, (1, False)): point}, ["engine alone"])
    lines = capsys.readouterr().out.splitlines()[3:]
    assert [line.split()[-3] for line in lines] == ["-", "-"]


def test_a_goal_is_missed_by_what_is_slower_than_it() -> None:
    bare = gateway.Point([1000.0], [1e-3])
    points = {(gateway.BARE, (1, False)): bare, (gateway.BARE, (16, False)): bare}
    points[gateway.EVERY, (1, False)] = gateway.Point([800.0], [1.15e-3])
    points[gateway.EVERY, (16, False)] = gateway.Point([840.0], [1e-3])
    said = gateway.verdicts(points)
    assert said == [
        "every policy, 1 at once: +0.15 ms, at most 0.20: met",
        "every policy, 16 at once: 84% of the answers/s, at least 85%: missed",
    ]
