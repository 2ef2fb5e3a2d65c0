"""How long a replica may be silent before its first answer."""

import math

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from twofold.live.control.engine_checks import COMPLETION_TIMEOUT_S
from twofold.live.control.engines import START_TIMEOUT_S, EngineSettings
from twofold.live.control.observed import Watched, first_answer_by_s


def replica(began_s: float, process_id: int | None) -> Watched:
    return Watched(
        "replica-0", EngineSettings("", "float32", 1, 1, 1), "v1", "127.0.0.1", 1, began_s, process_id
    )


def test_a_replica_that_started_long_before_its_controller_is_given_the_time_of_an_answer() -> None:
    assert first_answer_by_s(replica(1000.0, 7), 1001.0) == 1000.0 + START_TIMEOUT_S
    assert first_answer_by_s(replica(0.0, 7), 9000.0) == 9000.0 + COMPLETION_TIMEOUT_S


def test_a_server_that_we_did_not_start_may_come_when_it_will() -> None:
    assert first_answer_by_s(replica(0.0, None), 9000.0) == math.inf
