"""A year is one number, written once."""

import tokenize
from pathlib import Path

import twofold
from twofold.core.quantity import YEAR_H, YEAR_S, Dimension, parse_quantity

ROOT = Path(twofold.__file__).parent


def test_a_year_is_as_long_in_texts_as_in_formulas() -> None:
    assert parse_quantity("1 y", Dimension.TIME) == YEAR_S == 3600 * YEAR_H


def test_the_hours_of_a_year_are_written_in_one_place() -> None:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        if "8760" in path.read_text().replace("_", ""):
            with path.open("rb") as file:
                numbers = [
                    each.string for each in tokenize.tokenize(file.readline) if each.type == tokenize.NUMBER
                ]
            found += [path.name for number in numbers if number.replace("_", "") in ("8760", "8760.0")]
    assert found == ["quantity.py"]
