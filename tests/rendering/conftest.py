"""Files of the examples, each once."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.rendered import Files, texts
from twofold.contracts.results.plan import Plan


@pytest.fixture(scope="session")
def files_of(examples: dict[str, Plan]) -> Callable[[str, str], Files]:
    """`files_of("assistant", "shell")`: texts by path."""

    @cache
    def made(name: str, target: Any) -> Files:
        return texts(examples[name], target)

    return made
