"""What serving devices draw: fitted on published power, used by fleets."""

from pathlib import Path

import pytest

from fits.power import NAME, fit
from twofold.perf.constants import load_constants

HEADER = "model,gpu,tier,watts_per_gpu\n"


def test_the_share_is_of_the_range_above_idle_and_context_rows_do_not_count(tmp_path: Path) -> None:
    lines = ["m,h100,A,700", "m,h100,B,700", "m,a100,A,1", "m,h100,C,100", "m,nobody,A,100", "m,h100,A,"]
    (tmp_path / "inference.csv").write_text(HEADER + "\n".join(lines), "utf-8")
    (row,) = fit(tmp_path, load_constants()).rows  # no family has rows enough for one of its own
    assert (row.name, row.scope, row.rows) == (NAME, "", 3)
    assert row.value == pytest.approx(1.0)  # two of three at the vendor's limit
    assert row.low < 0.3  # one below idle


def test_the_fit_reproduces_the_shipped_rows() -> None:
    truth = Path(__file__).parents[3] / "shared" / "truth"
    if not truth.is_dir():
        pytest.skip("needs ../shared/truth")
    shipped = {row.scope: row for row in load_constants().rows if row.fitted_by == "power"}
    fitted = {row.scope: row for row in fit(truth, load_constants()).rows}
    assert fitted.keys() == shipped.keys()
    for scope, row in fitted.items():
        assert row.value == pytest.approx(shipped[scope].value, rel=1e-4)
