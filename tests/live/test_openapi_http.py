"""What the gateway says of itself is asked of it over HTTP: schemathesis makes bodies, headers and paths.

Whatever fits is answered by a status that is described, in the form that is described; whatever does not is
refused, and never by a fault of the gateway's own.
"""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("schemathesis", reason="needs `schemathesis`, of requirements-dev.lock")

import requests
import schemathesis
from hypothesis import HealthCheck, given, settings

from tests.live.threaded import Threaded, served_on_a_thread
from twofold.live.gateway.openapi import OPENAPI_PATH

MODES: list[Any] = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threaded]:
    with served_on_a_thread(tmp_path_factory.mktemp("gateway")) as made:
        yield made


@pytest.mark.parametrize("mode", MODES, ids=[mode.name for mode in MODES])
def test_each_operation_answers_as_described(served: Threaded, mode: Any) -> None:
    url = f"http://127.0.0.1:{served.port}"
    told = requests.get(url + OPENAPI_PATH, timeout=10).json()
    asked = 0
    for result in schemathesis.openapi.from_dict(told).get_all_operations():
        operation = result.ok()
        if mode is MODES[1] and operation.method != "post":
            continue  # of a page that takes nothing, nothing can be wrong

        @settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(base_url=url, timeout=30)

        ask()
    assert asked >= 40
    assert requests.get(url + "/health", timeout=10).status_code == 200
