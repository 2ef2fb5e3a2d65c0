"""Without the extra, the parts that need it say which one it is."""

import sys
from pathlib import Path

import pytest

from twofold.core.errors import MissingExtraError
from twofold.live.gateway.gateway import run_gateway
from twofold.live.gateway.gateway_config import GatewayConfig
from twofold.live.loads.loader import Prompt, bare_endpoint, closed_loop
from twofold.policy.gate.settings import Beliefs


@pytest.mark.parametrize("library", ["aiohttp", "uvicorn", "uvloop"])
def test_the_gateway_names_its_extra(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    config = GatewayConfig("127.0.0.1", 9, (), Beliefs(0.0, 0.0), str(tmp_path / "log"))
    with pytest.raises(MissingExtraError, match=r"\[live\]"):
        run_gateway(config)


def test_the_load_generator_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(MissingExtraError, match="aiohttp"):
        closed_loop(
            bare_endpoint("http://127.0.0.1:9"), [Prompt("a", 1)], 1, request_count=1, max_tokens=1, seed=0
        )
