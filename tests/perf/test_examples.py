"""Every example in a docstring of the room says what it gives."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import twofold.perf

MODULES = sorted(path.stem for path in Path(str(twofold.perf.__file__)).parent.glob("[!_]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    assert doctest.testmod(import_module(f"twofold.perf.{name}")).failed == 0
