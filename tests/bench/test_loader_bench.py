"""The bench of the load generator runs, and says the limit that it found and whether it is the one wanted."""

import pytest

pytest.importorskip("uvloop", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from bench import loader


def test_it_prints_both_clients_and_its_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loader, "CONCURRENCIES", (1, 2))
    monkeypatch.setattr(loader, "ROUNDS", 1)
    monkeypatch.setattr(loader, "DURATION_S", 0.3)
    loader.main()
    _, _, *rows, last = capsys.readouterr().out.splitlines()
    figures = [[float(cell.strip("%").replace(",", "")) for cell in row.split()] for row in rows]
    assert [row[0] for row in figures] == [1, 2] and all(min(row) > 0 for row in figures)
    best, limit = max(row[1] for row in figures), max(row[-1] for row in figures)
    assert last.startswith(f"{best:,.0f} streams/s at most; limit: a core of the client's can {limit:,.0f}")


@pytest.mark.parametrize(("best_per_s", "said"), [(5000.0, "5,000, held"), (4000.0, "5,000, missed by 20%")])
def test_it_says_whether_it_is_what_is_wanted(best_per_s: float, said: str) -> None:
    assert loader.verdict(best_per_s, 9000.0).endswith(f"wanted: {said}")
