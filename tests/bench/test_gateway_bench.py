"""The gateway's bench runs, its bare pass-through with the least in place of a gate."""

from functools import partial

import pytest

pytest.importorskip("uvloop", reason="needs the extra [live]: `make extras`")

from bench import gateway


def test_every_server_answers_at_every_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gateway, "CONCURRENCIES", (1, 2))
    monkeypatch.setattr(gateway, "ROUNDS", 1)
    monkeypatch.setattr(gateway, "load_s", partial(gateway.load_s, duration_s=0.2))
    gateway.main()
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == 2 * 4
    assert all(float(line[28:39]) > 0 for line in lines)  # answers per second
