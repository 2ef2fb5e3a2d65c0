"""`registry promote` beside a service: what its spec promises is measured on the engine that serves, and
stops what was made to miss it. Engines are stand-ins in processes of their own, each late or heavy by what
its model's folder says.
"""

import json
import sys
import threading
from dataclasses import replace

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")

from tests.app.test_promoting import Beside, still
from tests.live.test_controller import STUB
from twofold.app import releasing
from twofold.app.promoting import promote_version
from twofold.cli import main
from twofold.core.data import to_json
from twofold.live.control import trials
from twofold.live.control.store import Store
from twofold.policy.release.rules import Limits

__all__ = ["still"]  # the fixture
MIB = 1 << 20
PROMISED = Limits(ttft_p95_s=0.5, tpot_p95_s=0.2, memory_bytes=150.0 * MIB)
TOOK = {"ttft": " s at p95; passes: at most 0.5 s", "tpot": " s at p95; passes: at most 0.2 s"}


@pytest.fixture
def promising(still: Beside, monkeypatch: pytest.MonkeyPatch) -> Beside:
    """A service of the second version whose spec promises times and memory."""
    program = still.folder / "stub"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    engine = replace(still.settings.engine, program=str(program))
    told = {"limits": PROMISED, "prompt_tokens": 16, "answer_tokens": 3}
    still.settings = replace(still.settings, engine=engine, **told)
    store = Store(still.state)
    store.keep("service", to_json(still.settings))
    store.close()
    monkeypatch.setattr(trials, "until_all_run", lambda *_: None)
    monkeypatch.setattr(releasing, "ENGINE_REQUESTS", 3)
    monkeypatch.setattr(releasing, "ENGINE_TRIES", 1)
    return still


def promoted(beside: Beside, text: str) -> int:
    return main(["registry", "promote", text, "--registry", str(beside.registry), "--by", "ann"])


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("ttft", {"first": "0.8"}),
        ("tpot", {"pace": "0.4"}),
        ("memory", {"ballast": str(250 * MIB)}),
    ],
)
def test_r_178_an_engine_made_to_miss_a_promise_is_stopped_by_its_rule_with_the_figure(
    rule: str, told: dict[str, str], promising: Beside, capsys: pytest.CaptureFixture[str]
) -> None:
    text = promising.pushed(3, **told)
    assert promoted(promising, text) == 3
    said = " ".join(capsys.readouterr().err.split())
    opened = promising.opened()
    found = opened.describe(text).evaluation
    opened.close()
    assert found is not None and found.engine.startswith("transformers, beside ")
    figure = {"ttft": found.ttft_p95_s, "tpot": found.tpot_p95_s, "memory": found.memory_bytes}[rule]
    assert figure is not None and f"{rule} {figure:.4g} " in said and TOOK.get(rule, "passes") in said
    last = promising.log()[-1]
    assert (last["what"], last["rules"].keys()) == ("refused promotion to serving", {rule})
    # What was measured there is not measured again.
    lines = len(promising.log())
    assert promoted(promising, text) == 3 and len(promising.log()) == lines + 1


def test_one_that_keeps_them_passes_and_what_nothing_asks_is_said(
    promising: Beside, capsys: pytest.CaptureFixture[str]
) -> None:
    text = promising.pushed(3)
    assert promoted(promising, text) == 0
    assert "evaluate chat:3 on transformers" in capsys.readouterr().err
    opened, store = promising.opened(), Store(promising.state)
    assert opened.find("chat@serving").text == text
    store.keep("service", to_json(replace(promising.settings, limits=Limits())))
    store.close()
    opened.close()
    plain = promote_version(promising.pushed(4), promising.registry, "ann", "", "serving", "", 1)
    assert plain.service.endswith("it promises neither times nor memory, and none were measured")


def test_the_rules_of_a_service_that_does_not_run_hold_and_what_was_not_measured_is_said(
    promising: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "serving_version", lambda _: "")
    moved = promote_version(promising.pushed(3), promising.registry, "ann", "", "serving", "", 1)
    assert moved.service == (
        "the alias alone moved, and nothing was measured on an engine: its service does not run"
    )
    store = Store(promising.state)
    limits = replace(PROMISED, signed_by=str(promising.folder / "release.pub"))
    store.keep("service", to_json(replace(promising.settings, limits=limits)))
    store.close()
    assert promoted(promising, promising.pushed(4)) == 3
    assert json.dumps(promising.log()[-1]).count("not signed by") == 1


def test_two_who_measure_wait_for_each_other(promising: Beside) -> None:
    """Else each ends the other's engine, and memory is that of both."""
    first = threading.Event()
    order: list[str] = []

    def second() -> None:
        assert first.wait(60.0)
        with trials.measuring(promising.state):
            order.append("second")

    waiting = threading.Thread(target=second, daemon=True)
    waiting.start()
    with trials.engine_alone(promising.state, promising.settings.engine):
        first.set()
        assert trials.alone_memory_bytes(promising.state) > 0.0
        order.append("first")
    waiting.join(60.0)
    assert order == ["first", "second"]
