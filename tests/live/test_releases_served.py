"""R-101, R-178: bad releases on real engines behind the gateway are rolled back, and a good one is promoted.

Each once; many trials of each, and how often the gate is wrong: `python -m tests.soak --live-releases 20`.
"""

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")
pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.test_releases import REASONS
from tests.soak.live_releases import BAD, Running, running, tried
from tests.soak.releases import GOOD
from twofold.live import processes
from twofold.live.registry.registry import Registry


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("served")
    with running(folder) as made:
        yield made
    assert processes.running(made.state) == []


@pytest.mark.parametrize("kind", BAD)
def test_r_101_a_bad_release_is_rolled_back_before_its_stage_is_over(kind: str, service: Running) -> None:
    ended = tried(service, kind, BAD[kind], 3)
    assert not ended.promoted and ended.reason in REASONS[kind], ended
    assert 0 < ended.to_release <= ended.stage_requests
    opened = Registry(service.registry)
    assert opened.find("tiny@serving").text == "tiny:1"
    last = opened.with_log(opened.describe("tiny")).log
    opened.close()
    assert last is not None and (last[-1].what, last[-1].by) == ("refused release", "gate")
    assert dict(last[-1].rules)["gate"] == ended.reason


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_release_is_promoted_and_every_replica_runs_it(kind: str, service: Running) -> None:
    """Where a busy machine leaves too little to tell by, it is not found worse, and is tried once more."""
    ended = tried(service, kind, GOOD[kind], 3)
    if not ended.promoted:
        assert ended.reason.endswith("undecided"), ended
        ended = tried(service, kind, GOOD[kind], 4)
    assert ended.promoted, ended
    assert ended.seconds < 120.0
