"""What a cache takes of a process's memory, by the fit that `measure serve` makes."""

import pytest

from bench.memory_growth import CASES, grew

for name in ("torch", "transformers", "psutil"):
    pytest.importorskip(name, reason="needs the extras [train] and [live]: `make extras`")


@pytest.mark.skipif("sys.platform != 'linux'", reason="needs an allocator that gives back what is freed")
def test_r_125_memory_grows_by_the_formula_with_lengths_and_with_clients() -> None:
    found = {name: grew(name) for name in CASES}
    for each in found.values():
        assert each.fitted == pytest.approx(each.formula, rel=0.08), each.line
    assert found["half the heads"].formula == found["one context"].formula / 2
