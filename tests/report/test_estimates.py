"""The roofline drawn as text: a roof that rises to the ridge, every point on it, inside its width."""

import pytest

from twofold.answer.question import given
from twofold.answer.quick_single import RooflineEstimate, estimate_roofline
from twofold.catalog.catalog import load_catalog
from twofold.perf.constants import load_constants
from twofold.report.estimates import AXIS_WIDTH, PLOT_ROWS, plot


def roofline(model: str, on: str) -> RooflineEstimate:
    catalog = load_catalog()
    return estimate_roofline(catalog.model(model), given(on, catalog, load_constants()))


@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-v3", "llama-3.2-1b"])
@pytest.mark.parametrize("on", ["H100-SXM", "H200", "L4", "Xeon-8480C"])
@pytest.mark.parametrize("width", [60, 100])
def test_the_plot_holds_every_point_inside_its_width(model: str, on: str, width: int) -> None:
    answer = roofline(model, on)
    lines = plot(answer, width)
    assert max(map(len, lines)) <= width
    rows = [line[AXIS_WIDTH + 2 :] for line in lines[:PLOT_ROWS]]
    letters = {character for row in rows for character in row if character.isalpha()}
    assert letters == {chr(ord("a") + at) for at in range(len(answer.points))}


def test_the_roof_rises_to_the_ridge_and_is_flat_behind_it() -> None:
    answer = roofline("llama-3.1-70b", "H200")
    lines = plot(answer, 100)
    ridge = lines[PLOT_ROWS].index("┴")
    flat = [at for line in lines[:PLOT_ROWS] for at, character in enumerate(line) if character == "─"]
    rising = [at for line in lines[:PLOT_ROWS] for at, character in enumerate(line) if character == "╱"]
    assert max(rising) <= ridge <= min(flat) + 1
