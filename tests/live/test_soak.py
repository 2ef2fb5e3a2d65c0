"""One seed of each fault that `make soak` does many of: what must hold then holds here."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")

from tests.soak.faults import FAULTS
from tests.soak.memory import over
from tests.soak.rounds import run_trial
from tests.soak.services import real_service, stub_service


def test_whatever_is_hit_nothing_is_lost_and_the_service_comes_back(tmp_path: Path) -> None:
    told = asyncio.run(run_trial(stub_service(tmp_path), tuple(FAULTS), seed="test"))
    assert told.wrong == [] and [each.wrong for each in told.rounds] == [[]] * len(FAULTS)
    assert told.books.count("completed") > 50


def test_so_it_is_with_the_real_default_engine(tmp_path: Path) -> None:
    for library in ("torch", "transformers"):
        pytest.importorskip(library, reason="needs the extra [train]: `make extras`")
    faults = ("prompts around the bounds", "engine killed")
    told = asyncio.run(run_trial(real_service(tmp_path), faults, seed="real"))
    assert told.wrong == [] and [each.wrong for each in told.rounds] == [[], []]


def test_the_memory_of_a_gateway_stays_as_it_is(tmp_path: Path) -> None:
    """A leak of a kilobyte a request would show; a hundred thousand of them: `make soak`."""
    memory = asyncio.run(over(tmp_path, 3000))
    assert memory.grown_bytes < 2 << 20, memory
